// A message's body as text: formatted JSON, text or hexadecimal; and an image as pixels. Nothing of a
// body becomes markup.

import { element } from "./elements.js";

const HEX_BYTES = 4096;
const HEX_LINE = 16;
const INDENTS_MAX = 32;
// Pixels are drawn from these alone: a decoder of images runs no scripts.
const IMAGES = /^image\/(png|jpeg|gif|webp|avif|bmp)$/;
const IMAGE_SIDE_MAX = 1024;

/** JSON with a line for each value. Figures, duplicate names and their order stay as they were
 * written, which JSON.parse would not keep. Throws SyntaxError or RangeError. */
export function indented(text) {
  JSON.parse(text);
  let depth = 0;
  const line = () => `\n${"  ".repeat(Math.min(depth, INDENTS_MAX))}`;
  const parts = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s"{}[\],:]+/g) ?? [];
  return parts.map((part, at) => {
    if (part === "{" || part === "[") {
      if (parts[at + 1] === "}" || parts[at + 1] === "]") return part;
      depth += 1;
      return part + line();
    }
    if (part === "}" || part === "]") {
      if (parts[at - 1] === "{" || parts[at - 1] === "[") return part;
      depth -= 1;
      return line() + part;
    }
    if (part === ",") return part + line();
    return part === ":" ? ": " : part;
  }).join("");
}

/** The first bytes as lines of an offset, hexadecimal and ASCII. */
export function hexadecimal(bytes) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, HEX_BYTES); at += HEX_LINE) {
    const part = [...bytes.subarray(at, Math.min(at + HEX_LINE, HEX_BYTES))];
    const digits = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const signs = part.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(HEX_LINE * 3 - 1)}  ${signs}`);
  }
  if (bytes.length > HEX_BYTES) lines.push(`… ${bytes.length - HEX_BYTES} more`);
  return lines.join("\n");
}

function textOf(bytes, isWhole) {
  try {
    // The end of a part may be within a character.
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: !isWhole });
  } catch {
    return null;
  }
}

async function imageOf(bytes, type) {
  const bitmap = await createImageBitmap(new Blob([bytes], { type }));
  const scale = Math.min(1, IMAGE_SIDE_MAX / Math.max(bitmap.width, bitmap.height));
  const [width, height] = [bitmap.width, bitmap.height].map((side) => Math.max(1, Math.round(side * scale)));
  const canvas = element("canvas", { width, height, role: "img", "aria-label": `Image, ${bitmap.width} by ${bitmap.height} pixels` });
  canvas.getContext("2d").drawImage(bitmap, 0, 0, width, height);
  bitmap.close();
  return canvas;
}

/** The ways to show a body, the best first: `[name, node or a promise of one]` by functions.
 * `isWhole`: not only the first bytes are known. */
export function waysOf(bytes, type, isWhole) {
  const ways = [];
  const pre = (name, text) => element("pre", { class: "body", tabindex: "0", role: "region", "aria-label": `Body as ${name}` }, text);
  const text = textOf(bytes, isWhole);
  if (text !== null && isWhole && /^\s*[{["]/.test(text)) {
    try {
      const formatted = indented(text);
      ways.push(["JSON", () => pre("JSON", formatted)]);
    } catch {
      // It is no JSON: the text shows why.
    }
  }
  if (text !== null) ways.push(["Text", () => pre("text", text)]);
  ways.push(["Hexadecimal", () => pre("hexadecimal", hexadecimal(bytes))]);
  // An image comes last: it is decoded only for a person who asks for it.
  if (isWhole && IMAGES.test(type)) ways.push(["Image", () => imageOf(bytes, type)]);
  return ways;
}
