// The page: selects the view, and keeps it up to date.

import { Problem } from "./api.js";
import { Board } from "./board.js";
import { reason } from "./dialogs.js";
import { Members } from "./members.js";
import { MessageView } from "./message.js";
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
  // A missing token has a banner of its own.
  const isTold = error === null || (error instanceof Problem && error.status === 401);
  const text = isTold ? "" : `${reason(error)}. The figures may be out of date; trying again.`;
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

/** The view of an address, and what the address says of it. */
function viewOf(hash) {
  if (hash === "#/members") return [members, []];
  const message = /^#\/message\/([^/]+)\/(.+)$/.exec(hash);
  if (message) return [new MessageView(watch, decoded(message[1]), decoded(message[2])), []];
  const [name, ...rest] = /^#\/queue\/(.+)$/.exec(hash)?.[1].split("/").map(decoded) ?? [];
  if (!name) return [overview, []];
  return [view?.name === name ? view : new QueueView(board, watch, name), rest];
}

function show({ isFirst = false } = {}) {
  const before = view;
  let rest;
  [view, rest] = viewOf(location.hash);
  for (const link of document.querySelectorAll("nav a")) {
    const isHere = link.hash === (location.hash || "#/");
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (view !== before) main.replaceChildren(view.element);
  view.open?.(rest);
  document.title = view === overview ? "mq" : `${view.title} · mq`;
  view.show();
  // A tab keeps the focus.
  if (!isFirst && view !== before) view.heading.focus();
  watch.anew();
}

document.getElementById("skip").addEventListener("click", () => main.focus());
window.addEventListener("hashchange", () => show());
window.addEventListener("resize", () => view.show());
watchToken(() => {
  board.clear();
  view = null;
  show();
});
show({ isFirst: true });
