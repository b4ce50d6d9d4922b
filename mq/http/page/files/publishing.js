// A form that publishes one message.

import * as api from "./api.js";
import { attempt, confirm } from "./dialogs.js";
import { button, element, field } from "./elements.js";

export class Publishing {
  constructor(queue, published) {
    const body = element("textarea", { rows: "4", spellcheck: "false" });
    const type = element("input", { type: "text", value: "text/plain", autocomplete: "off", required: true });
    const key = element("input", { type: "text", autocomplete: "off" });
    const delay = element("input", { type: "number", min: "0", step: "0.001", inputmode: "decimal" });
    const priority = element("input", { type: "number", min: "0", max: "9", step: "1", inputmode: "numeric" });
    const publish = async (event) => {
      event.preventDefault();
      const text = `Publishes a message of ${new TextEncoder().encode(body.value).length} bytes to ${queue}.`;
      if (!(await confirm("Publish the message?", text, "Publish"))) return;
      const query = { key: key.value, delay: delay.value, priority: priority.value };
      const send = () => api.publish(queue, body.value, type.value, query);
      if (await attempt(send, ({ id }) => `Published: ${id}`)) {
        body.value = "";
        key.value = "";
        published();
      }
    };
    this.element = element("section", { "aria-label": "Publish" },
      element("details", {},
        element("summary", {}, "Publish a message"),
        element("form", { onsubmit: publish },
          field("Body", body),
          element("div", { class: "fields" },
            field("Content type", type),
            field("Lookup key", key, { hint: "optional" }),
            field("Delay in seconds", delay, { hint: "default: the queue's" }),
            field("Priority", priority, { hint: "0 to 9; default: the queue's" })),
          button("Publish", null, { type: "submit", style: "primary" }))));
  }
}
