// Rates a second: the difference of two answers' totals. Pure.
//
// Each process of mq (`--processes`) counts for itself, and any of them may answer: an answer is
// compared with the last one of the same process, and the recent rates of all are summed.

const OVER_MS_MIN = 500;
const KEPT_MS = 15_000;

export class Rates {
  #totals = new Map();
  #rates = new Map();

  /** Takes the next description of a queue, which came at `now`, in milliseconds. */
  take(said, now) {
    const { index, of } = said.process;
    const at = Date.parse(said.as_of.totals);
    const after = { at, in: said.totals.published, out: said.totals.fetched };
    const before = this.#totals.get(index);
    // A restarted process counts from 0, and after a clock was put back there is no rate.
    if (!before || after.at < before.at || after.in < before.in || after.out < before.out) {
      this.#totals.set(index, after);
      this.#rates.delete(index);
    } else if (after.at - before.at >= OVER_MS_MIN) {
      const seconds = (after.at - before.at) / 1000;
      this.#totals.set(index, after);
      this.#rates.set(index, {
        in: (after.in - before.in) / seconds,
        out: (after.out - before.out) / seconds,
        now,
      });
    }
    for (const known of [...this.#totals.keys()]) {
      if (known >= of && known !== index) {
        this.#totals.delete(known);
        this.#rates.delete(known);
      }
    }
  }

  /** `{ in, out, counted }` of the processes that answered twice recently; nulls if none did. */
  at(now) {
    const fresh = [...this.#rates.values()].filter((each) => now - each.now <= KEPT_MS);
    if (fresh.length === 0) return { in: null, out: null, counted: 0 };
    const sum = (name) => fresh.reduce((total, each) => total + each[name], 0);
    return { in: sum("in"), out: sum("out"), counted: fresh.length };
  }
}
