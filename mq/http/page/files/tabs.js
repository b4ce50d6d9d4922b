// Tabs that the URL names: links, of which the arrow keys choose.

import { element, write } from "./elements.js";

const STEPS = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };

export class Tabs {
  #links = new Map();
  #counts = new Map();
  #panel = element("div", { role: "tabpanel", id: "part" });

  /** `titles` by name; `hrefOf(name)` is a tab's address. */
  constructor(label, titles, hrefOf) {
    for (const [name, title] of Object.entries(titles)) {
      const count = element("span", { class: "count" });
      this.#counts.set(name, count);
      this.#links.set(name, element("a", { role: "tab", id: `tab-${name}`, href: hrefOf(name), "aria-controls": "part" }, title, count));
    }
    const list = element("div", { class: "tabs", role: "tablist", "aria-label": label, onkeydown: (event) => this.#key(event) },
      ...this.#links.values());
    this.element = element("div", {}, list, this.#panel);
  }

  /** Shows a part in the panel of its tab. */
  select(name, part) {
    for (const [each, link] of this.#links) {
      link.setAttribute("aria-selected", String(each === name));
      link.tabIndex = each === name ? 0 : -1;
    }
    this.#panel.setAttribute("aria-labelledby", `tab-${name}`);
    if (part !== this.#panel.firstElementChild) this.#panel.replaceChildren(part);
  }

  /** Writes a number behind a tab's title, unless it is 0. */
  count(name, number) {
    const count = this.#counts.get(name);
    if (count) write(count, number ? ` ${number}` : "");
  }

  #key(event) {
    const links = [...this.#links.values()];
    const at = links.indexOf(document.activeElement);
    if (at < 0) return;
    if (event.key === " ") links[at].click();
    else if (event.key in STEPS) {
      const step = STEPS[event.key];
      const next = Number.isFinite(step) ? (at + step + links.length) % links.length : step < 0 ? 0 : links.length - 1;
      links[next].focus();
      location.replace(links[next].hash);
    } else return;
    event.preventDefault();
  }
}
