// One message: its body, headers, history and failures, and the actions on it.

import * as api from "./api.js";
import { SIDELINE } from "./board.js";
import { waysOf } from "./bodies.js";
import { attempt, confirm, reason } from "./dialogs.js";
import { button, element, field, link, when, write } from "./elements.js";
import { bytes } from "./format.js";
import { actionsOf, stateOf } from "./messages.js";
import { retryOne } from "./shovel.js";

const SHOWN_BYTES = 1024 * 1024;
const COPIED_BYTES = 8 * 1024 * 1024;
// What a browser decodes by itself.
const DECODED = /^(x-)?(gzip|deflate|br|zstd)$/i;
const KEPT = /^(content-type|content-encoding|traceparent|tracestate|ce-.+|x-attribute-.+)$/;

/** What HEAD says of a message. */
function messageOf(id, headers) {
  const of = (name) => headers.get(name);
  const tags = of("X-Message-Tags");
  return {
    id,
    state: of("X-Message-State"), receives: Number(of("X-Message-Receives")),
    published: of("X-Message-Published"), due: of("X-Message-Due"), size: Number(of("Content-Length")),
    group: of("X-Message-Group"), reason: of("X-Message-Reason"), sidelined: of("X-Message-Sidelined"),
    schedule: of("X-Message-Schedule"),
    tags: tags ? tags.split(/,\s*/).map((tag) => decodeURIComponent(tag.replaceAll("%", "%25").replaceAll("=", "%"))) : [],
    priority: /,p=(\d)/.exec(id)?.[1] ?? null,
    type: (of("Content-Type") ?? "").split(";")[0].trim().toLowerCase(),
    isEncoded: DECODED.test(of("Content-Encoding") ?? ""),
    headers: [...headers].filter(([name]) => KEPT.test(name)),
  };
}

function rowsOf(facts) {
  return facts.filter(([, value]) => value !== null && value !== "").map(([term, value]) =>
    element("div", {}, element("dt", {}, term), element("dd", {}, value instanceof Node ? value : String(value))));
}

export class MessageView {
  #queue;
  #id;
  #known = null;
  #isRead = false;
  #facts = element("dl", { class: "facts" });
  #problem = element("p", { class: "note", role: "status" });
  #actions = element("div", { class: "bar" });
  #headers = element("dl", { class: "headers" });
  #way = element("select");
  #ways = new Map();
  #told = element("p", { class: "hint" });
  #body = element("div");
  #events = element("ol", { class: "timeline" });
  #recorded = element("p", { class: "hint" });
  #failures = element("div");

  constructor(watch, queue, id) {
    this.watch = watch;
    this.#queue = queue;
    this.#id = id;
    this.title = `Message ${id}`;
    this.heading = element("h1", { tabindex: "-1" }, "Message ", element("span", { class: "id" }, id));
    this.#way.addEventListener("change", () => this.#showBody());
    const part = (title, ...children) => element("section", { "aria-label": title }, element("h2", {}, title), ...children);
    this.element = element("section", { class: "message", "aria-label": this.title },
      element("p", {}, element("a", { href: "#/" }, "All queues"), " · ", link(queue)),
      this.heading, this.#problem, this.#facts, this.#actions,
      part("Body", element("div", { class: "bar" }, field("Show as", this.#way), this.#told), this.#body),
      part("Headers", this.#headers),
      part("Failures", this.#failures),
      part("History", this.#recorded, this.#events));
  }

  get #source() {
    return this.#queue.endsWith(SIDELINE) ? this.#queue.slice(0, -SIDELINE.length) : this.#queue;
  }

  async look(signal) {
    let headers;
    try {
      headers = (await api.head(this.#queue, this.#id, signal)).headers;
    } catch (error) {
      if (!(error instanceof api.Problem) || error.status === 401) throw error;
      // An answer to HEAD has no words.
      const why = await refusal(api.body(this.#queue, this.#id, 1, signal)) ?? error;
      write(this.#problem, reason(why));
      this.#actions.replaceChildren();
      if (this.#known?.state !== null) await this.#readPast(signal);
      this.#known = { state: null };
      return;
    }
    write(this.#problem, "");
    const message = messageOf(this.#id, headers);
    const isSame = ["state", "receives", "due", "reason"].every((name) => this.#known?.[name] === message[name]);
    this.#known = message;
    if (!isSame) {
      this.#show(message);
      await this.#readPast(signal);
    }
    if (!this.#isRead) await this.#readBody(message, signal);
  }

  show() {}

  #show(message) {
    this.#facts.replaceChildren(...rowsOf([
      ["State", stateOf(message)], ["Receives", message.receives], ["Published", when(message.published)],
      ["Due", when(message.due)], ["Size", bytes(message.size)], ["Priority", message.priority], ["Group", message.group],
      ["Tags", message.tags.join(", ")], ["Schedule", message.schedule], ["Sidelined", message.sidelined], ["Reason", message.reason],
    ]));
    this.#headers.replaceChildren(...rowsOf(message.headers));
    this.#actions.replaceChildren(...this.#buttons(message));
  }

  #buttons(message) {
    const source = this.#source;
    const may = actionsOf(this.#queue, message, source === this.#queue ? null : source);
    const act = (name, title, text, done, does, style = "") => button(name, async () => {
      if (!(await confirm(`${title}?`, text, name))) return;
      if (await attempt(() => does(this.#queue, message), done)) {
        this.heading.focus();
        this.watch.soon();
      }
    }, { style });
    const isRetry = message.receives > 0;
    return [
      may.retry ? act("Retry", "Retry the message", `It moves back to ${source} and is ready there.`, `The message is back in ${source}.`,
        () => retryOne(source, message.id)) : null,
      may.release ? act(isRetry ? "Retry now" : "Release", "Release the message",
        isRetry ? "It becomes ready at once, in place of its consumer's or its backoff's time." : "It becomes ready at once, before its due time.",
        "The message is released.", api.release) : null,
      may.sideline ? act("Sideline", "Sideline the message", `It moves to the sideline ${this.#queue}${SIDELINE}.`, "The message is sidelined.", api.sideline) : null,
      this.#again(message),
      may.discard ? act("Delete", "Delete the message", "It is not delivered again. This cannot be undone.", "The message is deleted.", api.discard, "danger") : null,
    ].filter(Boolean);
  }

  #again(message) {
    const target = this.#source;
    return button("Publish again", async () => {
      if (message.size > COPIED_BYTES) {
        await attempt(() => Promise.reject(new api.Problem(0, { title: `The page copies bodies of at most ${bytes(COPIED_BYTES)}` })), "");
        return;
      }
      const text = `Publishes a new message to ${target} with the same body, headers, tags, group and priority, without the lookup key. This one stays.`;
      if (!(await confirm("Publish again?", text, "Publish again"))) return;
      const query = { priority: message.priority, group: message.group, tag: message.tags };
      const headers = message.headers.filter(([name]) => !message.isEncoded || name !== "content-encoding");
      const copy = async () => api.publishCopy(target, await api.body(this.#queue, message.id), headers, query);
      if (await attempt(copy, ({ id }) => `Published: ${id}`)) this.heading.focus();
    }, { about: "as a new message" });
  }

  async #readBody(message, signal) {
    // No part of an encoded body can be decoded.
    const isWhole = message.size <= SHOWN_BYTES || message.isEncoded;
    let known = new Uint8Array();
    this.#isRead = true;
    if (message.size > 0) {
      try {
        known = await api.body(this.#queue, this.#id, isWhole ? null : SHOWN_BYTES, signal);
      } catch (error) {
        this.#isRead = false;
        if (signal?.aborted) throw error;
        write(this.#told, `The body cannot be read: ${reason(error)}`);
        return;
      }
    }
    this.#ways = new Map(waysOf(known, message.type, isWhole));
    this.#way.replaceChildren(...[...this.#ways.keys()].map((name) => element("option", {}, name)));
    const size = message.isEncoded ? `${bytes(known.length)} decoded` : bytes(message.size);
    write(this.#told, isWhole ? size : `The first ${bytes(SHOWN_BYTES)} of ${size}`);
    await this.#showBody();
  }

  async #showBody() {
    const way = this.#way.value;
    let made;
    try {
      made = await this.#ways.get(way)();
    } catch {
      made = element("p", { class: "note" }, "The image cannot be decoded.");
    }
    if (way === this.#way.value) this.#body.replaceChildren(made);
  }

  /** Reads the failures and the history, which outlive a message; of a dead letter those of its queue too. */
  async #readPast(signal) {
    const queues = [...new Set([this.#source, this.#queue])];
    const histories = await Promise.all(queues.map((queue) => optional(api.history(queue, this.#id, signal))));
    const events = histories.flatMap((each) => each?.events ?? []).sort((one, other) => (one.time < other.time ? -1 : 1));
    const isRecording = histories.some((each) => each?.recording);
    const left = histories.reduce((sum, each) => sum + (each?.left_out ?? 0), 0);
    write(this.#recorded, [
      events.length ? "" : "No events.",
      isRecording ? "" : `${this.#source} records no history: turn its setting history on.`,
      left ? `${left} earlier events are left out.` : "",
    ].filter(Boolean).join(" "));
    this.#events.replaceChildren(...events.map(({ time, event, ...rest }) => element("li", {},
      when(time), " ", element("strong", {}, event),
      ...Object.entries(rest).flatMap(([name, value]) => [` ${name} `, name === "due" ? when(value) : factOf(value)]))));
    const { failures } = (await optional(api.failures(this.#queue, this.#id, signal))) ?? { failures: [] };
    this.#failures.replaceChildren(...failures.toReversed().map((each) => element("article", {},
      element("p", {}, when(each.time), " ", element("strong", {}, each.event), ` from ${each.queue}, receives ${each.receives}`),
      element("dl", { class: "facts" }, ...rowsOf([["Type", each.type ?? null], ["Handler", each.handler ?? null], ["Text", each.text ?? null]])),
      each.trace ? element("pre", { class: "body", tabindex: "0", role: "region", "aria-label": `Trace of ${each.time}` }, each.trace) : null)));
    if (failures.length === 0) this.#failures.append(element("p", { class: "hint" }, "No consumer gave a reason."));
  }
}

function factOf(value) {
  if (Array.isArray(value)) return value.join(", ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** The problem that mq answers, or null. */
async function refusal(answer) {
  try {
    await answer;
  } catch (error) {
    if (error instanceof api.Problem) return error;
    throw error;
  }
  return null;
}

/** The answer, or null where mq refuses it. */
async function optional(answer) {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof api.Problem && error.status !== 401) return null;
    throw error;
  }
}
