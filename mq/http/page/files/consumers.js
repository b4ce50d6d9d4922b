// Who consumes a queue, in all processes of this mq, and the end of one of them.

import * as api from "./api.js";
import { attempt, confirm, reason } from "./dialogs.js";
import { button, cells, element, table, when, write } from "./elements.js";
import { rate } from "./format.js";

const HEADS = ["Consumer", "From", "Caller", "Since", "Priority", "Takes at most", "In flight", "Messages /s", "Delivered", "Action"];
const FIGURES = ["Priority", "Takes at most", "In flight", "Messages /s", "Delivered"];

export class Consumers {
  #queue;
  #body;
  #rows = new Map();
  #told = element("p", { class: "hint", "aria-live": "polite" });

  constructor(queue) {
    this.#queue = queue;
    const [made, body] = table("Consumers", HEADS, FIGURES);
    this.#body = body;
    this.heading = element("h2", { tabindex: "-1" }, "Consumers");
    this.element = element("section", { "aria-label": "Consumers" }, this.heading, this.#told, made);
  }

  async look(signal) {
    let found;
    try {
      found = await api.consumers(this.#queue, signal);
    } catch (error) {
      if (!(error instanceof api.Problem) || error.status === 401) throw error;
      this.#rows.clear();
      this.#body.replaceChildren();
      write(this.#told, reason(error));
      return;
    }
    const { consumers, complete } = found;
    const there = new Set(consumers.map(({ id }) => id));
    for (const [id, row] of this.#rows) {
      if (there.has(id)) continue;
      if (row.contains(document.activeElement)) this.heading.focus();
      row.remove();
      this.#rows.delete(id);
    }
    for (const consumer of consumers) this.#show(consumer);
    const count = consumers.length ? `${consumers.length} in total.` : "This queue has no consumer.";
    write(this.#told, complete ? count : `${count} Not all processes answered.`);
  }

  /** Updates a consumer's row; its button stays, and keeps the focus. */
  #show(consumer) {
    const said = cells(HEADS, FIGURES, [
      `${consumer.address} (${consumer.via}${consumer.active ? "" : ", waits"})`, consumer.caller, when(consumer.since),
      consumer.priority, consumer.credit, consumer.in_flight, rate(consumer.deliveries_per_s), consumer.delivered,
    ]);
    let row = this.#rows.get(consumer.id);
    if (!row) {
      row = element("tr", { "data-consumer": consumer.id },
        element("th", { scope: "row" }, consumer.id),
        ...said,
        element("td", { "data-label": HEADS.at(-1) }, button("End", () => this.#end(consumer.id), { style: "danger", about: `consumer ${consumer.id}` })));
      this.#rows.set(consumer.id, row);
      this.#body.append(row);
      return;
    }
    said.forEach((cell, at) => {
      if (row.children[at + 1].textContent !== cell.textContent) row.children[at + 1].replaceWith(cell);
    });
  }

  async #end(id) {
    const text = `${id} gets no more messages of ${this.#queue}. Those that it has are released.`;
    if (!(await confirm("End the consumer?", text, "End"))) return;
    if (await attempt(() => api.endConsumer(this.#queue, id), `The consumer ${id} has ended.`)) await this.look();
  }
}
