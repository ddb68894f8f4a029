// Where the nodes stand: across by message numbers, upwards by level, and in lanes where nodes of one level overlap.

const MOST_LANES = 8; // beyond that they lie over each other
const SIGN_ROOM = 30; // above a bar, for its number and its sign
const EDGE_ROOM = 34; // between the levels
const AXIS_ROOM = 46;

const middle = (numbers) => [...numbers].sort((a, b) => a - b)[numbers.length >> 1];

// Message numbers are shown to scale, but what is out of all proportion to a usual snapshot is drawn shorter: a gap in the
// numbers must not press everything else into one pixel.
function scaleOfMessages() {
  for (const node of nodes) [node.start, node.end] = [Number(node.from), Number(node.to) + 1];
  const snapshots = nodes.filter((node) => node.level === 1);
  const lengths = (snapshots.length ? snapshots : nodes).map((node) => node.end - node.start);
  const usual = Math.max(1, middle(lengths) || 1);
  const opening = new Map();
  for (const node of nodes) {
    opening.set(node.start, (opening.get(node.start) || 0) + 1);
    opening.set(node.end, (opening.get(node.end) || 0) - 1);
  }
  const placeOf = new Map();
  let [place, open, last] = [0, 0, null];
  for (const message of [...opening.keys()].sort((a, b) => a - b)) {
    if (last !== null) place += lengthDrawn(message - last, usual, open > 0);
    placeOf.set(message, place);
    open += opening.get(message);
    last = message;
  }
  for (const node of nodes) [node.start, node.end] = [placeOf.get(node.start), placeOf.get(node.end)];
  return { width: Math.max(place, 1), usual };
}

function lengthDrawn(messages, usual, covered) {
  if (!covered) return Math.min(messages, usual);
  const most = 4 * usual;
  return messages <= most ? messages : most + usual * Math.log2(messages / most);
}

// First fit: in the order of their starts, each into the first lane that is free. Retired nodes have lanes of their own, above.
function fillLanes(level) {
  const lanes = [];
  for (const retired of [false, true]) {
    const own = [];
    for (const node of level.filter((one) => (one.state === "retired") === retired).sort((a, b) => a.start - b.start)) {
      let lane = own.findIndex((one) => one.end <= node.start);
      if (lane < 0) lane = own.length < MOST_LANES ? own.push({ end: 0, nodes: [] }) - 1 : own.length - 1;
      own[lane].end = Math.max(own[lane].end, node.end);
      own[lane].nodes.push(node);
    }
    lanes.push(...own);
  }
  return lanes;
}

function makeRows() {
  const levels = new Map();
  for (const node of nodes) levels.has(node.level) ? levels.get(node.level).push(node) : levels.set(node.level, [node]);
  return [...levels].sort(([a], [b]) => b - a).map(([level, own]) => ({ level, lanes: fillLanes(own) }));
}

// Bars are as high as the square root of their tokens: snapshots stay readable beside summaries of many times their size. The
// few that are far above all others are cut, and show it.
function scaleOfTokens() {
  const sorted = nodes.map((node) => node.tokens).sort((a, b) => a - b);
  const largest = sorted.at(-1) || 1;
  const usualMost = sorted[Math.floor(sorted.length * 0.98)] || 1;
  return largest > 1.5 * usualMost ? 1.2 * usualMost : largest;
}

const { width: unitsWide, usual: usualUnits } = scaleOfMessages();
const rows = makeRows();
const mostTokens = Math.max(1, scaleOfTokens());

// Sets top and bottom of each lane, and the height of each node; returns the height of all.
function placeRows(barHeight) {
  let y = 4;
  for (const row of rows) {
    row.top = y;
    for (const lane of [...row.lanes].reverse()) {
      lane.top = y;
      y += SIGN_ROOM + barHeight;
      lane.bottom = y;
      for (const node of lane.nodes) {
        node.lane = lane;
        node.height = Math.max(4, Math.sqrt(Math.min(1, node.tokens / mostTokens)) * barHeight);
      }
    }
    row.bottom = y;
    y += EDGE_ROOM;
  }
  return y - EDGE_ROOM + AXIS_ROOM;
}
