// What is told of the chosen node: its facts, its relatives, its text.

const PROMPTED = { 2: "by the aggressive prompt", 3: "an extract, made without a model's answer" };

function showDetails() {
  const panel = byId("details");
  byId("nothing").hidden = Boolean(chosen);
  byId("node").hidden = !chosen;
  panel.classList.toggle("open", Boolean(chosen));
  const parts = chosen ? [headOf(chosen), factsOf(chosen), textOf(chosen), ...relativesOf(chosen)] : [];
  byId("node").replaceChildren(...parts);
  panel.scrollTop = 0;
}

function headOf(node) {
  const head = make("div", "head");
  head.append(make("h2", "", `Level ${node.level}, ${messagesOf(node)}`));
  const close = make("button", "close", "\u00d7");
  close.type = "button";
  close.setAttribute("aria-label", "Close");
  close.addEventListener("click", () => {
    choose(null);
    scroller.focus();
  });
  head.append(close);
  return head;
}

function factsOf(node) {
  const before = node.parents.reduce((sum, index) => sum + nodes[index].tokens, 0);
  const share = before ? `, ${Math.round((100 * node.tokens) / before)}% of the ${before.toLocaleString("en")} it was made from` : "";
  const own = node.reported === undefined ? "" : `; ${node.reported.toLocaleString("en")} by its writer's count`;
  const facts = [
    ["State", wholeState(node)],
    ["Dates", datesOf(node)],
    ["Tokens", `${node.tokens.toLocaleString("en")} estimated${share}${own}`],
    ["Made", momentText(node.created) + (PROMPTED[node.prompted] ? `, ${PROMPTED[node.prompted]}` : "")],
    ["Model", node.model],
    ["Prompt", node.prompt],
    ["Id", node.id],
  ];
  const list = make("dl", "facts");
  for (const [name, value] of facts) {
    if (value === undefined) continue;
    const told = make("dd", name === "Id" ? "id" : "", value);
    told.dir = "auto";
    list.append(make("dt", "", name), told);
  }
  return list;
}

// Its state at the moment of the replay, since when and why; and what it is today, if that is something else.
function wholeState(node) {
  let told = stateText(node);
  if (node.shown === "retired") {
    told += `, ${momentText(node.retired)}`;
    if (node.replacedBy) told += `, replaced by ${node.replacedBy}`;
  }
  if (node.shown === "dismissed") told += `, ${momentText(node.dismissed)}`;
  if (node.shown === "superseded" && node.by) told += `, by ${node.by}`;
  const now = stateText(node, node.state);
  return now === stateText(node) ? told : `${told} at that moment; now ${now}`;
}

function textOf(node) {
  const text = make("div", "text");
  text.tabIndex = 0;
  text.dir = "auto";
  appendVisible(text, node.text, search.pattern);
  return text;
}

function relativesOf(node) {
  return [
    ["Folded into", node.children],
    ["Made from", node.parents],
  ]
    .filter(([, indices]) => indices.length)
    .map(([name, indices]) => {
      const part = make("section", "relatives");
      const list = make("ul");
      for (const index of indices) {
        const item = make("li");
        const button = make("button", nodes[index].shown, `${messagesOf(nodes[index])}, ${count(nodes[index].tokens, "token")}`);
        button.type = "button";
        button.append(make("span", "state", stateText(nodes[index])));
        button.addEventListener("click", () => choose(nodes[index]));
        item.append(button);
        list.append(item);
      }
      part.append(make("h3", "", name), list);
      return part;
    });
}
