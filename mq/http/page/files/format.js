// Figures, ages and times as text. Pure.

const AGES = [[86400, "d"], [3600, "h"], [60, "min"]];

/** Seconds as an age, in its two largest units. */
export function age(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 60) return seconds < 10 ? `${seconds.toFixed(1)} s` : `${Math.floor(seconds)} s`;
  const at = AGES.findIndex(([size]) => seconds >= size);
  const [size, unit] = AGES[at];
  const [next, smaller] = AGES[at + 1] ?? [1, "s"];
  const rest = Math.floor((seconds % size) / next);
  return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${smaller}` : ""}`;
}

/** A rate a second; null if it is not known yet. */
export function rate(value) {
  if (value === null || value === undefined) return "–";
  return value >= 100 ? value.toFixed(0) : value.toFixed(1);
}

const TIMES = new Intl.DateTimeFormat("en-GB", {
  year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
});
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** An RFC 3339 time in the viewer's time zone. */
export function time(text) {
  return text ? TIMES.format(new Date(text)) : "–";
}

/** An RFC 3339 time as its distance from `now`, in milliseconds since the epoch. */
export function relative(text, now) {
  const seconds = (now - Date.parse(text)) / 1000;
  const whole = Math.abs(seconds) < 60 ? Math.floor(Math.abs(seconds)) : Math.abs(seconds);
  const said = whole < 10 ? `${Math.floor(whole)} s` : age(whole);
  return seconds >= 0 ? `${said} ago` : `in ${said}`;
}

/** Milliseconds since the epoch, as a time of the day. */
export function clock(ms) {
  return CLOCK.format(new Date(ms));
}

const DAY = new Intl.DateTimeFormat("en-GB", { weekday: "short", hour: "2-digit", minute: "2-digit" });

/** Milliseconds since the epoch, as a time of a day of the week. */
export function day(ms) {
  return DAY.format(new Date(ms));
}

const SIZES = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(count) {
  let at = 0;
  let value = count;
  while (value >= 1024 && at < SIZES.length - 1) {
    value /= 1024;
    at += 1;
  }
  return at === 0 && value === 1 ? "1 byte" : `${at === 0 ? value : value.toFixed(1)} ${SIZES[at]}`;
}

/** The beginning of a text in one line. */
export function beginning(text, chars) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > chars ? `${line.slice(0, chars)}…` : line;
}
