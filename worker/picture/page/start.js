// Puts it all together.

function tellSession() {
  const levelOne = nodes.filter((node) => node.level === 1 && node.state !== "retired").length;
  const folds = nodes.filter((node) => node.level > 1 && node.state !== "retired").length;
  const retired = nodes.filter((node) => node.state === "retired").length;
  appendVisible(byId("session"), session);
  document.title = `${visible(session)} \u2013 mneme`;
  const told = [count(levelOne, "snapshot"), count(folds, "fold"), ...(retired ? [`${retired.toLocaleString("en")} retired`] : [])];
  byId("summary").textContent = nodes.length ? told.join(", ") : "Nothing was ever written for this session.";
  byId("scale").textContent = nodes.length
    ? `Across: message numbers. Height: estimated tokens (square root), full height ${Math.round(mostTokens).toLocaleString("en")}.`
    : "";
}

tellSession();
drawNodes();
for (const node of nodes) node.shown = null;
placeRows(60);
listenToSearch();
listenToReplay();
listenToKeys();
measure();
goToStep(lastStep);
new ResizeObserver(() => measure()).observe(scroller);
