// The names of all queues, and the figures over time of those that are shown. Pure.

import { Rates } from "./rates.js";

const SAMPLES_MAX = 150;
const SEEN_MAX = 2000;
const OLD_S = 300;

export const SIDELINE = "_SIDELINE";

export const FIGURES = ["ready", "in_flight", "delayed", "sidelined"];

/** What of a queue needs attention, the heaviest first: `{ is, weight, text }`; `is` is its colour. */
export function troubles(seen) {
  if (!seen) return [];
  if (seen.problem) return [{ is: "bad", weight: 6, text: seen.problem.message }];
  const { latest, samples } = seen;
  if (!latest) return [];
  const [before, now] = [samples[0].sidelined, latest.sidelined];
  const dead = now === 1 ? "1 dead letter" : `${now} dead letters`;
  const found = [
    [latest.overdue > 0, "bad", 5, `${latest.overdue} overdue: is a mover running?`],
    [now > before, "bad", 4, `${dead}, ${now - before} new`],
    [latest.oldest_ready_age_s > OLD_S && latest.settings.paused === "none", "warn", 3, "oldest waits long"],
    [now > 0 && now <= before, "warn", 2, dead],
    [latest.settings.paused !== "none", "warn", 1, `paused: ${latest.settings.paused}`],
    [latest.expired, "warn", 1, "expired"],
  ];
  return found.filter(([is]) => is).map(([, is, weight, text]) => ({ is, weight, text }));
}

/** A queue's latest figures, and its samples of the last minutes. */
class Seen {
  constructor() {
    this.latest = null;
    this.problem = null;
    this.samples = [];
    this.rates = { in: null, out: null, counted: 0 };
    this.counting = new Rates();
  }

  take(said, now) {
    this.latest = said;
    this.problem = null;
    this.counting.take(said, now);
    this.rates = this.counting.at(now);
    const figures = Object.fromEntries(FIGURES.map((name) => [name, said[name]]));
    this.samples.push({ at: now, ...figures, in: this.rates.in, out: this.rates.out });
    if (this.samples.length > SAMPLES_MAX) this.samples.shift();
  }
}

export class Board {
  names = [];
  isWhole = false;
  #seen = new Map();
  #coming = [];
  #after = null;

  /** The name behind which the next page of the list begins. */
  get after() {
    return this.#after;
  }

  /** Takes the next page of the list. Deleted queues go once all of it was read anew. */
  list({ queues, next }) {
    this.#coming.push(...queues.map((each) => each.name));
    this.#after = next;
    if (!next) {
      this.names = this.#coming;
      this.#coming = [];
      this.isWhole = true;
    } else if (!this.isWhole) {
      this.names = [...this.#coming];
    }
  }

  /** The names without the sidelines of queues that exist: these are parts of their queues. */
  get queues() {
    const all = new Set(this.names);
    return this.names.filter((name) => !name.endsWith(SIDELINE) || !all.has(name.slice(0, -SIDELINE.length)));
  }

  seen(name) {
    return this.#seen.get(name);
  }

  take(name, said, now) {
    this.#known(name).take(said, now);
  }

  refused(name, problem) {
    this.#known(name).problem = problem;
  }

  forget(name) {
    this.#seen.delete(name);
    this.names = this.names.filter((each) => each !== name);
  }

  /** Forgets everything: the token changed. */
  clear() {
    this.names = [];
    this.isWhole = false;
    this.#seen.clear();
    this.#coming = [];
    this.#after = null;
  }

  #known(name) {
    let seen = this.#seen.get(name);
    if (!seen) seen = new Seen();
    // The map drops the queue shown longest ago.
    this.#seen.delete(name);
    this.#seen.set(name, seen);
    if (this.#seen.size > SEEN_MAX) this.#seen.delete(this.#seen.keys().next().value);
    return seen;
  }
}
