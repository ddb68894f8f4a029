// The replay: the slider over the steps of the history, its curve, and the line that tells the totals of the moment.

const PLAY_SECONDS = 12;
const CALM_STEPS = 12; // for who wants no motion: so many still pictures, a second each
let playing = null;

function goToStep(step) {
  const now = Math.max(0, Math.min(lastStep, Math.round(step)));
  const slider = byId("step");
  slider.value = String(now);
  const { active, tokens, snapshots } = totals[now];
  const share = snapshots ? ` (${Math.round((100 * tokens) / snapshots)}%)` : "";
  const told = `${count(active, "active node")}, ${count(tokens, "token")} of ${snapshots.toLocaleString("en")} in all snapshots${share}`;
  const when = now ? momentText(moments[now - 1]) : "before the first node";
  byId("when").textContent = when;
  byId("totals").textContent = told;
  slider.setAttribute("aria-valuetext", `${when}: ${told}`);
  slider.style.setProperty("--done", lastStep ? String(now / lastStep) : "1");
  showStep(now);
  if (chosen) showDetails();
}

function play() {
  if (playing) return stop();
  const first = view.step >= lastStep ? 0 : view.step;
  const began = performance.now();
  const duration = Math.max(1, (PLAY_SECONDS * 1000 * (lastStep - first)) / Math.max(1, lastStep));
  const next = () => {
    const share = Math.min(1, (performance.now() - began) / duration);
    const told = calm() ? Math.floor(share * CALM_STEPS) / CALM_STEPS : share;
    const step = Math.round(first + told * (lastStep - first));
    if (step !== view.step) goToStep(step);
    if (share === 1) stop();
  };
  playing = setInterval(next, 40);
  goToStep(first);
  return showPlaying();
}

function stop() {
  clearInterval(playing);
  playing = null;
  showPlaying();
}

function showPlaying() {
  byId("play").classList.toggle("playing", Boolean(playing));
  byId("play").setAttribute("aria-label", playing ? "Pause" : "Play how memory was made");
  byId("totals").setAttribute("role", playing ? "none" : "status"); // not every step of a play is to be read out
}

// The tokens of all snapshots and those that were active, step by step.
function drawCurve() {
  const most = totals.reduce((so, one) => Math.max(so, one.snapshots, one.tokens), 1);
  const area = (key) =>
    `M0 100${totals.map((one, step) => `L${step} ${(100 - (96 * one[key]) / most).toFixed(1)}`).join("")}L${lastStep} 100Z`;
  byId("spark").setAttribute("viewBox", `0 0 ${Math.max(1, lastStep)} 100`);
  byId("spark-all").setAttribute("d", area("snapshots"));
  byId("spark-active").setAttribute("d", area("tokens"));
}

function listenToReplay() {
  const slider = byId("step");
  slider.max = String(lastStep);
  slider.addEventListener("input", () => {
    if (playing) stop();
    goToStep(Number(slider.value));
  });
  byId("play").addEventListener("click", play);
  drawCurve();
}
