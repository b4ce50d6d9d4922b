// Reading a queue's figures, and what they cover.

import * as api from "./api.js";

/** Says which processes the rates cover, since it may not be all. */
export function told(all) {
  const known = all.filter((seen) => seen?.latest);
  const processes = Math.max(1, ...known.map((seen) => seen.latest.process.of));
  // The queue with the fewest known processes counts: no rate claims to cover more than it does.
  const counted = Math.min(processes, ...known.map((seen) => seen.rates.counted));
  const whose = processes > 1 ? `at least ${counted} of the ${processes} processes` : "the process";
  return `Counts cover the whole root and are a few seconds old at most. Rates cover ${whose} at this address, sampled while this page is open; another mq on the same root has its own.`;
}

/** Reads a queue's figures into the board; a refusal is kept as the queue's problem. Returns the problem
 * where the queue does not exist, else null. Throws Lost, and the abort of a poll. */
export async function see(board, name, signal) {
  try {
    board.take(name, await api.describe(name, signal), Date.now());
  } catch (error) {
    if (!(error instanceof api.Problem) || error.status === 401) throw error;
    if (error.slug !== "queue-not-found") board.refused(name, error);
    else {
      board.forget(name);
      return error;
    }
  }
  return null;
}
