// The page: which view is shown, and that it is kept up to date.

import { Problem } from "./api.js";
import { Board } from "./board.js";
import { reason } from "./dialogs.js";
import { Members } from "./members.js";
import { Overview } from "./overview.js";
import { QueueView } from "./queue.js";
import { watchToken } from "./token.js";
import { Watch } from "./watching.js";

const main = document.getElementById("main");
const lost = document.getElementById("lost");
const board = new Board();
let view = null;

const watch = new Watch((signal) => view.look(signal), tell);
const overview = new Overview(board, watch);
const members = new Members();

function tell(error) {
  // Who is not known is told elsewhere.
  const isTold = error === null || (error instanceof Problem && error.status === 401);
  const text = isTold ? "" : `${reason(error)}. What is shown is what was seen last; trying again.`;
  if (lost.textContent !== text) lost.textContent = text;
  lost.hidden = isTold;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function viewOf(hash) {
  if (hash === "#/members") return members;
  const found = /^#\/queue\/(.+)$/.exec(hash);
  if (!found) return overview;
  return new QueueView(board, watch, decoded(found[1]));
}

function show({ isFirst = false } = {}) {
  view = viewOf(location.hash);
  document.title = view === overview ? "mq" : `${view.title} · mq`;
  for (const link of document.querySelectorAll("nav a")) {
    const isHere = link.hash === (location.hash || "#/");
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.replaceChildren(view.element);
  view.open?.();
  view.show();
  if (!isFirst) view.heading.focus();
  watch.anew();
}

document.getElementById("skip").addEventListener("click", () => main.focus());
window.addEventListener("hashchange", () => show());
window.addEventListener("resize", () => view.show());
watchToken(() => {
  board.clear();
  show();
});
show({ isFirst: true });
