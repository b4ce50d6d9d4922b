// One queue: its figures over time, its messages, and what can be done with it.

import * as api from "./api.js";
import { FIGURES } from "./board.js";
import { Chart } from "./charts.js";
import { attempt, confirm, reason } from "./dialogs.js";
import { button, element, write } from "./elements.js";
import { age, rate } from "./format.js";
import { Messages } from "./messages.js";
import { see, told } from "./overview.js";
import { publishing } from "./publishing.js";
import { Schedules } from "./schedules.js";
import { Shovel } from "./shovel.js";

const SIDELINE = "_SIDELINE";
const COUNTS = [
  { name: "ready", title: "Ready" },
  { name: "in_flight", title: "In flight" },
  { name: "delayed", title: "Delayed" },
  { name: "sidelined", title: "Sidelined" },
];
const RATES = [{ name: "in", title: "In" }, { name: "out", title: "Out" }];
const OTHERS = [["oldest", "Oldest ready"], ["in", "In /s"], ["out", "Out /s"], ["overdue", "Overdue"], ["leased", "Leased"], ["removed", "Removed"]];

export class QueueView {
  #board;
  #gone = null;
  #figures = {};
  #counts = new Chart("Messages", COUNTS, (value) => String(value));
  #rates = new Chart("Messages in and out a second", RATES, rate);
  #note = element("p", { class: "hint" });
  #problem = element("p", { class: "note" });

  constructor(board, watch, name) {
    this.#board = board;
    this.watch = watch;
    this.name = name;
    this.title = name;
    this.messages = new Messages(name, () => this.watch.soon());
    this.schedules = new Schedules(name);
    this.heading = element("h1", { tabindex: "-1" }, name);
    this.element = element("section", { class: "queue", "aria-label": `Queue ${name}` },
      element("p", {}, element("a", { href: "#/" }, "All queues"), ...this.#neighbour()),
      this.heading, this.#problem, this.#list(), this.#counts.element, this.#rates.element, this.#note,
      this.messages.element,
      publishing(name, () => this.#changed()),
      this.schedules.element,
      this.#isSideline() ? null : new Shovel(name, () => this.watch.soon()).element,
      this.#ending());
  }

  #isSideline() {
    return this.name.endsWith(SIDELINE);
  }

  #neighbour() {
    if (!this.#isSideline()) return [];
    const of = this.name.slice(0, -SIDELINE.length);
    return [" · the sideline of ", element("a", { href: `#/queue/${encodeURIComponent(of)}` }, of)];
  }

  #list() {
    const titles = [...COUNTS.map(({ name, title }) => [name, title]), ...OTHERS];
    return element("dl", { class: "figures" }, ...titles.map(([name, title]) => {
      this.#figures[name] = element("dd", { "data-figure": name }, "–");
      return element("div", {}, element("dt", {}, title), this.#figures[name]);
    }));
  }

  #ending() {
    const name = this.name;
    return element("section", { "aria-label": "The whole queue" },
      element("h2", {}, "The whole queue"),
      element("div", { class: "bar" },
        button("Purge", async () => {
          const text = `All messages of ${name} that were published until now are deleted, those in flight and delayed too. This cannot be undone.`;
          if (!(await confirm(`Purge ${name}?`, text, "Purge"))) return;
          if (await attempt(() => api.purge(name), `${name} is purged.`)) this.#changed();
        }, { style: "danger", about: `queue ${name}` }),
        button("Delete queue", async () => {
          const text = `The queue ${name} goes, with its messages in every state, its settings and its schedules. Its sideline stays. This cannot be undone.`;
          if (!(await confirm(`Delete ${name}?`, text, "Delete queue"))) return;
          if (!(await attempt(() => api.remove(name), `${name} is deleted.`))) return;
          this.#board.forget(name);
          location.hash = "#/";
        }, { style: "danger", about: name })));
  }

  #changed() {
    this.watch.soon();
    this.messages.read();
  }

  /** What is asked for once. */
  open() {
    this.show();
    this.messages.read();
    this.schedules.read();
  }

  async look(signal) {
    this.#gone = await see(this.#board, this.name, signal);
    this.show();
  }

  show() {
    const seen = this.#board.seen(this.name);
    if (!seen) {
      // Of one that was deleted nothing stays that looks like a figure of now.
      write(this.#problem, this.#gone ? reason(this.#gone) : "");
      for (const figure of Object.values(this.#figures)) write(figure, "–");
      this.#counts.draw([]);
      this.#rates.draw([]);
      return;
    }
    write(this.#problem, seen.problem ? reason(seen.problem) : seen.latest?.expired ? "This queue has expired." : "");
    const said = seen.latest;
    if (!said) return;
    for (const name of [...FIGURES, "overdue", "leased", "removed"]) write(this.#figures[name], said[name]);
    write(this.#figures.oldest, age(said.oldest_ready_age_s));
    write(this.#figures.in, rate(seen.rates.in));
    write(this.#figures.out, rate(seen.rates.out));
    this.#counts.draw(seen.samples);
    this.#rates.draw(seen.samples);
    write(this.#note, told([seen]));
  }
}
