// A queue's schedules: what comes again, and when next.

import * as api from "./api.js";
import { attempt, confirm, reason } from "./dialogs.js";
import { button, element, field, write } from "./elements.js";
import { age, bytes, time } from "./format.js";

const HEADS = ["Schedule", "When", "Next", "Fired", "Skipped", "Body", "Action"];

function when(schedule) {
  if (schedule.problem) return schedule.problem.title;
  return schedule.cron === undefined ? `every ${age(schedule.every)}` : `${schedule.cron} (${schedule.tz})`;
}

export class Schedules {
  #queue;
  #body = element("tbody");
  #told = element("p", { class: "hint", "aria-live": "polite" });

  constructor(queue) {
    this.#queue = queue;
    this.heading = element("h2", { tabindex: "-1" }, "Schedules");
    this.element = element("section", { "aria-label": "Schedules" },
      this.heading,
      element("div", { class: "bar" }, button("Look again", () => this.read(), { about: "at the schedules" })),
      this.#told,
      element("table", { class: "blocks", "aria-label": "Schedules" },
        element("thead", {}, element("tr", {}, ...HEADS.map((head) => element("th", { scope: "col" }, head)))),
        this.#body),
      this.#form());
  }

  async read() {
    let found;
    try {
      found = (await api.schedules(this.#queue)).schedules;
    } catch (error) {
      this.#body.replaceChildren();
      write(this.#told, reason(error));
      return;
    }
    this.#body.replaceChildren(...found.map((schedule) => this.#row(schedule)));
    write(this.#told, found.length ? `${found.length} in all.` : "This queue has no schedule.");
  }

  #row(schedule) {
    const known = !schedule.problem;
    const cells = [
      when(schedule), known ? time(schedule.next) : "–", known ? schedule.fired : "–",
      known ? schedule.skipped : "–", known ? bytes(schedule.size) : "–",
    ];
    return element("tr", { "data-schedule": schedule.name },
      element("th", { scope: "row" }, schedule.name),
      ...cells.map((cell, at) => element("td", { "data-label": HEADS[at + 1] }, String(cell))),
      element("td", { "data-label": HEADS.at(-1) }, button("Delete", async () => {
        const text = `${schedule.name} fires no more. The messages that it made stay.`;
        if (!(await confirm("Delete the schedule?", text, "Delete"))) return;
        if (await attempt(() => api.unschedule(this.#queue, schedule.name), `The schedule ${schedule.name} is deleted.`)) {
          await this.read();
          this.heading.focus();
        }
      }, { style: "danger", about: `schedule ${schedule.name}` })));
  }

  #form() {
    const name = element("input", { type: "text", required: true, autocomplete: "off", spellcheck: "false" });
    const every = element("input", { type: "number", min: "0", step: "0.001", inputmode: "decimal" });
    const cron = element("input", { type: "text", autocomplete: "off", spellcheck: "false" });
    const zone = element("input", { type: "text", autocomplete: "off", spellcheck: "false" });
    const type = element("input", { type: "text", value: "text/plain", required: true, autocomplete: "off" });
    const body = element("textarea", { rows: "2", spellcheck: "false" });
    const put = async (event) => {
      event.preventDefault();
      const text = `${name.value} publishes to ${this.#queue} by itself from then on. One of that name is replaced.`;
      if (!(await confirm("Put the schedule?", text, "Put"))) return;
      const query = { every: every.value, cron: cron.value, tz: zone.value };
      const send = () => api.schedule(this.#queue, name.value, body.value, type.value, query);
      if (await attempt(send, `The schedule ${name.value} is there.`)) this.read();
    };
    return element("details", {},
      element("summary", {}, "Put a schedule"),
      element("form", { onsubmit: put },
        element("div", { class: "fields" },
          field("Name", name),
          field("Every so many seconds", every, { hint: "either this" }),
          field("Cron expression", cron, { hint: "or this" }),
          field("Time zone of the cron expression", zone, { hint: "UTC, if it is left out" }),
          field("Content type of its messages", type)),
        field("Body of its messages", body),
        button("Put", null, { type: "submit", style: "primary", about: "the schedule" })));
  }
}
