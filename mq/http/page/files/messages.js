// A queue's messages, looked at and not consumed; and what can be done with one.

import * as api from "./api.js";
import { attempt, confirm, reason } from "./dialogs.js";
import { button, element, field, write } from "./elements.js";
import { beginning, bytes, time } from "./format.js";

const COUNT = 25;
const PREVIEW_CHARS = 80;
const STATES = [
  ["ready", "Ready"], ["delayed", "Delayed and in flight"], ["leased", "Leased, many at a time"], ["removed", "Removed"],
];

/** What a person calls the state: who was fetched and is to come back is in flight. */
export function stateOf(message) {
  return message.state === "delayed" && message.receives > 0 ? "in flight" : message.state;
}

/** What may be done with a message, by its state and its queue. */
export function actionsOf(queue, message) {
  const isMovable = message.state === "ready" || message.state === "delayed";
  return {
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
  return [`${isText ? "Body" : "Body, no UTF-8, in base64"}${part}`, text];
}

export class Messages {
  #queue;
  #changed;
  #list = element("ul", { class: "messages" });
  #state = element("select", {}, ...STATES.map(([value, text]) => element("option", { value }, text)));
  #told = element("p", { class: "hint", "aria-live": "polite" });
  #next = button("Next page", () => this.read(this.#last), { disabled: true });
  #last = null;
  #reading = 0;

  constructor(queue, changed) {
    this.#queue = queue;
    this.#changed = changed;
    this.#state.addEventListener("change", () => this.read());
    this.heading = element("h2", { tabindex: "-1" }, "Messages");
    this.element = element("section", { "aria-label": "Messages" },
      this.heading,
      element("div", { class: "bar" },
        field("State", this.#state),
        button("Look again", () => this.read(), { about: "at the messages" }),
        this.#next),
      this.#told, this.#list);
  }

  /** Shows a page; `after` an id, or the first one. */
  async read(after = null) {
    this.#reading += 1;
    const mine = this.#reading;
    let found;
    try {
      found = await api.peek(this.#queue, { state: this.#state.value, count: COUNT, after });
    } catch (error) {
      if (mine !== this.#reading) return;
      this.#list.replaceChildren();
      this.#next.disabled = true;
      write(this.#told, reason(error));
      return;
    }
    if (mine !== this.#reading) return;
    this.#last = found.at(-1)?.id ?? null;
    // A button that can be pressed no more loses the focus: it goes to what was pressed for.
    const isLeft = document.activeElement === this.#next && found.length < COUNT;
    this.#next.disabled = found.length < COUNT;
    if (isLeft) this.heading.focus();
    this.#list.replaceChildren(...found.map((message) => this.#item(message)));
    const more = found.length < COUNT ? "" : ", and perhaps more";
    const which = STATES.find(([value]) => value === this.#state.value)[1].toLowerCase();
    const these = found.length === 1 ? "1 message" : `${found.length} messages`;
    write(this.#told, `${found.length ? these : "No message"} (${which})${after ? " on this page" : ""}${more}. Nothing is consumed by looking.`);
  }

  #item(message) {
    const [what, text] = bodyOf(message);
    const facts = [
      ["State", stateOf(message)], ["Receives", message.receives], ["Published", time(message.published)],
      ["Due", time(message.due)], ["Size", bytes(message.size)],
      ...(message.sidelined ? [["Sidelined", message.sidelined.reason]] : []),
    ];
    const headers = Object.entries(message.headers);
    return element("li", { "data-message": message.id },
      element("p", { class: "id" }, message.id),
      element("dl", { class: "facts" }, ...facts.map(([term, value]) =>
        element("div", {}, element("dt", {}, term), element("dd", {}, String(value))))),
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
    const may = actionsOf(this.#queue, message);
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
      may.release ? act("Release the message", "It is ready at once, for whoever fetches next.", "Release", "The message is released.", api.release) : null,
      may.sideline ? act("Sideline the message", `It goes out of the way, to ${this.#queue}_SIDELINE.`, "Sideline", "The message is in the sideline.", api.sideline) : null,
      may.discard ? act("Delete the message", "Nobody gets it any more. This cannot be undone.", "Delete", "The message is deleted.", api.discard, "danger") : null);
  }
}
