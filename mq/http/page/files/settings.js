// A queue's settings, edited in place, each with its meaning and range; and the end of the queue.

import * as api from "./api.js";
import { attempt, confirm, reason } from "./dialogs.js";
import { button, cells, element, table, write } from "./elements.js";
import { age, bytes } from "./format.js";

const HEADS = ["Setting", "Value", "Meaning", "Range", "Action"];

let declaration = null;

/** The settings as mq declares them: JSON schemas by name. */
async function declared() {
  declaration ??= (await api.declared()).components.schemas.Settings.properties;
  return declaration;
}

const isOf = (schema, type) => [schema.type].flat().includes(type);

/** A number of a setting, in its unit. */
function amount(name, value) {
  if (name.endsWith("_s")) return value < 60 ? `${value} s` : age(value);
  return name.includes("bytes") ? bytes(value) : value.toLocaleString("en-GB");
}

function rangeOf(name, schema) {
  if (schema.minimum !== undefined) return `${amount(name, schema.minimum)} to ${amount(name, schema.maximum)}`;
  if (schema.format === "date-time") return "a time such as 2026-01-31T23:59:59Z, or nothing";
  if (schema.type === "object") return "a JSON object of texts";
  return schema.pattern ? "a name, or nothing" : "";
}

/** The meaning of a setting; what stands between backquotes is code. */
function meaningOf(schema) {
  return element("span", {}, ...(schema.description ?? "").split("`").map((part, at) => (at % 2 ? element("code", {}, part) : part)));
}

/** A control for a setting: `read()` is the value that it has, `put(value)` shows one. */
function controlOf(name, schema) {
  const more = { "aria-label": name, disabled: schema.readOnly === true };
  const text = (attributes) => element("input", { type: "text", autocomplete: "off", spellcheck: "false", ...attributes, ...more });
  if (schema.enum) {
    const control = element("select", more, ...schema.enum.map((word) => element("option", { value: word }, word)));
    return { control, read: () => control.value, put: (value) => { control.value = value; } };
  }
  if (isOf(schema, "boolean")) {
    const control = element("input", { type: "checkbox", ...more });
    return { control, read: () => control.checked, put: (value) => { control.checked = value; } };
  }
  if (isOf(schema, "object")) {
    const control = element("textarea", { rows: "2", spellcheck: "false", ...more });
    return { control, read: () => JSON.parse(control.value || "{}"), put: (value) => { control.value = JSON.stringify(value); } };
  }
  if (schema.minimum !== undefined) {
    const step = isOf(schema, "integer") ? "1" : "any";
    const control = text({ type: "number", min: schema.minimum, max: schema.maximum, step, required: true });
    return { control, read: () => Number(control.value), put: (value) => { control.value = value; } };
  }
  const control = text({});
  return { control, read: () => control.value.trim() || null, put: (value) => { control.value = value ?? ""; } };
}

export class Settings {
  #view;
  #body;
  #rows = new Map();
  #known = {};
  #etag = null;
  #told = element("p", { class: "hint", "aria-live": "polite" });
  #save = button("Save changes", null, { type: "submit", style: "primary", disabled: true });
  #undo = button("Discard changes", () => this.#put(), { disabled: true });

  constructor(view) {
    this.#view = view;
    const [made, body] = table("Settings", HEADS);
    this.#body = body;
    this.heading = element("h2", { tabindex: "-1" }, "Settings");
    const save = (event) => {
      event.preventDefault();
      this.#change();
    };
    this.element = element("div", {},
      element("section", { "aria-label": "Settings" },
        this.heading,
        element("form", { class: "settings", onsubmit: save, oninput: () => this.#mark() },
          element("div", { class: "bar kept" }, this.#save, this.#undo, this.#told), made)),
      this.#ending());
  }

  async open() {
    try {
      const [schemas, [values, etag]] = await Promise.all([declared(), api.settings(this.#view.name)]);
      [this.#known, this.#etag] = [values, etag];
      if (this.#rows.size === 0) this.#body.replaceChildren(...Object.entries(schemas).map((each) => this.#row(...each)));
    } catch (error) {
      this.#rows.clear();
      this.#body.replaceChildren();
      write(this.#told, reason(error));
      return;
    }
    this.#put();
  }

  #row(name, schema) {
    const made = { ...controlOf(name, schema), schema };
    this.#rows.set(name, made);
    return element("tr", { "data-setting": name },
      element("th", { scope: "row" }, element("code", {}, name)),
      ...cells(HEADS, [], [
        made.control, meaningOf(schema), rangeOf(name, schema),
        schema.readOnly ? "" : button("Default", () => this.#restore(name), { about: `of ${name}` }),
      ]));
  }

  /** Shows the settings that mq has. */
  #put() {
    for (const [name, { put }] of this.#rows) put(this.#known[name]);
    this.#mark();
  }

  /** What differs from the settings that mq has. Throws SyntaxError. */
  #changes() {
    const found = [...this.#rows].map(([name, { read }]) => [name, read()]);
    return found.filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(this.#known[name] ?? null));
  }

  #mark() {
    let names;
    try {
      names = this.#changes().map(([name]) => name);
      write(this.#told, names.length ? `Not saved: ${names.join(", ")}.` : "");
    } catch {
      names = ["labels"];
      write(this.#told, "The labels are no JSON object.");
    }
    for (const row of this.#body.children) row.classList.toggle("changed", names.includes(row.dataset.setting));
    this.#save.disabled = names.length === 0;
    this.#undo.disabled = names.length === 0;
  }

  async #change() {
    let changes;
    try {
      changes = this.#changes();
    } catch {
      return;
    }
    const text = changes.map(([name, value]) => `${name}: ${JSON.stringify(this.#known[name])} becomes ${JSON.stringify(value)}`).join("; ");
    if (!(await confirm("Save the settings?", `${text}.`, "Save"))) return;
    await this.#send(Object.fromEntries(changes), "The settings are saved.");
  }

  async #restore(name) {
    if (!(await confirm("Restore the default?", `${name} has its default again.`, "Restore"))) return;
    await this.#send({ [name]: null }, `${name} has its default.`);
  }

  async #send(patch, done) {
    if (!(await attempt(() => api.change(this.#view.name, patch, this.#etag), done))) return;
    this.#view.soon();
    await this.open();
    this.heading.focus();
  }

  #ending() {
    const { name } = this.#view;
    return element("section", { "aria-label": "Whole queue" },
      element("h2", {}, "Whole queue"),
      element("div", { class: "bar" },
        button("Purge", async () => {
          const text = `Deletes all messages of ${name} that were published until now, including those in flight and delayed. This cannot be undone.`;
          if (!(await confirm(`Purge ${name}?`, text, "Purge", { typed: name }))) return;
          if (await attempt(() => api.purge(name), `${name} is purged.`)) this.#view.soon();
        }, { style: "danger", about: `queue ${name}` }),
        button("Delete queue", async () => {
          const text = `Deletes the queue ${name} with all its messages, settings and schedules. Its sideline stays. This cannot be undone.`;
          if (!(await confirm(`Delete ${name}?`, text, "Delete queue", { typed: name }))) return;
          if (await attempt(() => api.remove(name), `${name} is deleted.`)) this.#view.forget();
        }, { style: "danger", about: name })));
  }
}
