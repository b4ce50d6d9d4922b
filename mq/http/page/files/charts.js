// Lines over time, as SVG, each with a table of the same figures.

import { clock } from "./format.js";
import { drawn, element, write } from "./elements.js";

const HEIGHT = 150;
const LEFT = 44;
const BELOW = 20;
const ABOVE = 8;
const ROWS_MAX = 170;

/** The smallest round number (1, 2 or 5 with zeros) that is not below the value. */
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

/** A small chart of rates in and out; the figures stand beside it. */
export function spark(samples, lines, most) {
  const [width, height] = [96, 24];
  const x = (at) => (samples.length < 2 ? 0 : (at / (samples.length - 1)) * width);
  const made = lines.map((line) => drawn("path", {
    class: `line ${line}`,
    d: path(samples.map((each, at) => (each[line] === null ? null : [x(at), height - 2 - (each[line] / most) * (height - 4)]))),
  }));
  return drawn("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, ...made);
}

/** A chart of `lines` (`{ name, title }`) in a figure; `draw(samples)` updates it. */
export class Chart {
  #lines;
  #svg = drawn("svg", { class: "chart", role: "img" });
  #body = element("tbody");
  #reading = element("p", { class: "reading", "aria-hidden": "true" });
  #samples = [];
  #name = clock;
  #hover = null;
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
    for (const event of ["pointermove", "pointerdown", "pointerleave"]) {
      this.#svg.addEventListener(event, ({ type, clientX }) => {
        this.#hover = type === "pointerleave" ? null : clientX - this.#svg.getBoundingClientRect().left;
        this.draw(this.#samples, this.#name);
      });
    }
    this.element = element("figure", {},
      element("figcaption", {}, title),
      this.#svg,
      this.#reading,
      element("ul", { class: "legend" }, ...legend),
      element("details", { ontoggle: () => this.#tabulate() },
        element("summary", {}, "As a table", element("span", { class: "unseen" }, `: ${title}`)),
        element("div", { class: "scrolls", tabindex: "0", role: "region", "aria-label": `Table: ${title}` },
          element("table", {},
            element("thead", {}, element("tr", {}, ...head.map((each) => element("th", { scope: "col" }, each)))),
            this.#body))));
  }

  /** `name`: a sample's time as text. A sample without a line's value interrupts the line. */
  draw(samples, name = clock) {
    this.#name = name;
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
      parts.push(drawn("text", { x: LEFT, y: HEIGHT - 4 }, name(begin)));
      if (samples.length > 1) {
        parts.push(drawn("text", { x: width - 8, y: HEIGHT - 4, "text-anchor": "end" }, name(end)));
      }
    }
    for (const line of this.#lines) {
      const points = samples.map((each) => ((each[line.name] ?? null) === null ? null : [x(each.at), y(each[line.name])]));
      parts.push(drawn("path", { class: `line ${line.name}`, d: path(points) }));
    }
    parts.push(this.#read(samples, x));
    this.#svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.#svg.setAttribute("aria-label", this.#said(samples));
    this.#svg.replaceChildren(...parts);
    this.#samples = samples;
    this.#tabulate();
  }

  /** Writes the values at the pointer; returns the mark there. */
  #read(samples, x) {
    const known = samples.filter((each) => !each.isGap);
    if (this.#hover === null || known.length === 0) {
      write(this.#reading, "");
      return "";
    }
    const near = known.reduce((best, each) => (Math.abs(x(each.at) - this.#hover) < Math.abs(x(best.at) - this.#hover) ? each : best));
    write(this.#reading, [this.#name(near.at), ...this.#lines.map((line) => `${line.title} ${this.#write(near[line.name])}`)].join(" · "));
    return drawn("path", { class: "cursor", d: `M${x(near.at)} ${ABOVE}L${x(near.at)} ${HEIGHT - BELOW}` });
  }

  #said(samples) {
    const last = samples.at(-1);
    const now = last ? this.#lines.map((line) => `${line.title} ${this.#write(last[line.name])}`).join(", ") : "no data yet";
    return `${this.#title}. Now: ${now}`;
  }

  /** Fills the table with the chart's samples, if it is open. */
  #tabulate() {
    if (!this.#body.closest("details").open) return;
    const rows = this.#samples.filter((each) => !each.isGap).slice(-ROWS_MAX).reverse().map((each) => element("tr", {},
      element("th", { scope: "row" }, this.#name(each.at)),
      ...this.#lines.map((line) => element("td", {}, this.#write(each[line.name])))));
    this.#body.replaceChildren(...rows);
  }
}
