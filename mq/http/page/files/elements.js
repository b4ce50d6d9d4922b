// Creates elements. Messages and names only ever become text nodes.

import { relative, time } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
// A table laid out as blocks (on a phone) loses its roles unless they are set.
const ROLES = { table: "table", thead: "rowgroup", tbody: "rowgroup", tr: "row", td: "cell" };

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function element(name, attributes = {}, ...children) {
  const role = ROLES[name] ?? (name === "th" ? `${attributes.scope ?? "col"}header`.replace("colh", "columnh") : undefined);
  return fill(document.createElement(name), role ? { role, ...attributes } : attributes, children);
}

export function drawn(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

/** Sets a text if it changed, so that screen readers read only changes. */
export function write(node, text) {
  const said = String(text);
  if (node.textContent !== said) node.textContent = said;
}

export function button(text, onclick, { about = "", style = "", ...more } = {}) {
  const hidden = about ? element("span", { class: "unseen" }, ` ${about}`) : null;
  return element("button", { type: "button", class: style || null, onclick, ...more }, text, hidden);
}

/** The address of a queue, or of what further segments name of it: a tab, and a thing of the tab. */
export function hrefOf(name, ...more) {
  return `#/queue/${[name, ...more].map(encodeURIComponent).join("/")}`;
}

/** A link to a queue. */
export function link(name, text = name) {
  return element("a", { href: hrefOf(name) }, text);
}

/** A table that a narrow window shows as blocks, and its body. `heads`: the titles of its columns; those in `figures` are
 * of numbers. */
export function table(label, heads, figures = []) {
  const body = element("tbody");
  const made = element("table", { class: "blocks", "aria-label": label },
    element("thead", {}, element("tr", {}, ...heads.map((head) =>
      element("th", { scope: "col", class: figures.includes(head) ? "figure" : null }, head)))),
    body);
  return [made, body];
}

/** The cells behind the first of a row: texts, or nodes. */
export function cells(heads, figures, values) {
  return values.map((value, at) => element("td", { "data-label": heads[at + 1], class: figures.includes(heads[at + 1]) ? "figure" : null },
    value instanceof Node ? value : String(value ?? "–")));
}

/** A link to a message's own page. */
export function messageLink(queue, id, text = id) {
  return element("a", { href: `#/message/${encodeURIComponent(queue)}/${encodeURIComponent(id)}` }, text);
}

/** A time as its distance from now, with the time itself on hover. */
export function when(text) {
  return text ? element("time", { datetime: text, title: time(text) }, relative(text, Date.now())) : "–";
}

let fields = 0;

/** A labelled control, with an optional hint. */
export function field(text, control, { hint = "" } = {}) {
  fields += 1;
  control.id = `field-${fields}`;
  const said = hint ? element("span", { class: "hint", id: `hint-${fields}` }, hint) : null;
  if (said) control.setAttribute("aria-describedby", said.id);
  return element("div", { class: "field" }, element("label", { for: control.id }, text), control, said);
}
