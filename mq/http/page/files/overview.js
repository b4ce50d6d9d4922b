// All queues, trouble first: a table that sorts and filters, and the sums of it.

import * as api from "./api.js";
import { FIGURES, SIDELINE, troubles } from "./board.js";
import { ceiling, spark } from "./charts.js";
import { attempt } from "./dialogs.js";
import { button, element, field, hrefOf, link, write } from "./elements.js";
import { age, clock, rate } from "./format.js";
import { Load } from "./load.js";
import { see, told } from "./seeing.js";
import { each } from "./watching.js";

const SHOWN = 25;
const OTHERS_ASKED = 25;
const ASKED_AT_A_TIME = 4;
const FIELDS = [...FIGURES, "oldest", "in", "out"];
const TITLES = {
  name: "Queue", ready: "Ready", in_flight: "In flight", delayed: "Delayed", sidelined: "Dead letters",
  oldest: "Oldest ready", in: "In /s", out: "Out /s",
};
const TREND = "In and out";
const SUMMED = [...FIGURES, "in", "out"];

function valueOf(seen, figure) {
  if (!seen?.latest) return null;
  if (figure === "oldest") return seen.latest.oldest_ready_age_s;
  return figure in seen.rates ? seen.rates[figure] : seen.latest[figure];
}

/** Writes a figure; zeros are faint. */
function put(node, figure, value) {
  write(node, figure === "oldest" ? age(value) : figure === "in" || figure === "out" ? rate(value) : String(value ?? "–"));
  node.classList.toggle("zero", !value);
}

/** A queue's row: the same element while the queue is shown, so that it keeps the focus. */
class Row {
  constructor(name) {
    this.figures = Object.fromEntries(FIELDS.map((figure) => [figure, element("span", { "data-field": figure }, "–")]));
    this.dead = name.endsWith(SIDELINE) ? null : element("a", { href: hrefOf(name, "dead-letters") });
    this.trend = element("td", { class: "trend", "data-label": TREND });
    this.notes = element("span", { class: "troubles" });
    const cells = FIELDS.map((figure) =>
      element("td", { class: "figure", "data-label": TITLES[figure] }, this.figures[figure]));
    this.element = element("tr", { "data-queue": name },
      element("th", { scope: "row" }, link(name), this.notes), ...cells, this.trend);
  }

  show(seen) {
    if (!seen) return;
    const found = troubles(seen);
    if (this.notes.textContent !== found.map(({ text }) => text).join("")) {
      this.notes.replaceChildren(...found.map(({ is, text }) => element("span", { class: `trouble ${is}` }, text)));
    }
    if (!seen.latest) return;
    for (const figure of FIELDS) {
      const value = valueOf(seen, figure);
      const isLinked = figure === "sidelined" && value > 0 && this.dead;
      if (isLinked && this.dead.parentNode === null) this.figures.sidelined.replaceChildren(this.dead);
      put(isLinked ? this.dead : this.figures[figure], figure, value);
      if (isLinked) this.figures.sidelined.classList.remove("zero");
    }
    const most = ceiling(Math.max(1, ...seen.samples.flatMap((sample) => [sample.in ?? 0, sample.out ?? 0])));
    this.trend.replaceChildren(spark(seen.samples, ["in", "out"], most), element("span", { class: "scale" }, `0–${most}/s`));
  }
}

export class Overview {
  title = "Queues";
  #board;
  #rows = new Map();
  #begin = 0;
  #body = element("tbody");
  #heads = new Map();
  #sums = Object.fromEntries(SUMMED.map((figure) => [figure, element("dd", { "data-sum": figure }, "–")]));
  #sorted = null;
  #isDown = false;
  #others = 0;
  #load = new Load(null, () => this.#turn(0));
  #onlyTrouble = element("input", { type: "checkbox" });
  #covers = element("p", { class: "hint", "data-figure": "covers" });
  #count = element("p", { class: "hint", "aria-live": "polite" });
  #note = element("p", { class: "hint" });
  #filter = element("input", { type: "search", autocomplete: "off", spellcheck: "false" });
  #previous = button("Previous", () => this.#turn(-SHOWN));
  #next = button("Next", () => this.#turn(SHOWN));

  constructor(board, watch) {
    this.#board = board;
    this.watch = watch;
    for (const [control, event] of [[this.#filter, "input"], [this.#onlyTrouble, "change"]]) {
      control.addEventListener(event, () => this.#anew());
    }
    this.heading = element("h1", { tabindex: "-1" }, this.title);
    this.element = element("section", { "aria-label": this.title },
      this.heading,
      element("dl", { class: "figures", "aria-label": "All queues" }, ...SUMMED.map((figure) =>
        element("div", {}, element("dt", {}, TITLES[figure]), this.#sums[figure]))),
      this.#covers,
      this.#load.element,
      element("div", { class: "bar" }, field("Filter by name", this.#filter),
        field("Only with trouble", this.#onlyTrouble), this.#creating()),
      element("table", { class: "blocks queues", "aria-label": "Queues" },
        element("thead", {}, element("tr", {}, ...["name", ...FIELDS].map((figure) => this.#head(figure)),
          element("th", { scope: "col" }, TREND))),
        this.#body),
      element("div", { class: "bar" }, this.#previous, this.#next, this.#count),
      this.#note);
  }

  #head(figure) {
    const sort = () => {
      // Names begin with A, figures with the largest; a third click brings back trouble first.
      const first = figure !== "name";
      if (this.#sorted !== figure) [this.#sorted, this.#isDown] = [figure, first];
      else if (this.#isDown === first) this.#isDown = !first;
      else this.#sorted = null;
      for (const [each, head] of this.#heads) {
        if (each !== this.#sorted) head.removeAttribute("aria-sort");
        else head.setAttribute("aria-sort", this.#isDown ? "descending" : "ascending");
      }
      this.#anew();
    };
    const made = element("th", { scope: "col", class: figure === "name" ? null : "figure" }, button(TITLES[figure], sort, { style: "sort" }));
    this.#heads.set(figure, made);
    return made;
  }

  #anew() {
    this.#begin = 0;
    this.show();
    this.watch.anew();
  }

  #creating() {
    const name = element("input", { type: "text", autocomplete: "off", spellcheck: "false", required: true });
    return element("form", {
      class: "inline",
      onsubmit: async (event) => {
        event.preventDefault();
        const wanted = name.value.trim();
        if (await attempt(() => api.create(wanted), `The queue ${wanted} exists.`)) name.value = "";
        this.watch.soon();
      },
    }, field("New queue", name), button("Create", null, { type: "submit" }));
  }

  #turn(by) {
    this.#begin += by;
    this.show();
    this.watch.anew();
  }

  /** The queues that the filter lets through, in the order of the table. */
  #matching() {
    const text = this.#filter.value.trim().toLowerCase();
    const worst = new Map(this.#board.queues.map((name) => {
      const found = troubles(this.#board.seen(name));
      return [name, found.length ? Math.max(...found.map(({ weight }) => weight)) : 0];
    }));
    const matching = this.#board.queues.filter((name) =>
      name.toLowerCase().includes(text) && (!this.#onlyTrouble.checked || worst.get(name) > 0));
    const sorted = this.#sorted;
    if (sorted === "name") return this.#isDown ? matching.reverse() : matching;
    const weigh = (name) => (sorted === null ? worst.get(name) : valueOf(this.#board.seen(name), sorted) ?? -1);
    const way = sorted === null || this.#isDown ? -1 : 1;
    return matching.map((name) => [weigh(name), name]).sort((a, b) => way * (a[0] - b[0])).map(([, name]) => name);
  }

  async look(signal) {
    this.#board.list(await api.list(this.#board.after, signal));
    await this.#load.look(signal);
    this.show();
    const shown = this.#shown(this.#matching());
    const isShown = new Set(shown);
    const others = this.#board.queues.filter((name) => !isShown.has(name));
    // A share of the others in turn, so that trouble shows wherever it is.
    this.#others = this.#others < others.length ? this.#others : 0;
    const next = others.slice(this.#others, this.#others + OTHERS_ASKED);
    this.#others += next.length;
    await each([...shown, ...next], ASKED_AT_A_TIME, async (name) => {
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
    const focused = document.activeElement;
    for (const [name, row] of kept) {
      row.show(this.#board.seen(name));
      if (this.#body.children[at] !== row.element) this.#body.insertBefore(row.element, this.#body.children[at] ?? null);
      at += 1;
    }
    // A row that moved has lost the focus.
    if (focused !== document.activeElement && this.#body.contains(focused)) focused.focus();
    this.#tell(matching.length, shown.length);
  }

  #tell(found, shown) {
    this.#previous.disabled = this.#begin === 0;
    this.#next.disabled = this.#begin + shown >= found;
    const reading = this.#board.isWhole ? "" : "; still loading";
    const none = this.#board.isWhole && found === 0 ? "No queue" : `0 queues`;
    write(this.#count, found ? `${this.#begin + 1} to ${this.#begin + shown} of ${found}${reading}` : none + reading);
    const all = this.#board.queues.map((name) => this.#board.seen(name)).filter((seen) => seen?.latest);
    // mq samples all queues each minute; a tab that has read all of them knows more.
    const sampled = this.#board.isWhole && all.length === this.#board.queues.length ? null : this.#load.recent;
    for (const figure of SUMMED) {
      const known = all.map((seen) => valueOf(seen, figure)).filter((value) => value !== null);
      const summed = known.length ? known.reduce((sum, value) => sum + value, 0) : null;
      put(this.#sums[figure], figure, sampled ? sampled[figure] ?? sampled.rates?.[figure] ?? null : summed);
    }
    const troubled = this.#board.queues.filter((name) => troubles(this.#board.seen(name)).length).length;
    const whose = sampled ? `of all ${sampled.queues} queues and sidelines at ${clock(sampled.at)}` : `of ${all.length} of ${this.#board.queues.length} queues`;
    write(this.#covers, `The sums are ${whose}; ${troubled} with trouble${sampled ? ` of ${all.length} read so far` : ""}.`);
    this.#load.show();
    write(this.#note, told([...this.#rows.keys()].map((name) => this.#board.seen(name))));
  }
}
