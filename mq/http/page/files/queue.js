// One queue: its figures over time, and tabs with its messages and all that belongs to it.

import * as api from "./api.js";
import { FIGURES, SIDELINE } from "./board.js";
import { Consumers } from "./consumers.js";
import { DeadLetters } from "./deadletters.js";
import { attempt, confirm, reason } from "./dialogs.js";
import { button, element, hrefOf, link, write } from "./elements.js";
import { age, rate } from "./format.js";
import { COUNTS, Load } from "./load.js";
import { Messages } from "./messages.js";
import { Publishing } from "./publishing.js";
import { Schedules } from "./schedules.js";
import { see, told } from "./seeing.js";
import { Settings } from "./settings.js";
import { Tabs } from "./tabs.js";
import { Tail } from "./tail.js";

const OTHERS = [["oldest", "Oldest ready"], ["in", "In /s"], ["out", "Out /s"], ["overdue", "Overdue"], ["leased", "Leased"], ["removed", "Removed"]];

/** The tabs. `make(view)` makes a tab's part, once: it has an `element`, and perhaps `open(rest)`, called whenever
 * the URL leads there (`rest`: the segments behind the tab's name), `look(signal)`, called with each poll while the tab is
 * shown, and `show(said)`, called with each new description of the queue. */
const TABS = {
  messages: { title: "Messages", make: (view) => new MessagesTab(view) },
  "dead-letters": { title: "Dead letters", make: (view) => new DeadLetters(view) },
  schedules: { title: "Schedules", make: (view) => new Schedules(view.name) },
  consumers: { title: "Consumers", make: (view) => new Consumers(view.name) },
  settings: { title: "Settings", make: (view) => new Settings(view) },
};
const FIRST = "messages";

/** The messages of a queue, a form that publishes one, and those that come. */
class MessagesTab {
  constructor(view) {
    const to = view.isSideline ? view.of : null;
    this.messages = new Messages({ queue: view.name, to, changed: view.soon });
    const publishing = new Publishing(view.name, () => {
      view.soon();
      this.messages.read();
    });
    this.element = element("div", {}, publishing.element, this.messages.element, new Tail(view.name).element);
  }

  open() {
    this.messages.read();
  }
}

export class QueueView {
  #board;
  #gone = null;
  #figures = {};
  #load;
  #parts = new Map();
  #tab = FIRST;
  #rest = [];
  #tabs;
  #problem = element("p", { class: "note" });
  #creating = element("p", { hidden: true });
  #pausing = {};

  constructor(board, watch, name) {
    this.#board = board;
    this.watch = watch;
    this.name = name;
    this.isSideline = name.endsWith(SIDELINE);
    /** Of a sideline, the name of its queue. */
    this.of = this.isSideline ? name.slice(0, -SIDELINE.length) : null;
    /** Has the figures read again. */
    this.soon = () => watch.soon();
    this.#load = new Load(name, () => this.#changedRange());
    this.heading = element("h1", { tabindex: "-1" }, name);
    this.#creating.append("There is no queue of this name. ", button("Create the queue", async () => {
      if (!(await attempt(() => api.create(name), `The queue ${name} exists.`))) return;
      this.open([this.#tab, ...this.#rest]);
      this.heading.focus();
      this.watch.soon();
    }, { style: "primary", about: name }));
    const titles = Object.entries(TABS).filter(([tab]) => tab !== "dead-letters" || !this.isSideline);
    this.#tabs = new Tabs(`Parts of ${name}`, Object.fromEntries(titles.map(([tab, { title }]) => [tab, title])), (tab) => hrefOf(name, tab));
    this.element = element("section", { class: "queue", "aria-label": `Queue ${name}` },
      element("p", { class: "path" }, element("a", { href: "#/" }, "All queues"),
        ...(this.isSideline ? [" · the sideline of ", link(this.of)] : [])),
      element("div", { class: "bar head" }, this.heading, this.#pauses("publishes"), this.#pauses("deliveries")),
      this.#problem, this.#creating, this.#list(), this.#load.element, this.#tabs.element);
  }

  get title() {
    return `${TABS[this.#tab].title} · ${this.name}`;
  }

  #list() {
    const titles = [...COUNTS.map(({ name, title }) => [name, title]), ...OTHERS];
    return element("dl", { class: "figures" }, ...titles.map(([name, title]) => {
      this.#figures[name] = element("dd", { "data-figure": name }, "–");
      return element("div", {}, element("dt", {}, title), this.#figures[name]);
    }));
  }

  /** A button that pauses or resumes publishes or deliveries. */
  #pauses(what) {
    const paused = () => this.#board.seen(this.name)?.latest?.settings.paused ?? "none";
    this.#pausing[what] = button("", async () => {
      const before = ["publishes", "deliveries"].filter((each) => paused() === each || paused() === "both");
      const isPaused = before.includes(what);
      const after = isPaused ? before.filter((each) => each !== what) : [...before, what];
      const action = `${isPaused ? "Resume" : "Pause"} ${what}`;
      const text = isPaused ? `${this.name} has ${what} again.` : what === "publishes"
        ? `mq refuses publishes to ${this.name}, and its schedules wait.` : `Consumers of ${this.name} get no messages, and wait.`;
      if (!(await confirm(`${action}?`, text, action))) return;
      const patch = { paused: after.length === 2 ? "both" : after[0] ?? "none" };
      if (await attempt(() => api.change(this.name, patch), `${this.name}: ${isPaused ? "resumed" : "paused"} ${what}.`)) this.watch.soon();
    }, { hidden: true });
    return this.#pausing[what];
  }

  #showPaused(paused) {
    for (const [what, control] of Object.entries(this.#pausing)) {
      control.hidden = false;
      write(control, `${paused === what || paused === "both" ? "Resume" : "Pause"} ${what}`);
    }
  }

  #changedRange() {
    this.show();
    this.watch.anew();
  }

  /** Forgets the queue, which was deleted. */
  forget() {
    this.#board.forget(this.name);
    location.hash = "#/";
  }

  #part() {
    if (!this.#parts.has(this.#tab)) this.#parts.set(this.#tab, TABS[this.#tab].make(this));
    return this.#parts.get(this.#tab);
  }

  /** Goes to a tab: the segments of the URL behind the queue's name. */
  open([tab, ...rest]) {
    const isKnown = Object.hasOwn(TABS, tab ?? "") && !(tab === "dead-letters" && this.isSideline);
    [this.#tab, this.#rest] = isKnown ? [tab, rest] : [FIRST, []];
    const part = this.#part();
    this.#tabs.select(this.#tab, part.element);
    part.open?.(this.#rest);
  }

  async look(signal) {
    this.#gone = await see(this.#board, this.name, signal);
    if (this.#gone === null) {
      await this.#load.look(signal);
      await this.#part().look?.(signal);
    }
    this.show();
  }

  show() {
    const seen = this.#board.seen(this.name);
    this.#creating.hidden = seen !== undefined || this.#gone === null;
    if (!seen) {
      // A deleted queue shows no old figures.
      write(this.#problem, this.#gone ? reason(this.#gone) : "");
      for (const figure of Object.values(this.#figures)) write(figure, "–");
      for (const control of Object.values(this.#pausing)) control.hidden = true;
      this.#load.show();
      return;
    }
    write(this.#problem, seen.problem ? reason(seen.problem) : seen.latest?.expired ? "This queue has expired." : "");
    const said = seen.latest;
    if (!said) return;
    for (const name of [...FIGURES, "overdue", "leased", "removed"]) write(this.#figures[name], said[name]);
    write(this.#figures.oldest, age(said.oldest_ready_age_s));
    write(this.#figures.in, rate(seen.rates.in));
    write(this.#figures.out, rate(seen.rates.out));
    for (const figure of Object.values(this.#figures)) figure.classList.toggle("zero", /^(0|0\.0|–)$/.test(figure.textContent));
    this.#showPaused(said.settings.paused);
    this.#tabs.count("dead-letters", said.sidelined);
    this.#load.show(seen.samples, told([seen]));
    this.#part().show?.(said);
  }
}
