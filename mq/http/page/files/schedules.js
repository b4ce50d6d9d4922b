// A queue's schedules, and when each fires next.

import * as api from "./api.js";
import { attempt, confirm, reason } from "./dialogs.js";
import { button, cells, element, field, table, when, write } from "./elements.js";
import { age, bytes } from "./format.js";

const HEADS = ["Schedule", "When", "Next", "Fired", "Skipped", "Body", "Action"];
const FIGURES = ["Fired", "Skipped", "Body"];

function rhythm(schedule) {
  if (schedule.problem) return schedule.problem.title;
  return schedule.cron === undefined ? `every ${age(schedule.every)}` : `${schedule.cron} (${schedule.tz})`;
}

export class Schedules {
  #queue;
  #body;
  #told = element("p", { class: "hint", "aria-live": "polite" });

  constructor(queue) {
    this.#queue = queue;
    const [made, body] = table("Schedules", HEADS, FIGURES);
    this.#body = body;
    this.heading = element("h2", { tabindex: "-1" }, "Schedules");
    this.element = element("section", { "aria-label": "Schedules" },
      this.heading,
      element("div", { class: "bar" }, button("Refresh", () => this.read(), { about: "the schedules" })),
      this.#told,
      made,
      this.#form());
  }

  open() {
    this.read();
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
    write(this.#told, found.length ? `${found.length} in total.` : "This queue has no schedule.");
  }

  #row(schedule) {
    const known = !schedule.problem;
    return element("tr", { "data-schedule": schedule.name },
      element("th", { scope: "row" }, schedule.name),
      ...cells(HEADS, FIGURES, [
        rhythm(schedule), known ? when(schedule.next) : "–", known ? schedule.fired : "–",
        known ? schedule.skipped : "–", known ? bytes(schedule.size) : "–",
      ]),
      element("td", { "data-label": HEADS.at(-1) }, button("Delete", async () => {
        const text = `${schedule.name} stops firing. Its messages stay.`;
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
      const text = `${name.value} publishes to ${this.#queue} from now on. It replaces a schedule of the same name.`;
      if (!(await confirm("Save the schedule?", text, "Save"))) return;
      const query = { every: every.value, cron: cron.value, tz: zone.value };
      const send = () => api.schedule(this.#queue, name.value, body.value, type.value, query);
      if (await attempt(send, `The schedule ${name.value} is saved.`)) this.read();
    };
    return element("details", {},
      element("summary", {}, "Add a schedule"),
      element("form", { onsubmit: put },
        element("div", { class: "fields" },
          field("Name", name),
          field("Interval in seconds", every, { hint: "either an interval" }),
          field("Cron expression", cron, { hint: "or a cron expression" }),
          field("Time zone of the cron expression", zone, { hint: "default: UTC" }),
          field("Content type of its messages", type)),
        field("Body of its messages", body),
        button("Save", null, { type: "submit", style: "primary", about: "the schedule" })));
  }
}
