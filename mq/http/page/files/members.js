// The processes that share the upkeep of queues, and their last report.

import * as api from "./api.js";
import { reason } from "./dialogs.js";
import { cells, element, table, when, write } from "./elements.js";

const HEADS = ["Member", "Host", "Process", "Leads", "Queues", "Started", "Last report", "Status"];
const FIGURES = ["Process", "Queues"];

export class Members {
  title = "Members";
  #body;
  #told = element("p", { class: "hint", "aria-live": "polite" });

  constructor() {
    const [made, body] = table(this.title, HEADS, FIGURES);
    this.#body = body;
    this.heading = element("h1", { tabindex: "-1" }, this.title);
    this.element = element("section", { "aria-label": this.title },
      this.heading,
      element("p", { class: "hint" }, "The mq-mover processes that share the upkeep of this root's queues."),
      this.#told,
      made);
  }

  async look(signal) {
    let found;
    try {
      found = await api.members(signal);
    } catch (error) {
      if (!(error instanceof api.Problem) || error.status !== 403) throw error;
      this.#body.replaceChildren();
      write(this.#told, reason(error));
      return;
    }
    const count = found.members.length;
    write(this.#told, count ? `${count} in total.` : "No process has reported yet.");
    this.#body.replaceChildren(...found.members.map(row));
  }

  show() {}
}

function row(member) {
  return element("tr", { "data-member": member.member },
    element("th", { scope: "row" }, member.member),
    ...cells(HEADS, FIGURES, [
      member.host, member.pid, member.leads ? "yes" : "no", member.queues.count,
      when(member.started), when(member.told), member.gone ? "gone" : "active",
    ]));
}
