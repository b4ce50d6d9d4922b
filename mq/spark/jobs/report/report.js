"use strict";
// The page is whole without this: it reads values off the pictures' own tables of figures, sorts
// and filters the overview, and unfolds the queue that a link leads to.
(() => {
  const all = (selector, within = document) => Array.from(within.querySelectorAll(selector));
  const make = (name, set = {}, ...children) => {
    const made = Object.assign(document.createElement(name), set);
    made.append(...children);
    return made;
  };

  // Reading a picture: by pointer, or with the arrow keys where it has the focus.
  const rowsOf = (figure) => all("tr[data-x]", figure);
  const cursors = new Map();
  const nearest = (rows, place) => {
    let best = 0;
    rows.forEach((row, index) => {
      const far = (other) => Math.abs(rows[other].dataset.x - place);
      if (far(index) < far(best)) best = index;
    });
    return best;
  };

  for (const figure of all("figure.chart")) {
    const rows = rowsOf(figure);
    const frame = figure.querySelector(".frame");
    if (!rows.length) continue;
    const heads = all("thead th", figure).map((cell) => cell.textContent);
    const cursor = make("i", { className: "cursor", hidden: true });
    const tip = make("div", { className: "tip", hidden: true });
    const reader = make("div", { className: "reader", tabIndex: 0 }, cursor, tip);
    let current = -1;

    const set = (name, value) => reader.setAttribute(name, value);
    set("role", "slider");
    set("aria-label", figure.dataset.name + ": values over time");
    set("aria-valuemin", 0);
    set("aria-valuemax", rows.length - 1);
    set("aria-valuenow", 0);
    set("aria-valuetext", "use the arrow keys");

    const cells = (row) => Array.from(row.cells).map((cell) => cell.textContent);
    const mark = (index) => {
      cursor.hidden = index < 0;
      if (index >= 0) cursor.style.left = rows[index].dataset.x / 10 + "%";
    };
    const show = (index) => {
      current = index;
      const [when, ...values] = cells(rows[index]);
      const lines = values.map((value, i) =>
        make("span", {}, make("i", { textContent: heads[i + 1] }), make("b", { textContent: value })));
      tip.replaceChildren(make("b", { textContent: when }), ...lines);
      tip.hidden = false;
      // Beside the cursor, on the side that has room; over it where neither has.
      const place = rows[index].dataset.x;
      const width = reader.clientWidth;
      const at = (width * place) / 1000;
      const left = at + 10 + tip.offsetWidth > width ? at - 10 - tip.offsetWidth : at + 10;
      tip.style.left = Math.max(left, Math.min(0, width - tip.offsetWidth)) + "px";
      set("aria-valuenow", index);
      set("aria-valuetext", when + ": " + values.map((v, i) => heads[i + 1] + " " + v).join(", "));
      for (const other of cursors.get(figure.parentElement)) other(place);
    };
    const leave = () => {
      tip.hidden = true;
      for (const other of cursors.get(figure.parentElement)) other(null);
    };

    if (!cursors.has(figure.parentElement)) cursors.set(figure.parentElement, []);
    cursors.get(figure.parentElement).push((place) =>
      mark(place === null ? -1 : nearest(rows, place)));

    reader.addEventListener("pointermove", (event) => {
      const box = reader.getBoundingClientRect();
      show(nearest(rows, (1000 * (event.clientX - box.left)) / box.width));
    });
    reader.addEventListener("pointerleave", leave);
    reader.addEventListener("blur", leave);
    reader.addEventListener("keydown", (event) => {
      const last = rows.length - 1;
      const to = {
        ArrowRight: current + 1, ArrowLeft: current < 0 ? last : current - 1,
        ArrowUp: current + 1, ArrowDown: current - 1,
        PageDown: current - 10, PageUp: current + 10, Home: 0, End: last,
      }[event.key];
      if (event.key === "Escape") leave();
      if (to === undefined) return;
      event.preventDefault();
      show(Math.min(Math.max(to, 0), last));
    });
    frame.append(reader);
  }

  // The overview: sorted by its columns, and filtered by name.
  const table = document.querySelector("table.overview");
  if (table) {
    const body = table.tBodies[0];
    const rows = Array.from(body.rows);
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach((head, column) => {
      const numeric = head.dataset.sort === "number";
      const button = make("button", { type: "button", textContent: head.textContent });
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const before = head.getAttribute("aria-sort");
        const first = numeric ? "descending" : "ascending";
        const other = numeric ? "ascending" : "descending";
        const order = before === first ? other : first;
        heads.forEach((each) => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", order);
        const sign = order === "ascending" ? 1 : -1;
        const value = (row) => row.cells[column].dataset.v;
        const compare = (a, b) => {
          // What is not known is last, in either order.
          if (value(a) === "" || value(b) === "") return (value(a) === "") - (value(b) === "");
          return sign * (numeric ? value(a) - value(b) : value(a).localeCompare(value(b)));
        };
        body.append(...rows.slice().sort(compare));
      });
    });
    if (rows.length > 8) {
      const input = make("input", { type: "search", id: "filter", placeholder: "part of a name" });
      const label = make("label", { htmlFor: "filter", textContent: "Queues named" });
      const told = make("span", { className: "note" });
      told.setAttribute("role", "status");
      input.addEventListener("input", () => {
        const wanted = input.value.trim().toLowerCase();
        const match = (name) => name.toLowerCase().includes(wanted);
        let shown = 0;
        for (const row of rows) {
          row.hidden = !match(row.cells[0].dataset.v);
          shown += row.hidden ? 0 : 1;
        }
        for (const queue of all("details.queue")) {
          queue.hidden = !match(queue.querySelector("h2").textContent);
        }
        told.textContent = wanted ? shown + " of " + rows.length : "";
      });
      table.before(make("div", { className: "filter" }, label, input, told));
    }
  }

  // A link to a folded queue unfolds it; paper has all of them.
  const unfold = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.matches("details")) {
      target.open = true;
      target.scrollIntoView();
    }
  };
  addEventListener("hashchange", unfold);
  unfold();
  addEventListener("beforeprint", () => all("details.queue").forEach((each) => (each.open = true)));
})();
