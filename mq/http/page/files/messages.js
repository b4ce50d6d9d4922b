// A queue's messages, shown without consuming them, and the actions on each.

import * as api from "./api.js";
import { Bulk } from "./bulk.js";
import { attempt, confirm, reason, say } from "./dialogs.js";
import { button, element, field, messageLink, when, write } from "./elements.js";
import { beginning, bytes } from "./format.js";
import { WAYS, Walk } from "./search.js";
import { retryOne } from "./shovel.js";

const COUNT = matchMedia("(max-width: 46rem)").matches ? 10 : 25;
const PREVIEW_CHARS = 80;
const STATES = [
  ["ready", "Ready"], ["delayed", "Delayed and in flight"], ["leased", "Leased by Spark"], ["removed", "Removed"], ["", "All"],
];

/** The state as people call it: a delayed message that was fetched is in flight. */
export function stateOf(message) {
  return message.state === "delayed" && message.receives > 0 ? "in flight" : message.state;
}

/** The actions that a message allows, by its state and its queue. `to`: where dead letters go back to, or null. */
export function actionsOf(queue, message, to = null) {
  const isMovable = message.state === "ready" || message.state === "delayed";
  return {
    retry: to !== null && message.state === "ready",
    release: message.state === "delayed",
    sideline: isMovable && !queue.endsWith("_SIDELINE"),
    discard: message.state !== "removed",
  };
}

function bodyOf(message) {
  if (message.body === undefined && message.body_base64 === undefined) return ["The body cannot be read.", ""];
  const isText = message.body !== undefined;
  const text = isText ? message.body : message.body_base64;
  const shown = isText ? new TextEncoder().encode(text).length : Math.floor((text.replace(/=+$/, "").length * 3) / 4);
  const part = shown < message.size ? `, the first ${bytes(shown)} of ${bytes(message.size)}` : `, ${bytes(message.size)}`;
  return [`${isText ? "Body" : "Body (not UTF-8), in base64"}${part}`, text];
}

export class Messages {
  #queue;
  #to;
  #changed;
  #bulk;
  #list = element("ul", { class: "messages" });
  #state = element("select", {}, ...STATES.map(([value, text]) => element("option", { value }, text)));
  #told = element("p", { class: "hint", "aria-live": "polite" });
  #next = button("Next page", () => this.read({ goesOn: true }), { disabled: true });
  #way = element("select", {}, ...WAYS.map(([value, text]) => element("option", { value }, text)));
  #text = element("input", { type: "search", autocomplete: "off", spellcheck: "false" });
  #walk = null;
  #reading = 0;

  /** Those of `queue`. `to`: where its dead letters go back to, or null. `changed()`: an action was done. */
  constructor({ queue, to = null, title = "Messages", changed }) {
    this.#queue = queue;
    this.#to = to;
    this.#changed = changed;
    this.#state.addEventListener("change", () => this.#anew());
    this.#way.addEventListener("change", () => { this.#text.placeholder = WAYS.find(([value]) => value === this.#way.value)[2]; });
    this.#bulk = new Bulk({ queue, to }, () => this.#begin(), () => {
      this.#changed();
      this.read();
    });
    this.heading = element("h2", { tabindex: "-1" }, title);
    this.element = element("section", { "aria-label": title },
      this.heading,
      element("form", { class: "bar", onsubmit: (event) => { event.preventDefault(); this.#search(); } },
        field("State", this.#state), field("Search by", this.#way), field("Search for", this.#text),
        button("Search", null, { type: "submit" }),
        button("Refresh", () => this.read(), { about: "the messages" }),
        this.#next),
      this.#bulk.element, this.#told, this.#list);
  }

  #begin() {
    return new Walk(this.#queue, this.#state.value || null, this.#way.value, this.#text.value.trim());
  }

  #anew() {
    this.#bulk.clear();
    return this.read();
  }

  /** Opens the page of the message with this id or key, or lists those that match. */
  async #search() {
    const [way, text] = [this.#way.value, this.#text.value.trim()];
    if (text === "" || !(way === "id" || (way === "key" && !text.endsWith("*")))) {
      await this.#anew();
      return;
    }
    let id = text;
    if (way === "key") {
      try {
        id = (await api.headOfKey(this.#queue, text)).headers.get("X-Message-Id");
      } catch (error) {
        const none = error instanceof api.Problem && error.status === 404;
        say(none ? `No message of ${this.#queue} has the key ${text}.` : reason(error), "failed");
        return;
      }
    }
    location.hash = messageLink(this.#queue, id).hash;
  }

  /** Shows that there are none, without asking mq. */
  none() {
    this.#bulk.clear();
    this.#list.replaceChildren();
    this.#next.disabled = true;
    write(this.#told, "There are no dead letters.");
  }

  /** Shows the next page, or the first. */
  async read({ goesOn = false } = {}) {
    this.#reading += 1;
    const mine = this.#reading;
    const walk = goesOn ? this.#walk : this.#begin();
    let found;
    try {
      found = await walk.next(COUNT);
    } catch (error) {
      if (mine !== this.#reading) return;
      this.#list.replaceChildren();
      this.#next.disabled = true;
      write(this.#told, reason(error));
      return;
    }
    if (mine !== this.#reading) return;
    this.#walk = walk;
    // A disabled button loses the focus: move it to the list that was asked for.
    const isLeft = document.activeElement === this.#next && !walk.goesOn;
    this.#next.disabled = !walk.goesOn;
    if (isLeft) this.heading.focus();
    this.#bulk.begin();
    this.#list.replaceChildren(...found.map((message) => this.#item(message)));
    const more = walk.goesOn ? "; there may be more" : "";
    const which = STATES.find(([value]) => value === this.#state.value)[1].toLowerCase();
    const these = found.length === 1 ? "1 message" : `${found.length} messages`;
    write(this.#told, `${found.length ? these : "No message"} (${which})${goesOn ? " on this page" : ""}${more}. Viewing consumes nothing.`);
  }

  #item(message) {
    const [what, text] = bodyOf(message);
    const facts = [
      ["State", stateOf(message)], ["Receives", message.receives], ["Published", when(message.published)],
      ["Due", when(message.due)], ["Size", bytes(message.size)],
      ...(message.sidelined ? [["Sidelined", message.sidelined.reason]] : []),
      ...(message.reason ? [["Reason", message.reason]] : []),
    ];
    const headers = Object.entries(message.headers);
    return element("li", { "data-message": message.id },
      element("p", { class: "id" }, message.state === "removed" ? null : this.#bulk.box(message), messageLink(this.#queue, message.id)),
      element("dl", { class: "facts" }, ...facts.map(([term, value]) =>
        element("div", {}, element("dt", {}, term), element("dd", {}, value instanceof Node ? value : String(value))))),
      element("details", {},
        element("summary", {}, element("span", { class: "unseen" }, "Headers and body: "),
          element("code", {}, beginning(text, PREVIEW_CHARS) || "(empty)")),
        element("dl", { class: "headers" }, ...headers.map(([name, value]) =>
          element("div", {}, element("dt", {}, name), element("dd", {}, value)))),
        element("p", { class: "hint" }, what),
        element("pre", { class: "body", tabindex: "0", role: "region", "aria-label": `Body of ${message.id}` }, text)),
      this.#actions(message));
  }

  #actions(message) {
    const may = actionsOf(this.#queue, message, this.#to);
    const about = `message ${message.id}`;
    const act = (title, text, action, done, does, style = "") => button(action, async () => {
      if (!(await confirm(`${title}?`, `${text} ${message.id}`, action))) return;
      if (await attempt(() => does(this.#queue, message), done)) {
        this.#changed();
        await this.read();
        this.heading.focus();
      }
    }, { about, style });
    return element("div", { class: "bar" },
      may.retry ? act("Retry the message", `It moves back to ${this.#to} and is ready there.`, "Retry", `The message is back in ${this.#to}.`, () => retryOne(this.#to, message.id)) : null,
      may.release ? act("Release the message", "It becomes ready at once for the next fetch.", "Release", "The message is released.", api.release) : null,
      may.sideline ? act("Sideline the message", `It moves to the sideline ${this.#queue}_SIDELINE.`, "Sideline", "The message is sidelined.", api.sideline) : null,
      may.discard ? act("Delete the message", "It is not delivered again. This cannot be undone.", "Delete", "The message is deleted.", api.discard, "danger") : null);
  }
}
