// A queue's shovel: what was sidelined goes back.

import * as api from "./api.js";
import { attempt, confirm, reason } from "./dialogs.js";
import { button, element, field, write } from "./elements.js";
import { time } from "./format.js";

const AGAIN_MS = 1000;

function said(run) {
  if (run.state === "scheduled") return `It has not run yet; the next run is at ${time(run.next)}.`;
  const moved = run.dry_run ? `${run.moved} would be moved` : `${run.moved} moved`;
  const stayed = Object.values(run.stayed).reduce((sum, count) => sum + count, 0);
  const failed = run.failed ? `, ${run.failed} times it failed (${run.error})` : "";
  return `Run of ${time(run.began)}: ${run.state}. ${run.looked_at} looked at, ${moved}, ${stayed} stayed${failed}.`;
}

export class Shovel {
  #queue;
  #changed;
  #told = element("p", { role: "status", "data-figure": "shovel" });
  #timer = null;

  constructor(queue, changed) {
    this.#queue = queue;
    this.#changed = changed;
    const limit = element("input", { type: "number", min: "1", step: "1", inputmode: "numeric" });
    const dry = element("input", { type: "checkbox" });
    this.element = element("section", { "aria-label": "Shovel" },
      element("h2", {}, "Shovel"),
      element("p", { class: "hint" }, `Moves what lies in ${queue}_SIDELINE back to ${queue}.`),
      element("form", { class: "bar", onsubmit: (event) => this.#begin(event, limit.value, dry.checked) },
        field("At most so many", limit), field("Only count", dry),
        button("Shovel", null, { type: "submit", style: "primary" }),
        button("Stop", () => this.#stop(), { about: "the shovel" }),
        button("Last run", () => this.#read(), { about: "of the shovel" })),
      this.#told);
  }

  async #begin(event, limit, isDry) {
    event.preventDefault();
    const text = isDry
      ? "It is counted what would be moved; nothing is."
      : `What lies in ${this.#queue}_SIDELINE goes back to ${this.#queue}, and is ready there.`;
    if (!(await confirm("Shovel?", text, "Shovel"))) return;
    const query = { limit, dry_run: isDry ? "true" : "" };
    if (await attempt(() => api.beginShovel(this.#queue, query), "The shovel runs.")) this.#read();
  }

  async #stop() {
    if (!(await confirm("Stop the shovel?", "What it has moved stays moved.", "Stop"))) return;
    if (await attempt(() => api.stopShovel(this.#queue), "The shovel is stopped, or about to.")) this.#read();
  }

  /** Shows how it stands, and looks again while it goes on and is seen. */
  async #read() {
    clearTimeout(this.#timer);
    try {
      const run = await api.shovel(this.#queue);
      write(this.#told, said(run));
      this.#changed();
      if (!run.ended && run.state !== "scheduled" && this.element.isConnected) {
        this.#timer = setTimeout(() => this.#read(), AGAIN_MS);
      }
    } catch (error) {
      write(this.#told, reason(error));
    }
  }
}
