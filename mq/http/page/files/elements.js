// Making elements. What comes from a message or a name is only ever text.

const SVG = "http://www.w3.org/2000/svg";
// A table that is laid out as blocks (on a phone) would lose what it is, unless it says so.
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

/** Sets a text where it is another: what reads aloud hears of changes alone. */
export function write(node, text) {
  const said = String(text);
  if (node.textContent !== said) node.textContent = said;
}

export function button(text, onclick, { about = "", style = "", ...more } = {}) {
  const hidden = about ? element("span", { class: "unseen" }, ` ${about}`) : null;
  return element("button", { type: "button", class: style || null, onclick, ...more }, text, hidden);
}

let fields = 0;

/** A labelled control: `{ label, control }` side by side in a block. */
export function field(text, control, { hint = "" } = {}) {
  fields += 1;
  control.id = `field-${fields}`;
  const said = hint ? element("span", { class: "hint", id: `hint-${fields}` }, hint) : null;
  if (said) control.setAttribute("aria-describedby", said.id);
  return element("div", { class: "field" }, element("label", { for: control.id }, text), control, said);
}
