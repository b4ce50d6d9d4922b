// Walks a queue's messages that match a search, state by state.

import * as api from "./api.js";

export const STATES = ["ready", "delayed", "leased", "removed"];
const PAGE_MAX = 1000;
// The most messages that one step looks at for a group, by which mq does not select.
const LOOKED_MAX = 10_000;

/** The ways to search: `[name, label, hint]`. */
export const WAYS = [
  ["none", "Everything", ""],
  ["id", "Id", "the whole id"],
  ["key", "Lookup key", "or a prefix: eu-*"],
  ["tag", "Tag", "the whole tag"],
  ["group", "Group", "the whole group"],
  ["header", "Header", "name=value, name=prefix*, name"],
  ["select", "Selection", "such as priority:5..,key:eu-*"],
];

/** What a peek takes for a search; `group` is compared here. */
function queryOf(way, text) {
  if (text === "") return {};
  if (way === "tag") return { tag: text };
  if (way === "key") return { select: `key:${text.replace(/[\\,]/g, "\\$&")}` };
  if (way === "header") return { select: `header:${text}` };
  return way === "select" ? { select: text } : {};
}

export class Walk {
  #queue;
  #states;
  #query;
  #group;
  #after = null;
  #left = [];

  /** `states`: one of STATES, or null for all. */
  constructor(queue, state, way = "none", text = "") {
    this.#queue = queue;
    this.#states = state ? [state] : [...STATES];
    this.#query = queryOf(way, text);
    this.#group = way === "group" && text !== "" ? text : null;
  }

  /** Whether there may be more. */
  get goesOn() {
    return this.#left.length > 0 || this.#states.length > 0;
  }

  /** The next messages that match, `count` at most; fewer if a step has looked at enough. */
  async next(count, signal) {
    let looked = 0;
    const found = this.#left.splice(0, count);
    while (found.length < count && this.#states.length > 0 && looked < LOOKED_MAX) {
      const wanted = this.#group === null ? Math.min(count - found.length, PAGE_MAX) : PAGE_MAX;
      const query = { ...this.#query, state: this.#states[0], count: wanted, after: this.#after };
      const { rows, after } = await api.peek(this.#queue, query, signal);
      looked += rows.length;
      this.#after = after ?? (rows.length < wanted ? null : rows.at(-1).id);
      if (this.#after === null) this.#states.shift();
      this.#left.push(...(this.#group === null ? rows : rows.filter((row) => row.group === this.#group)));
      found.push(...this.#left.splice(0, count - found.length));
    }
    return found;
  }
}
