// Messages as they become ready, without consuming them.

import * as api from "./api.js";
import { reason } from "./dialogs.js";
import { button, element, messageLink, write } from "./elements.js";
import { beginning, bytes, clock } from "./format.js";

const ROWS_MAX = 500;
const LAST = 20;
const PREVIEW_CHARS = 120;
const POLLED = 1000;
const SEEN_MAX = 5000;
const EVERY_MS = 2000;
// Nearer to the end than this is at the end.
const END_PIXELS = 24;

export class Tail {
  #queue;
  #socket = null;
  #timer = null;
  #isOn = false;
  #isPaused = false;
  #seen = new Set();
  #waiting = [];
  #dropped = 0;
  #how = "";
  #rows = element("ol", { class: "tail body", tabindex: "0", "aria-label": "Live tail" });
  #told = element("p", { class: "hint", role: "status" });
  #switch = button("Follow", () => (this.#isOn ? this.stop("Stopped.") : this.#begin()), { about: "the queue live" });
  #resume = button("Resume", () => this.#goOn(), { hidden: true });

  constructor(queue) {
    this.#queue = queue;
    this.#rows.addEventListener("scroll", () => {
      const isAtEnd = this.#rows.scrollHeight - this.#rows.scrollTop - this.#rows.clientHeight < END_PIXELS;
      if (isAtEnd && this.#isPaused) this.#goOn();
      else if (!isAtEnd && this.#isOn) this.#pause();
    });
    this.#rows.hidden = true;
    this.element = element("section", { "aria-label": "Live tail" },
      element("h2", {}, "Live tail"),
      element("div", { class: "bar" }, this.#switch, this.#resume),
      this.#told, this.#rows);
  }

  #begin() {
    this.#isOn = true;
    this.#rows.hidden = false;
    this.#rows.replaceChildren();
    this.#seen.clear();
    this.#dropped = 0;
    this.#how = "as messages become ready";
    write(this.#switch.firstChild, "Stop following");
    this.#goOn();
    // A page cannot give a WebSocket a token.
    if (api.hasToken()) this.#poll();
    else this.#follow();
  }

  stop(text = "") {
    this.#isOn = false;
    this.#socket?.close();
    this.#socket = null;
    clearTimeout(this.#timer);
    this.#resume.hidden = true;
    write(this.#switch.firstChild, "Follow");
    write(this.#told, text);
  }

  /** Whether to go on: not once another view is shown. */
  get #isShown() {
    if (this.#isOn && !this.element.isConnected) this.stop();
    return this.#isOn;
  }

  #follow() {
    const socket = api.follow(this.#queue, LAST);
    let hasFollowed = false;
    this.#socket = socket;
    socket.addEventListener("message", ({ data }) => {
      if (socket !== this.#socket || !this.#isShown) return;
      const { event, message, dropped, results, problem } = JSON.parse(data);
      const refused = problem ?? results?.[0]?.problem;
      if (refused) this.stop(refused.detail ?? refused.title);
      else if (event === "message") this.#take([message], dropped);
      hasFollowed = true;
    });
    socket.addEventListener("close", () => {
      if (socket !== this.#socket || !this.#isShown) return;
      this.#socket = null;
      // Without WebSockets, as behind some proxies, the page looks at the queue.
      if (hasFollowed) this.#timer = setTimeout(() => this.#isShown && this.#follow(), EVERY_MS);
      else this.#poll();
    });
  }

  async #poll() {
    let why = "";
    try {
      const { rows } = await api.peek(this.#queue, { state: "ready", count: POLLED });
      const isFirst = this.#seen.size === 0;
      const fresh = rows.filter(({ id }) => !this.#seen.has(id));
      for (const { id } of fresh) this.#seen.add(id);
      for (const id of this.#seen) {
        if (this.#seen.size <= SEEN_MAX) break;
        this.#seen.delete(id);
      }
      this.#how = `looking at the first ${POLLED} ready messages every ${EVERY_MS / 1000} s; those consumed in between are not shown`;
      if (this.#isShown) this.#take(isFirst ? fresh.slice(-LAST) : fresh, 0);
    } catch (error) {
      if (!(error instanceof api.Problem) && !(error instanceof api.Lost)) throw error;
      why = reason(error);
    }
    if (!this.#isShown) return;
    if (why) write(this.#told, why);
    this.#timer = setTimeout(() => this.#isShown && this.#poll(), EVERY_MS);
  }

  #take(messages, dropped) {
    this.#dropped += dropped;
    this.#waiting.push(...messages);
    // The newest stay, also while the reader has scrolled away for long.
    const over = this.#waiting.length - ROWS_MAX;
    if (over > 0) {
      this.#waiting.splice(0, over);
      this.#dropped += over;
    }
    if (this.#isPaused) this.#tell();
    else this.#draw();
  }

  #draw() {
    this.#rows.append(...this.#waiting.splice(0).map((message) => this.#row(message)));
    while (this.#rows.childElementCount > ROWS_MAX) this.#rows.firstElementChild.remove();
    this.#rows.scrollTop = this.#rows.scrollHeight;
    this.#tell();
  }

  #row({ id, due, size, body, body_base64: encoded }) {
    const text = body ?? (encoded === undefined ? "The body cannot be read." : "not UTF-8");
    return element("li", { "data-tail": id },
      element("time", { datetime: due }, clock(Date.parse(due))), " ", messageLink(this.#queue, id), ` ${bytes(size)} `,
      element("code", {}, beginning(text, PREVIEW_CHARS)));
  }

  #pause() {
    this.#isPaused = true;
    this.#resume.hidden = false;
    this.#tell();
  }

  #goOn() {
    this.#isPaused = false;
    this.#resume.hidden = true;
    this.#draw();
  }

  #tell() {
    if (!this.#isOn) return;
    const dropped = this.#dropped ? ` ${this.#dropped} were left out: they came too fast.` : "";
    write(this.#told, this.#isPaused
      ? `Paused by scrolling; ${this.#waiting.length} new.${dropped}`
      : `Following, ${this.#how}. The last ${ROWS_MAX} stay here, and none is consumed.${dropped}`);
  }
}
