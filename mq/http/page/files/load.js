// The load over time, of a queue or of all: the last minutes in this tab, or what mq has recorded.

import * as api from "./api.js";
import { Chart } from "./charts.js";
import { reason } from "./dialogs.js";
import { element, write } from "./elements.js";
import { clock, day, rate } from "./format.js";

export const COUNTS = [
  { name: "ready", title: "Ready" },
  { name: "in_flight", title: "In flight" },
  { name: "delayed", title: "Delayed" },
  { name: "sidelined", title: "Dead letters" },
];
const RATES = [{ name: "in", title: "In" }, { name: "out", title: "Out" }];
const LIVE = "tab";
const TITLES = { [LIVE]: "Last minutes", hour: "Hour", day: "Day", week: "Week" };
const READ_EVERY_MS = 20_000;
const RECENT_MS = 1_800_000;

/** A recorded point as the charts have it. */
function sampleOf(point) {
  const a = (count) => (point.seconds > 0 ? count / point.seconds : null);
  return { ...point, at: Date.parse(point.time), in: a(point.published), out: a(point.fetched) };
}

/** The points, with an empty one wherever mq recorded nothing. */
function withGaps(samples, stepMs) {
  return samples.flatMap((each, at) => {
    const before = samples[at - 1];
    if (!before || each.at - before.at <= 1.5 * stepMs) return [each];
    return [{ at: before.at + stepMs, isGap: true }, each];
  });
}

export class Load {
  #queue;
  #range;
  #read = null;
  #samples = [];
  #counts = new Chart("Messages", COUNTS, (value) => String(value ?? "–"));
  #rates = new Chart("Messages in and out a second", RATES, rate);
  #note = element("p", { class: "hint" });
  #shown = [];
  /** The last sample of all queues together. */
  last = null;

  /** `queue`: its name, or null for the sums of all queues. `changed`: another range was chosen. */
  constructor(queue, changed) {
    this.#queue = queue;
    const ranges = Object.keys(TITLES).filter((range) => queue !== null || range !== LIVE);
    this.#range = ranges[0];
    const choice = element("fieldset", { class: "ranges" }, element("legend", {}, "Shown"), ...ranges.map((range) =>
      element("label", {}, element("input", {
        type: "radio", name: "range", value: range, checked: range === this.#range,
        onchange: () => {
          this.#range = range;
          this.#read = null;
          this.#samples = [];
          changed();
        },
      }), ` ${TITLES[range]}`)));
    // On a phone the rest of the page comes first.
    this.element = element("section", { "aria-label": "Over time" },
      element("details", { open: matchMedia("(min-width: 46rem)").matches, ontoggle: () => this.show(...this.#shown) },
        element("summary", {}, "Over time"),
        choice, element("div", { class: "charts" }, this.#counts.element, this.#rates.element), this.#note));
  }

  /** Reads what mq has recorded, now and then. Throws Lost, and the abort of a poll. */
  async look(signal) {
    const range = this.#range;
    if (range === LIVE || (this.#read !== null && Date.now() - this.#read < READ_EVERY_MS)) return;
    try {
      const said = await api.trends(range, this.#queue, signal);
      if (range !== this.#range) return;
      this.#samples = withGaps(said.points.map(sampleOf), said.step_s * 1000);
      const last = said.points.at(-1);
      this.last = said.last && { ...said.last, at: Date.parse(said.last.time), rates: last && sampleOf(last) };
      write(this.#note, said.points.length > 0 ? "The largest numbers of each step, and its mean rates, as mq has recorded them."
        : "mq has recorded nothing yet: it samples each minute, and keeps the busiest queues.");
    } catch (error) {
      if (!(error instanceof api.Problem) || error.status === 401) throw error;
      if (range !== this.#range) return;
      this.#samples = [];
      write(this.#note, reason(error));
    }
    this.#read = Date.now();
  }

  /** The last sample of all queues, if it is recent. */
  get recent() {
    return this.last && Date.now() - this.last.at < RECENT_MS ? this.last : null;
  }

  /** `live`: the samples of this tab; `said`: what they cover. */
  show(live = [], said = "") {
    this.#shown = [live, said];
    const isLive = this.#range === LIVE;
    if (isLive) write(this.#note, said);
    const samples = isLive ? live : this.#samples;
    const name = this.#range === "day" || this.#range === "week" ? day : clock;
    this.#counts.draw(samples, name);
    this.#rates.draw(samples, name);
  }
}
