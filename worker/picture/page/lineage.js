// The node that the keys are at, the node that was chosen, and what belongs to it: all that it was made from, and into what it
// was folded.

let current = null;
let chosen = null;
const lit = new Set(); // indices

function lineageOf(node) {
  const found = new Set([node.index]);
  for (const direction of ["parents", "children"]) {
    const waiting = [node.index];
    while (waiting.length) {
      for (const index of nodes[waiting.pop()][direction]) {
        if (found.has(index)) continue;
        found.add(index);
        waiting.push(index);
      }
    }
  }
  return found;
}

function lightUp(node) {
  for (const index of lit) nodes[index].group.classList.remove("lit");
  lit.clear();
  if (node) for (const index of lineageOf(node)) lit.add(index);
  for (const index of lit) nodes[index].group.classList.add("lit");
  picture.classList.toggle("lighting", Boolean(node));
  drawEdges();
}

// The frames around the node that the keys are at and the chosen one: bars of a pixel would show none of their own.
function placeMarks() {
  for (const [id, node, room] of [["chosen", chosen, 2.5], ["ring", current, 5]]) {
    const frame = byId(id);
    frame.classList.toggle("hidden", !node);
    if (!node) continue;
    const { left, width, top, height } = barOf(node);
    const values = { x: left - room, y: top - room, width: width + 2 * room, height: height + 2 * room };
    for (const [name, value] of Object.entries(values)) frame.setAttribute(name, value.toFixed(1));
  }
}

function moveTo(node) {
  current = node;
  if (node) {
    scroller.setAttribute("aria-activedescendant", node.group.id);
    reveal(node);
  } else scroller.removeAttribute("aria-activedescendant");
  placeMarks();
}

function reveal(node) {
  const { left, width } = barOf(node);
  const [seenFrom, seen] = [scroller.scrollLeft, scroller.clientWidth];
  if (left >= seenFrom + 8 && left + width <= seenFrom + seen - 8) return;
  scroller.scrollTo({ left: left + width / 2 - seen / 2, behavior: calm() ? "auto" : "smooth" });
}

// On a phone the details lie over the lower half: the node's level is brought into the upper one.
function bringAboveSheet(node) {
  const top = picture.getBoundingClientRect().top + node.lane.bottom;
  const free = byId("details").getBoundingClientRect().top;
  if (top > free - 8 || top < 40)
    window.scrollBy({ top: top - free + AXIS_ROOM + 12, behavior: calm() ? "auto" : "smooth" });
}

const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

function choose(node) {
  chosen?.group.setAttribute("aria-selected", "false");
  chosen = node;
  chosen?.group.setAttribute("aria-selected", "true");
  if (node?.shown === "unborn") goToStep(lastStep); // found by the search, or named as a relative
  lightUp(node);
  if (node) moveTo(node);
  placeMarks();
  showDetails();
  byId("told").textContent = node ? described(node) : "";
  if (node && narrow()) bringAboveSheet(node);
}
