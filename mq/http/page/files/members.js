// Who does the upkeep of queues, and what each told last.

import * as api from "./api.js";
import { reason } from "./dialogs.js";
import { element, write } from "./elements.js";
import { time } from "./format.js";

const HEADS = ["Member", "Host", "Process", "Leads", "Queues", "Started", "Told last", "Is"];

export class Members {
  title = "Members";
  #body = element("tbody");
  #told = element("p", { class: "hint", "aria-live": "polite" });

  constructor() {
    this.heading = element("h1", { tabindex: "-1" }, this.title);
    this.element = element("section", { "aria-label": this.title },
      this.heading,
      element("p", { class: "hint" }, "The mq-movers that share the upkeep of this root's queues."),
      this.#told,
      element("table", { class: "blocks", "aria-label": this.title },
        element("thead", {}, element("tr", {}, ...HEADS.map((head) => element("th", { scope: "col" }, head)))),
        this.#body));
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
    write(this.#told, count ? `${count} in all.` : "Nobody has told anything yet.");
    this.#body.replaceChildren(...found.members.map(row));
  }

  show() {}
}

function row(member) {
  const cells = [
    member.host, member.pid, member.leads ? "yes" : "no", member.queues.count,
    time(member.started), time(member.told), member.gone ? "gone" : "there",
  ];
  return element("tr", { "data-member": member.member },
    element("th", { scope: "row" }, member.member),
    ...cells.map((cell, at) => element("td", { "data-label": HEADS[at + 1] }, String(cell))));
}
