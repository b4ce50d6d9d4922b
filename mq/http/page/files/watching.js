// Polling: one poll at a time, and none while the page is hidden.

import { Lost, Problem } from "./api.js";

const EVERY_MS = 2000;
const AGAIN_MS = [1000, 2000, 4000];

/** Calls `look(signal)` while the page is visible, and `tell(error or null)` with its outcome. */
export class Watch {
  #look;
  #tell;
  #timer = null;
  #now = null;
  #isWanted = false;
  #failures = 0;

  constructor(look, tell) {
    this.#look = look;
    this.#tell = tell;
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.#rest();
      else this.soon();
    });
  }

  /** Polls now, or once the current poll ends. */
  soon() {
    if (this.#now) this.#isWanted = true;
    else this.#turn();
  }

  /** Aborts the current poll and polls anew. */
  anew() {
    this.#now?.abort();
    this.soon();
  }

  #rest() {
    clearTimeout(this.#timer);
    this.#now?.abort();
  }

  async #turn() {
    clearTimeout(this.#timer);
    if (document.hidden) return;
    const controller = new AbortController();
    this.#now = controller;
    this.#isWanted = false;
    try {
      await this.#look(controller.signal);
      this.#failures = 0;
      this.#tell(null);
    } catch (error) {
      if (!controller.signal.aborted) this.#failed(error);
    }
    this.#now = null;
    const pause = this.#failures ? AGAIN_MS[Math.min(this.#failures, AGAIN_MS.length) - 1] : EVERY_MS;
    this.#timer = setTimeout(() => this.#turn(), this.#isWanted ? 0 : pause);
  }

  #failed(error) {
    if (!(error instanceof Lost) && !(error instanceof Problem)) console.error(error);
    this.#failures += 1;
    this.#tell(error);
  }
}

/** Calls `act` with each thing, `atATime` at once. */
export async function each(things, atATime, act) {
  const rest = things[Symbol.iterator]();
  const workers = Array.from({ length: atATime }, async () => {
    for (const thing of rest) await act(thing);
  });
  await Promise.all(workers);
}
