// What is known of the queues: their names, and of those that are looked at figures over time. Pure.

import { Rates } from "./rates.js";

const SAMPLES_MAX = 150;
const SEEN_MAX = 500;

export const FIGURES = ["ready", "in_flight", "delayed", "sidelined"];

/** A queue as it was seen last, and its samples of some minutes. */
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

  /** Behind which name the next part of the list begins. */
  get after() {
    return this.#after;
  }

  /** The next part of the list. What is gone is known once all of it was read anew. */
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

  /** Everything: somebody else looks. */
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
    // The one looked at last stays longest.
    this.#seen.delete(name);
    this.#seen.set(name, seen);
    if (this.#seen.size > SEEN_MAX) this.#seen.delete(this.#seen.keys().next().value);
    return seen;
  }
}
