// A choice of messages, and what is done with all of them.

import * as api from "./api.js";
import { SIDELINE } from "./board.js";
import { confirm, reason, say } from "./dialogs.js";
import { button, element, write } from "./elements.js";
import { retry } from "./shovel.js";

const AT_A_TIME = 100;
const RETRY = "retry";
const CHOSEN_MAX = 10_000;

export class Bulk {
  #queue;
  #to;
  #changed;
  #chosen = new Map();
  #boxes = new Map();
  #count = element("span", { class: "hint", role: "status" });
  #progress = element("progress", { hidden: true, "aria-label": "Progress" });
  #page = element("input", { type: "checkbox" });
  #buttons;
  #stop = button("Stop", () => { this.#isStopped = true; }, { hidden: true });
  #isStopped = false;
  #walk;

  /** Of the messages of `queue`; `to`: where its dead letters go back to, or null. `walk()` begins the search that is
   * shown; `changed()` follows an action. */
  constructor({ queue, to }, walk, changed) {
    this.#queue = queue;
    this.#to = to;
    this.#walk = walk;
    this.#changed = changed;
    this.#page.addEventListener("change", () => {
      for (const [box, message] of this.#boxes) this.#choose(message, (box.checked = this.#page.checked));
      this.#show();
    });
    const act = (name, kind, done, text, style = "") => button(name, () => this.#act(name, kind, done, text), { style, about: "the selected" });
    this.#buttons = [
      to === null ? null : act("Retry", RETRY, "retried", `They move back to ${to} and are ready there.`),
      act("Release", "releases", "released", "They become ready at once."),
      queue.endsWith(SIDELINE) ? null : act("Sideline", "sidelines", "sidelined", `They move to the sideline ${queue}${SIDELINE}.`),
      act("Delete", "acks", "deleted", "They are not delivered again. This cannot be undone.", "danger"),
    ].filter(Boolean);
    this.element = element("div", { class: "bar bulk", role: "group", "aria-label": "Selected messages" },
      element("label", {}, this.#page, " Select all on this page"), button("Select all that match", () => this.#all()), ...this.#buttons, this.#stop, this.#count, this.#progress);
    this.#show();
  }

  /** A new page is shown: a box for each of its messages is asked for by `box`. The choice stays. */
  begin() {
    this.#boxes.clear();
    this.#page.checked = false;
  }

  /** Forgets the choice. */
  clear() {
    this.#chosen.clear();
    this.begin();
    this.#show();
  }

  box(message) {
    const box = element("input", { type: "checkbox", "aria-label": `Select ${message.id}` });
    box.checked = this.#chosen.has(message.id);
    box.addEventListener("change", () => {
      this.#choose(message, box.checked);
      this.#show();
    });
    this.#boxes.set(box, message);
    return box;
  }

  #choose({ id, receives }, isChosen) {
    if (isChosen) this.#chosen.set(id, { id, receives });
    else this.#chosen.delete(id);
  }

  #show(text = null) {
    const count = this.#chosen.size;
    for (const each of this.#buttons) each.disabled = count === 0 || text !== null;
    write(this.#count, text ?? (count ? `${count} selected` : "None selected"));
  }

  /** Shows that something goes on until `work` ends; the button Stop ends it early. */
  async #during(work) {
    this.#isStopped = false;
    this.#stop.hidden = this.#progress.hidden = false;
    try {
      await work();
    } catch (error) {
      if (!(error instanceof api.Problem) && !(error instanceof api.Lost)) throw error;
      say(`Not all was done. ${reason(error)}`, "failed");
    } finally {
      this.#stop.hidden = this.#progress.hidden = true;
      this.#show();
    }
  }

  async #all() {
    await this.#during(async () => {
      this.#progress.removeAttribute("value");
      const walk = this.#walk();
      while (walk.goesOn && this.#chosen.size < CHOSEN_MAX && !this.#isStopped) {
        for (const message of await walk.next(Math.min(1000, CHOSEN_MAX - this.#chosen.size))) {
          if (message.state !== "removed") this.#choose(message, true);
        }
        this.#show(`${this.#chosen.size} found`);
      }
      if (walk.goesOn) say(`The first ${this.#chosen.size} are selected; there may be more.`);
    });
    for (const [box, { id }] of this.#boxes) box.checked = this.#chosen.has(id);
  }

  #send(kind, messages) {
    return kind === RETRY ? retry(this.#to, messages.map(({ id }) => id)) : api.bulk(this.#queue, kind, messages);
  }

  async #act(name, kind, done, text) {
    const all = [...this.#chosen.values()];
    const these = all.length === 1 ? "1 message" : `${all.length} messages`;
    if (!(await confirm(`${name} ${these}?`, text, name))) return;
    let succeeded = 0;
    let failed = 0;
    let why = "";
    await this.#during(async () => {
      this.#progress.max = all.length;
      for (let at = 0; at < all.length && !this.#isStopped; at += AT_A_TIME) {
        this.#progress.value = at;
        this.#show(`${at} of ${all.length}`);
        for (const { id, problem } of await this.#send(kind, all.slice(at, at + AT_A_TIME))) {
          this.#chosen.delete(id);
          if (problem === undefined) succeeded += 1;
          else {
            failed += 1;
            why ||= problem.detail ?? problem.title;
          }
        }
      }
      const left = all.length - succeeded - failed;
      const rest = [failed ? `${failed} not: ${why}` : "", left ? `${left} not tried` : ""].filter(Boolean).join("; ");
      say(`${succeeded} ${done}${rest ? `; ${rest}` : ""}.`, failed ? "failed" : "done");
    });
    this.#changed();
  }
}
