// The drawing: a bar for each node, the edges between them, the axis below; and its zoom.

const PADDING = 14;
const MOST_PIXELS = 200_000; // browsers draw no picture of any width
const scroller = byId("scroller");
const picture = byId("picture");
const view = { scale: 1, fit: 1, step: lastStep, height: 0 };

const xOf = (units) => PADDING + units * view.scale;

function barOf(node) {
  const left = xOf(node.start);
  const whole = xOf(node.end) - left;
  const gap = whole > 8 ? 2 : whole > 3 ? 1 : 0;
  return { left: left + gap / 2, width: Math.max(1, whole - gap), top: node.lane.bottom - node.height, height: node.height };
}

function drawNodes() {
  for (const node of nodes) {
    node.group = makeSvg("g", { id: `n${node.index}`, role: "option", "aria-selected": "false" });
    node.bar = makeSvg("rect", { class: "fill" });
    node.group.append(node.bar);
    if (node.tokens > mostTokens) node.cut = node.group.appendChild(makeSvg("path", { class: "cut" }));
    node.sign = node.group.appendChild(makeSvg("path", { class: "sign" }));
    byId("nodes").append(node.group);
  }
}

// Where each node is drawn. Signs and numbers are put into the middle of their bar.
function placeNodes() {
  for (const node of nodes) {
    const { left, width, top, height } = barOf(node);
    node.group.setAttribute("transform", `translate(${left.toFixed(2)} ${top.toFixed(1)})`);
    node.bar.setAttribute("width", width.toFixed(2));
    node.bar.setAttribute("height", height.toFixed(1));
    node.bar.setAttribute("rx", width > 6 ? 2 : 0);
    node.cut?.setAttribute("d", `M0 9 l${width / 4} -4 l${width / 4} 4 l${width / 4} -4 l${width / 4} 4`);
    node.center = width / 2;
    const tokens = grouped(String(node.tokens));
    const fits = width >= 9 + 6.6 * tokens.length;
    if (fits && !node.label) {
      node.label = node.group.appendChild(makeSvg("text", { y: -5 }));
      node.label.textContent = tokens;
    }
    if (node.label) {
      node.label.setAttribute("x", node.center.toFixed(1));
      node.label.classList.toggle("hidden", !fits);
    }
    node.sign.setAttribute("transform", `translate(${node.center.toFixed(1)} ${fits ? -23 : -9})`);
  }
}

const STATES = ["active", "superseded", "dismissed", "retired", "unborn"];
const SIGNS = {
  retired: "M-3.5 -3.5 L3.5 3.5 M-3.5 3.5 L3.5 -3.5",
  dismissed: "M-3.5 0 a3.5 3.5 0 1 0 7 0 a3.5 3.5 0 1 0 -7 0",
  degraded: "M0 -4 L4.2 3.5 L-4.2 3.5 Z",
};

// Gives each node the look of its state at the step. Only what changed is touched.
function showStep(step) {
  view.step = step;
  for (const node of nodes) {
    const state = stateAt(node, step);
    if (state === node.shown) continue;
    node.shown = state;
    const degraded = Boolean(node.degraded) && state === "active";
    for (const name of STATES) node.group.classList.remove(name);
    node.group.classList.remove("node", "degraded");
    const others = [...node.group.classList]; // lit, match
    node.group.setAttribute("class", [state, "node", ...(degraded ? ["degraded"] : []), ...others].join(" "));
    const sign = state === "retired" || state === "dismissed" ? SIGNS[state] : degraded ? SIGNS.degraded : "";
    node.sign.setAttribute("d", sign);
    node.group.setAttribute("aria-label", described(node));
  }
  drawEdges();
}

function stateText(node, state = node.shown) {
  if (state === "dismissed") return `active, dismissed (${node.dismissedWhy})${node.degraded ? ", degraded" : ""}`;
  if (state === "retired") return `retired (${node.retiredWhy})`;
  if (state === "unborn") return "not yet written";
  return state === "active" && node.degraded ? "active, degraded" : state;
}

function described(node) {
  return `Level ${node.level}, ${messagesOf(node)}, ${count(node.tokens, "token")}, ${stateText(node)}`;
}

function edgePath(parent, child) {
  const [from, to] = [barOf(parent), barOf(child)];
  const x = from.left + from.width / 2;
  const y = from.top - (parent.label && !parent.label.classList.contains("hidden") ? 17 : 2);
  const bottom = child.lane.bottom + 1;
  // Towards the child's middle, spread over a part of it, so that five edges are told from one.
  const end = to.left + to.width / 2 + (x - to.left - to.width / 2) * 0.35;
  const half = (y + bottom) / 2;
  return `M${x.toFixed(1)} ${y.toFixed(1)}C${x.toFixed(1)} ${half.toFixed(1)} ${end.toFixed(1)} ${half.toFixed(1)} ${end.toFixed(1)} ${bottom}`;
}

function drawEdges() {
  const paths = { edges: [], "edges-retired": [], "edges-lit": [] };
  for (const child of nodes) {
    if (child.shown === "unborn") continue;
    for (const index of child.parents) {
      const path = edgePath(nodes[index], child);
      paths[child.shown === "retired" ? "edges-retired" : "edges"].push(path);
      if (lit.has(child.index) && lit.has(index)) paths["edges-lit"].push(path);
    }
  }
  for (const [id, parts] of Object.entries(paths)) byId(id).setAttribute("d", parts.join(""));
  // Edges closer than a few pixels would run into one dark field.
  const apart = (unitsWide * view.scale) / Math.max(1, paths.edges.length);
  byId("edges").setAttribute("stroke-opacity", Math.max(0.3, Math.min(1, apart / 5)).toFixed(2));
}

// A tick where a snapshot begins, as often as there is room: its first message and, where it is known, its date.
function drawAxis() {
  const y = view.height - AXIS_ROOM + 8;
  const ticks = [makeSvg("line", { x1: 0, x2: picture.getAttribute("width"), y1: y, y2: y })];
  let free = -Infinity;
  const lowest = rows.at(-1)?.level;
  for (const node of nodes.filter((one) => one.level === lowest).sort((a, b) => a.start - b.start)) {
    const x = xOf(node.start);
    if (x < free) continue;
    free = x + 24 + 7 * Math.max(node.from.length * 1.3, node.started ? 10 : 0);
    if (free - 24 > xOf(unitsWide) + PADDING && x > PADDING) break;
    ticks.push(makeSvg("line", { x1: x, x2: x, y1: y, y2: y + 6 }));
    for (const [line, text] of [grouped(node.from), node.started?.slice(0, 10)].entries()) {
      if (!text) continue;
      const label = makeSvg("text", { x: x - (x > PADDING ? 0 : 2), y: y + 18 + 14 * line, class: line ? "date" : "" });
      label.textContent = text;
      ticks.push(label);
    }
  }
  byId("axis").replaceChildren(...ticks);
}

function nameLevels() {
  byId("levels").replaceChildren(
    ...rows.map((row) => {
      const name = make("div", "level", `Level ${row.level}`);
      name.style.top = `${row.bottom - 18}px`;
      return name;
    }),
  );
}

const narrow = () => matchMedia("(max-width: 640px)").matches;

// As high as the window allows, so that few levels are not lost on a large screen and many fit on a small one.
function measure() {
  const lanes = rows.reduce((sum, row) => sum + row.lanes.length, 0) || 1;
  // On a phone the sheet with the details takes the lower half.
  const most = narrow() ? window.innerHeight * 0.46 - AXIS_ROOM : window.innerHeight - 356;
  const room = most - rows.length * EDGE_ROOM - lanes * SIGN_ROOM;
  view.height = placeRows(Math.max(narrow() ? 30 : 44, Math.min(130, room / lanes)));
  const wasFit = view.scale <= view.fit;
  view.fit = Math.min((scroller.clientWidth - 2 * PADDING) / unitsWide, 120 / usualUnits);
  view.scale = wasFit ? view.fit : Math.max(view.scale, view.fit);
  picture.setAttribute("height", view.height);
  nameLevels();
  redraw();
}

function redraw() {
  const width = Math.max(scroller.clientWidth, Math.ceil(unitsWide * view.scale + 2 * PADDING - 0.01));
  picture.setAttribute("width", width);
  placeNodes();
  drawEdges();
  drawAxis();
  placeMarks();
  byId("out").disabled = byId("fit").disabled = view.scale <= view.fit;
  byId("in").disabled = view.scale >= mostScale();
}

const mostScale = () => Math.max(view.fit, Math.min(140 / usualUnits, MOST_PIXELS / unitsWide));

// The middle of what is seen, or the node that the keys are at.
function centreSeen() {
  const x = current && isShown(current) ? xOf(centreOf(current)) - scroller.scrollLeft : -1;
  return x > 0 && x < scroller.clientWidth ? x : scroller.clientWidth / 2;
}

// Keeps what lies at x (pixels from the left of what is seen) where it is.
function zoomTo(scale, x = centreSeen()) {
  const units = (scroller.scrollLeft + x - PADDING) / view.scale;
  view.scale = Math.min(mostScale(), Math.max(view.fit, scale));
  redraw();
  scroller.scrollLeft = xOf(units) - x;
}

function nodeAt(event) {
  const box = picture.getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  const lane = rows.flatMap((row) => row.lanes).find((one) => one.top <= y && y <= one.bottom + 6);
  let [nearest, least] = [null, 12]; // pixels: bars may be thinner than a finger
  for (const node of lane?.nodes || []) {
    if (node.shown === "unborn") continue;
    const { left, width } = barOf(node);
    const distance = Math.max(left - x, x - left - width, 0);
    if (distance < least) [nearest, least] = [node, distance];
  }
  return nearest;
}
