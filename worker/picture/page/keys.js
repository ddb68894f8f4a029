// Keys and pointer.

const isShown = (node) => node.shown !== "unborn";
const centreOf = (node) => (node.start + node.end) / 2;

function nearest(among, node) {
  const far = (one) => Math.abs(centreOf(one) - centreOf(node));
  return among.reduce((best, one) => (best === null || far(one) < far(best) ? one : best), null);
}

function onLevel(level) {
  return nodes.filter((node) => node.level === level && isShown(node)).sort((a, b) => a.start - b.start || a.index - b.index);
}

function neighbour(node, by) {
  const level = onLevel(node.level);
  return level[level.indexOf(node) + by] || node;
}

// Along an edge where there is one, of several to what stands now; else to what is nearest on the next level.
function upOrDown(node, up) {
  const related = (up ? node.children : node.parents).map((index) => nodes[index]).filter(isShown);
  if (related.length) return related.find((one) => one.shown !== "retired") || related[0];
  const next = rows.map((row) => row.level)[rows.findIndex((row) => row.level === node.level) + (up ? -1 : 1)];
  return next === undefined ? node : nearest(onLevel(next), node) || node;
}

const MOVES = {
  ArrowLeft: (node) => neighbour(node, -1),
  ArrowRight: (node) => neighbour(node, 1),
  ArrowUp: (node) => upOrDown(node, true),
  ArrowDown: (node) => upOrDown(node, false),
  Home: (node) => onLevel(node.level)[0] || node,
  End: (node) => onLevel(node.level).at(-1) || node,
};

function firstToShow() {
  return nodes.filter((node) => isShown(node) && isActive(node.shown)).at(-1) || nodes.find(isShown) || null;
}

function onDiagramKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (MOVES[event.key]) {
    const node = current && isShown(current) ? MOVES[event.key](current) : firstToShow();
    if (chosen && node) choose(node);
    else moveTo(node);
  } else if (event.key === "Enter" || event.key === " ") {
    if (current) choose(current);
  } else return;
  event.preventDefault();
}

const COMMANDS = {
  "/": () => {
    byId("query").focus();
    byId("query").select();
  },
  Escape: () => {
    choose(null);
    scroller.focus();
  },
  "+": () => zoomTo(view.scale * 1.5),
  "=": () => zoomTo(view.scale * 1.5),
  "-": () => zoomTo(view.scale / 1.5),
  0: () => zoomTo(view.fit),
  p: () => play(),
};

function onPageKey(event) {
  const command = COMMANDS[event.key] || COMMANDS[event.key.toLowerCase()];
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.id === "query" || !command) return;
  command();
  event.preventDefault();
}

function showTip(event) {
  const node = event.pointerType === "mouse" ? nodeAt(event) : null;
  const tip = byId("tip");
  tip.hidden = !node;
  scroller.classList.toggle("over", Boolean(node));
  if (!node) return;
  tip.textContent = described(node);
  const box = tip.parentElement.getBoundingClientRect();
  const left = Math.min(event.clientX - box.left + 12, box.width - tip.offsetWidth - 4);
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${event.clientY - box.top - tip.offsetHeight - 12}px`;
}

function listenToKeys() {
  scroller.addEventListener("keydown", onDiagramKey);
  scroller.addEventListener("focus", () => {
    if (!current && scroller.matches(":focus-visible")) moveTo(firstToShow());
  });
  document.addEventListener("keydown", onPageKey);
  picture.addEventListener("click", (event) => choose(nodeAt(event)));
  picture.addEventListener("pointermove", showTip);
  picture.addEventListener("pointerleave", () => (byId("tip").hidden = true));
  byId("in").addEventListener("click", () => zoomTo(view.scale * 1.5));
  byId("out").addEventListener("click", () => zoomTo(view.scale / 1.5));
  byId("fit").addEventListener("click", () => zoomTo(view.fit));
  // A pinch on a touchpad arrives as a wheel with ctrl.
  const onWheel = (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoomTo(view.scale * Math.exp(-event.deltaY / 200), event.clientX - scroller.getBoundingClientRect().left);
  };
  scroller.addEventListener("wheel", onWheel, { passive: false });
}
