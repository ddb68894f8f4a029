// The nodes, and what each was at every step of the session's history. Step 0 is before the first node; with each moment at
// which something was written, dismissed or retired comes one step more.

const { session, nodes } = JSON.parse(byId("data").textContent);

const moments = [
  ...new Set(nodes.flatMap((node) => [node.created, node.dismissed, node.retired, ...node.covered.flat()])),
]
  .filter(Boolean)
  .sort(); // texts of one form, to the microsecond: their order is that of time
const lastStep = moments.length;

function prepareNodes() {
  const stepOf = new Map(moments.map((moment, index) => [moment, index + 1]));
  const at = (moment) => (moment ? stepOf.get(moment) : Infinity);
  nodes.forEach((node, index) => {
    node.index = index;
    node.children = [];
    node.steps = {
      created: at(node.created),
      dismissed: at(node.dismissed),
      retired: at(node.retired),
      covered: node.covered.map(([from, until]) => [at(from), at(until)]),
    };
  });
  for (const node of nodes) for (const parent of node.parents) nodes[parent].children.push(node.index);
}

function stateAt({ steps }, step) {
  if (step < steps.created) return "unborn";
  if (step >= steps.retired) return "retired";
  if (steps.covered.some(([from, until]) => from <= step && step < until)) return "superseded";
  return step >= steps.dismissed ? "dismissed" : "active";
}

const isActive = (state) => state === "active" || state === "dismissed";

// For each step: how many nodes were active, their tokens, and those of all snapshots. Summed up from the changes, so that the
// work grows with the nodes and not with nodes times steps.
function totalsBySteps() {
  const totals = Array.from({ length: lastStep + 1 }, () => ({ active: 0, tokens: 0, snapshots: 0 }));
  for (const node of nodes) {
    const { created, dismissed, retired, covered } = node.steps;
    const changes = [...new Set([created, dismissed, retired, ...covered.flat()])].filter(Number.isFinite);
    let [wasActive, wasCounted] = [0, 0];
    for (const step of changes.sort((a, b) => a - b)) {
      const state = stateAt(node, step);
      const active = Number(isActive(state));
      const counted = Number(node.level === 1 && state !== "retired" && state !== "unborn");
      totals[step].active += active - wasActive;
      totals[step].tokens += (active - wasActive) * node.tokens;
      totals[step].snapshots += (counted - wasCounted) * node.tokens;
      [wasActive, wasCounted] = [active, counted];
    }
  }
  for (let step = 1; step <= lastStep; step += 1)
    for (const key of ["active", "tokens", "snapshots"]) totals[step][key] += totals[step - 1][key];
  return totals;
}

prepareNodes();
const totals = totalsBySteps();
