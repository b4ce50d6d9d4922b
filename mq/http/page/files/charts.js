// Lines over time, as SVG; beside each a table that says the same.

import { clock } from "./format.js";
import { drawn, element } from "./elements.js";

const HEIGHT = 150;
const LEFT = 44;
const BELOW = 20;
const ABOVE = 8;
const ROWS_MAX = 20;

/** The least round number that is no less: 1, 2 or 5 with zeros. */
export function ceiling(value) {
  if (value <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

function path(points) {
  let line = "";
  let pen = "M";
  for (const point of points) {
    if (point === null) {
      pen = "M";
      continue;
    }
    line += `${pen}${point[0].toFixed(1)} ${point[1].toFixed(1)}`;
    pen = "L";
  }
  return line;
}

/** A small picture of what came and went, which says nothing that is not beside it in figures. */
export function spark(samples, lines) {
  const most = Math.max(1, ...samples.flatMap((each) => lines.map((line) => each[line] ?? 0)));
  const [width, height] = [96, 24];
  const x = (at) => (samples.length < 2 ? 0 : (at / (samples.length - 1)) * width);
  const made = lines.map((line) => drawn("path", {
    class: `line ${line}`,
    d: path(samples.map((each, at) => (each[line] === null ? null : [x(at), height - 2 - (each[line] / most) * (height - 4)]))),
  }));
  return drawn("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, ...made);
}

/** A chart of some `lines` (`{ name, title }`) in a figure; `draw(samples)` has it show those. */
export class Chart {
  #lines;
  #svg = drawn("svg", { class: "chart", role: "img" });
  #body = element("tbody");
  #samples = [];
  #title;
  #write;

  constructor(title, lines, write) {
    this.#title = title;
    this.#lines = lines;
    this.#write = write;
    const legend = lines.map((line) => element("li", {},
      drawn("svg", { viewBox: "0 0 28 8", class: "swatch", "aria-hidden": "true" },
        drawn("path", { class: `line ${line.name}`, d: "M0 4L28 4" })),
      line.title));
    const head = ["Time", ...lines.map((line) => line.title)];
    this.element = element("figure", {},
      element("figcaption", {}, title),
      this.#svg,
      element("ul", { class: "legend" }, ...legend),
      element("details", { ontoggle: () => this.#tabulate() },
        element("summary", {}, "As a table", element("span", { class: "unseen" }, `: ${title}`)),
        element("div", { class: "scrolls", tabindex: "0", role: "region", "aria-label": `Table: ${title}` },
          element("table", {},
            element("thead", {}, element("tr", {}, ...head.map((each) => element("th", { scope: "col" }, each)))),
            this.#body))));
  }

  draw(samples) {
    const width = Math.max(240, Math.round(this.element.clientWidth) || 320);
    const values = samples.flatMap((each) => this.#lines.map((line) => each[line.name] ?? 0));
    const most = ceiling(Math.max(1, ...values));
    const [begin, end] = [samples[0]?.at ?? 0, samples.at(-1)?.at ?? 1];
    const x = (at) => LEFT + ((at - begin) / Math.max(1, end - begin)) * (width - LEFT - 8);
    const y = (value) => ABOVE + (1 - value / most) * (HEIGHT - ABOVE - BELOW);
    const parts = [0, most].map((value) => drawn("g", {},
      drawn("path", { class: "rule", d: `M${LEFT} ${y(value)}L${width - 8} ${y(value)}` }),
      drawn("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, String(value))));
    if (samples.length > 0) {
      parts.push(drawn("text", { x: LEFT, y: HEIGHT - 4 }, clock(begin)));
      if (samples.length > 1) {
        parts.push(drawn("text", { x: width - 8, y: HEIGHT - 4, "text-anchor": "end" }, clock(end)));
      }
    }
    for (const line of this.#lines) {
      const points = samples.map((each) => (each[line.name] === null ? null : [x(each.at), y(each[line.name])]));
      parts.push(drawn("path", { class: `line ${line.name}`, d: path(points) }));
    }
    this.#svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.#svg.setAttribute("aria-label", this.#said(samples));
    this.#svg.replaceChildren(...parts);
    this.#samples = samples;
    this.#tabulate();
  }

  #said(samples) {
    const last = samples.at(-1);
    const now = last ? this.#lines.map((line) => `${line.title} ${this.#write(last[line.name])}`).join(", ") : "nothing yet";
    return `${this.#title}. Now: ${now}`;
  }

  /** Has the table say what the picture shows, where it is seen. */
  #tabulate() {
    if (!this.#body.closest("details").open) return;
    const rows = this.#samples.slice(-ROWS_MAX).reverse().map((each) => element("tr", {},
      element("th", { scope: "row" }, clock(each.at)),
      ...this.#lines.map((line) => element("td", {}, this.#write(each[line.name])))));
    this.#body.replaceChildren(...rows);
  }
}
