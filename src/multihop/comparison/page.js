document.documentElement.classList.add("js");

// Links to traces open them.
const open = () => {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target && target.tagName === "DETAILS") { target.open = true; target.scrollIntoView(); }
};
addEventListener("hashchange", open);
open();
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#q"]');
  if (link && link.hash === location.hash) open();
});

for (const button of document.querySelectorAll("button[data-fold]")) {
  button.addEventListener("click", () => {
    for (const each of document.querySelectorAll("details.question")) each.open = button.dataset.fold === "open";
  });
}

// The table of all questions: sorted by its heads, filtered by its controls.
const table = document.getElementById("all");
if (table) {
  const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  for (const [column, head] of heads.entries()) {
    head.querySelector("button")?.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const each of heads) each.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => row.cells[column].dataset.v ?? row.cells[column].textContent;
      const order = (a, b) => {
        const [x, y] = [key(a), key(b)], n = x - y;
        return (Number.isNaN(n) ? x.localeCompare(y) : n) * (down ? -1 : 1);
      };
      body.append(...rows.sort(order));
    });
  }
  const words = document.getElementById("f-words"), kind = document.getElementById("f-kind");
  const outcome = document.getElementById("f-outcome"), said = document.getElementById("f-said");
  const filter = () => {
    const wanted = words.value.toLowerCase();
    let count = 0;
    for (const row of rows) {
      const has = (value, list) => !value || (list ?? "").split(" ").includes(value);
      const shown = (!wanted || row.textContent.toLowerCase().includes(wanted))
        && (!kind || !kind.value || row.dataset.kind === kind.value)
        && has(outcome.value, row.dataset.outcome);
      row.hidden = !shown;
      count += shown;
    }
    said.textContent = `${count} of ${rows.length} questions`;
  };
  for (const each of [words, kind, outcome]) each?.addEventListener("input", filter);
  filter();
}
