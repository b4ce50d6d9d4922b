// Moves dead letters back to their queue: some by their ids, or all by a selection.

import * as api from "./api.js";
import { attempt, confirm, reason } from "./dialogs.js";
import { button, element, field, write } from "./elements.js";
import { relative } from "./format.js";

const AGAIN_MS = 250;
const TRIES_MAX = 40;

const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

const isOver = (run) => Boolean(run.ended) || run.state === "scheduled";

function said(run) {
  if (run.state === "scheduled") return `No run yet; the next run is ${relative(run.next, Date.now())}.`;
  const moved = run.dry_run ? `${run.moved} would be moved` : `${run.moved} moved`;
  const stayed = Object.entries(run.stayed).map(([why, count]) => `${count} ${why}`).join(", ");
  const failed = run.failed ? `, ${run.failed} failed (${run.error})` : "";
  const began = `${run.dry_run ? "Dry run" : "Run"} that began ${relative(run.began, Date.now())}`;
  return `${began}: ${run.state}. ${run.looked_at} checked, ${moved}${stayed ? `; stayed: ${stayed}` : ""}${failed}.`;
}

/** Moves these messages back to the queue, 100 at most, and waits for it. Returns a result for each, `{ id, problem }`: mq
 * counts them, so which of them stayed is not known. */
export async function retry(queue, ids) {
  const { id } = await api.beginShovel(queue, { id: ids, max_receives: 0 });
  let run = await api.shovel(queue);
  for (let tries = 0; tries < TRIES_MAX && run.id === id && !isOver(run); tries += 1) {
    await pause(AGAIN_MS);
    run = await api.shovel(queue);
  }
  const stayed = Object.keys(run.stayed).filter((why) => why !== "not-selected").join(", ");
  const why = isOver(run) ? stayed || run.error || "no longer there" : "the run goes on";
  return ids.map((each, at) => (at < run.moved ? { id: each } : { id: each, problem: { title: why } }));
}

/** Moves a message back. Throws Problem. */
export async function retryOne(queue, id) {
  const [{ problem }] = await retry(queue, [id]);
  if (problem) throw new api.Problem(0, problem);
}

export class Shovel {
  #queue;
  #changed;
  #told = element("p", { role: "status", "data-figure": "shovel" });
  #isRunning = false;

  constructor(queue, changed) {
    this.#queue = queue;
    this.#changed = changed;
    const number = (more) => element("input", { type: "number", inputmode: "numeric", step: "1", ...more });
    const text = () => element("input", { type: "text", autocomplete: "off", spellcheck: "false" });
    const fields = {
      key: [text(), "Only with this key", "or a prefix: eu-*"],
      priority: [text(), "Only of this priority", "or a range: 5.., 3..7"],
      older_than: [number({ min: "0", step: "0.001" }), "Sidelined at least so long ago", "in seconds"],
      max_receives: [number({ min: "0", max: "999" }), "With fewer receives than", "default: the queue's; 0: any"],
      limit: [number({ min: "1" }), "At most this many", "the oldest first"],
      rate: [number({ min: "1" }), "Messages a second", "default: as fast as it can"],
    };
    const query = () => Object.fromEntries(Object.entries(fields).map(([name, [control]]) => [name, control.value]));
    this.element = element("section", { "aria-label": "Retry by selection" },
      element("details", {}, element("summary", {}, "Retry by selection"),
        element("p", { class: "hint" }, `Moves all dead letters that match back to ${queue}; without a selection, all.`),
        element("form", { onsubmit: (event) => this.#begin(event, query()) },
          element("div", { class: "fields" }, ...Object.values(fields).map(([control, title, hint]) => field(title, control, { hint }))),
          element("div", { class: "bar" },
            button("Dry run", null, { type: "submit", value: "dry" }),
            button("Retry all that match", null, { type: "submit", style: "primary" }),
            button("Stop", () => this.#stop(), { about: "the run" }),
            button("Last run", () => this.look({ always: true }))))),
      this.#told);
  }

  async #begin(event, query) {
    event.preventDefault();
    const isDry = event.submitter?.value === "dry";
    const text = isDry
      ? "Counts the dead letters that match, and moves none."
      : `The dead letters that match move back to ${this.#queue} and are ready there.`;
    if (!(await confirm(isDry ? "Begin a dry run?" : "Retry all that match?", text, isDry ? "Count" : "Retry"))) return;
    const begin = () => api.beginShovel(this.#queue, { ...query, dry_run: isDry ? "true" : "" });
    if (!(await attempt(begin, "The run has begun."))) return;
    await this.look({ always: true });
  }

  async #stop() {
    if (!(await confirm("Stop the run?", "Messages that it has moved stay moved.", "Stop"))) return;
    if (await attempt(() => api.stopShovel(this.#queue), "The run is stopping.")) await this.look({ always: true });
  }

  /** Shows the run, and again with each poll until it is over. */
  async look({ always = false, signal } = {}) {
    if (!always && !this.#isRunning) return;
    try {
      const run = await api.shovel(this.#queue, signal);
      write(this.#told, said(run));
      const wasRunning = this.#isRunning;
      this.#isRunning = !isOver(run);
      if (always || wasRunning) this.#changed();
    } catch (error) {
      if (!always && (!(error instanceof api.Problem) || error.status === 401)) throw error;
      this.#isRunning = false;
      write(this.#told, reason(error));
    }
  }
}
