// The search: which nodes hold the words, in the order of the messages, and going from one to the next.

const search = { pattern: null, matches: [], at: -1 };

const quoted = (text) => text.replace(/[\\^$.*+?()[\]{}|\/-]/g, (sign) => (sign === "-" ? "\\x2d" : `\\${sign}`));

function find() {
  const words = byId("query").value.trim();
  search.pattern = words ? new RegExp(quoted(words), "giu") : null;
  for (const node of search.matches) node.group.classList.remove("match");
  const holds = (text) => text.search(search.pattern) >= 0; // unlike test, it begins anew each time
  search.matches = words ? nodes.filter((node) => holds(node.text) || holds(node.id)) : [];
  search.matches.sort((a, b) => a.start - b.start || b.level - a.level);
  for (const node of search.matches) node.group.classList.add("match");
  picture.classList.toggle("searching", Boolean(words));
  search.at = -1;
  tellFound();
}

function tellFound() {
  const { matches, at, pattern } = search;
  const number = matches.length.toLocaleString("en");
  const told = at < 0 ? count(matches.length, "match").replace("matchs", "matches") : `${at + 1} of ${number}`;
  byId("found").textContent = pattern ? told : "";
  byId("next").disabled = byId("previous").disabled = !matches.length;
}

function goToMatch(by) {
  const { matches } = search;
  if (!matches.length) return;
  search.at = search.at < 0 && by < 0 ? matches.length - 1 : (search.at + by + matches.length) % matches.length;
  choose(matches[search.at]);
  tellFound();
}

function listenToSearch() {
  const query = byId("query");
  query.addEventListener("input", () => {
    find();
    if (chosen) showDetails();
  });
  query.addEventListener("keydown", (event) => {
    if (event.key === "Enter") goToMatch(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") {
      if (query.value) {
        query.value = "";
        query.dispatchEvent(new Event("input"));
      } else scroller.focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
  byId("next").addEventListener("click", () => goToMatch(1));
  byId("previous").addEventListener("click", () => goToMatch(-1));
}
