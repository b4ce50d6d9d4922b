// All queues: some of their names at a time, each with its figures.

import * as api from "./api.js";
import { FIGURES } from "./board.js";
import { spark } from "./charts.js";
import { attempt, reason } from "./dialogs.js";
import { button, element, field, write } from "./elements.js";
import { age, rate } from "./format.js";
import { each } from "./watching.js";

const SHOWN = 25;
const ASKED_AT_A_TIME = 4;
const HEADS = ["Queue", "Ready", "In flight", "Delayed", "Sidelined", "Oldest ready", "In /s", "Out /s", "In and out"];

/** A queue's row; it stays the same element while the queue is shown, so that the focus does too. */
class Row {
  constructor(name) {
    const link = element("a", { href: `#/queue/${encodeURIComponent(name)}` }, name);
    this.figures = Object.fromEntries(
      [...FIGURES, "oldest", "in", "out"].map((figure) => [figure, element("span", { "data-field": figure }, "–")]),
    );
    this.trend = element("td", { class: "trend", "data-label": HEADS.at(-1) });
    this.note = element("span", { class: "note" });
    const cells = Object.values(this.figures).map((figure, at) =>
      element("td", { class: "figure", "data-label": HEADS[at + 1] }, figure));
    this.element = element("tr", { "data-queue": name },
      element("th", { scope: "row" }, link, this.note), ...cells, this.trend);
  }

  show(seen) {
    if (!seen) return;
    write(this.note, seen.problem ? reason(seen.problem) : seen.latest?.expired ? "expired" : "");
    if (!seen.latest) return;
    for (const figure of FIGURES) write(this.figures[figure], seen.latest[figure]);
    write(this.figures.oldest, age(seen.latest.oldest_ready_age_s));
    write(this.figures.in, rate(seen.rates.in));
    write(this.figures.out, rate(seen.rates.out));
    this.trend.replaceChildren(spark(seen.samples, ["in", "out"]));
  }
}

export class Overview {
  title = "Queues";
  #board;
  #rows = new Map();
  #begin = 0;
  #body = element("tbody");
  #count = element("p", { class: "hint", "aria-live": "polite" });
  #note = element("p", { class: "hint" });
  #filter = element("input", { type: "search", autocomplete: "off", spellcheck: "false" });
  #previous = button("Previous", () => this.#turn(-SHOWN));
  #next = button("Next", () => this.#turn(SHOWN));

  constructor(board, watch) {
    this.#board = board;
    this.watch = watch;
    this.#filter.addEventListener("input", () => {
      this.#begin = 0;
      this.show();
      this.watch.anew();
    });
    this.heading = element("h1", { tabindex: "-1" }, this.title);
    this.element = element("section", { "aria-label": this.title },
      this.heading,
      element("div", { class: "bar" }, field("Filter by name", this.#filter), this.#creating()),
      element("table", { class: "blocks", "aria-label": "Queues" },
        element("thead", {}, element("tr", {}, ...HEADS.map((head) => element("th", { scope: "col" }, head)))),
        this.#body),
      element("div", { class: "bar" }, this.#previous, this.#next, this.#count),
      this.#note);
  }

  #creating() {
    const name = element("input", { type: "text", autocomplete: "off", spellcheck: "false", required: true });
    return element("form", {
      class: "inline",
      onsubmit: async (event) => {
        event.preventDefault();
        const wanted = name.value.trim();
        if (await attempt(() => api.create(wanted), `The queue ${wanted} is there.`)) name.value = "";
        this.watch.soon();
      },
    }, field("New queue", name), button("Make", null, { type: "submit" }));
  }

  #turn(by) {
    this.#begin += by;
    this.show();
    this.watch.anew();
  }

  #matching() {
    const text = this.#filter.value.trim().toLowerCase();
    return text ? this.#board.names.filter((name) => name.toLowerCase().includes(text)) : this.#board.names;
  }

  async look(signal) {
    this.#board.list(await api.list(this.#board.after, signal));
    this.show();
    await each(this.#shown(this.#matching()), ASKED_AT_A_TIME, async (name) => {
      await see(this.#board, name, signal);
      this.#rows.get(name)?.show(this.#board.seen(name));
    });
    this.show();
  }

  #shown(matching) {
    const last = Math.max(0, Math.ceil(matching.length / SHOWN) - 1) * SHOWN;
    this.#begin = Math.min(Math.max(0, this.#begin), last);
    return matching.slice(this.#begin, this.#begin + SHOWN);
  }

  show() {
    const matching = this.#matching();
    const shown = this.#shown(matching);
    const kept = new Map(shown.map((name) => [name, this.#rows.get(name) ?? new Row(name)]));
    for (const [name, row] of this.#rows) if (!kept.has(name)) row.element.remove();
    this.#rows = kept;
    let at = 0;
    for (const [name, row] of kept) {
      row.show(this.#board.seen(name));
      if (this.#body.children[at] !== row.element) this.#body.insertBefore(row.element, this.#body.children[at] ?? null);
      at += 1;
    }
    this.#tell(matching.length, shown.length);
  }

  #tell(found, shown) {
    this.#previous.disabled = this.#begin === 0;
    this.#next.disabled = this.#begin + shown >= found;
    const reading = this.#board.isWhole ? "" : ", the list is still being read";
    const none = this.#board.isWhole && found === 0 ? "No queue" : `0 queues`;
    write(this.#count, found ? `${this.#begin + 1} to ${this.#begin + shown} of ${found}${reading}` : none + reading);
    write(this.#note, told([...this.#rows.keys()].map((name) => this.#board.seen(name))));
  }
}

/** What rates are of: said, since it is not everything. */
export function told(all) {
  const known = all.filter((seen) => seen?.latest);
  const processes = Math.max(1, ...known.map((seen) => seen.latest.process.of));
  // Of the queue of which the fewest are known: no rate is said to be of more than it is.
  const counted = Math.min(processes, ...known.map((seen) => seen.rates.counted));
  const whose = processes > 1 ? `at least ${counted} of the ${processes} processes that answer` : "the process that answers";
  return `Counts are of the whole root, at most some seconds old. Rates are what ${whose} at this address published and fetched, sampled while this page is seen; another mq on the same root has its own.`;
}

/** Asks what a queue is like; a refusal is the queue's. The problem where there is none of that name,
 * else null. Throws Lost, and what ends a look. */
export async function see(board, name, signal) {
  try {
    board.take(name, await api.describe(name, signal), Date.now());
  } catch (error) {
    if (!(error instanceof api.Problem) || error.status === 401) throw error;
    if (error.slug !== "queue-not-found") board.refused(name, error);
    else {
      board.forget(name);
      return error;
    }
  }
  return null;
}
