// Asking mq: every request of the page goes through here.

const BASE = new URL("../", document.baseURI);
const PATIENCE_MS = 15_000;
const KEPT = "mq-token";

/** What mq refused, and why: the members of its problem. */
export class Problem extends Error {
  constructor(status, members) {
    super([members.title ?? `Status ${status}`, members.detail].filter(Boolean).join(": "));
    this.status = status;
    this.members = members;
    this.slug = String(members.type ?? "").split(":").pop();
  }
}

/** mq did not answer. */
export class Lost extends Error {}

let token = null;
try {
  token = sessionStorage.getItem(KEPT);
} catch {
  // A browser that keeps nothing: then it is only known to this page.
}

export function hasToken() {
  return token !== null;
}

export function useToken(value) {
  token = value || null;
  try {
    if (token === null) sessionStorage.removeItem(KEPT);
    else sessionStorage.setItem(KEPT, token);
  } catch {
    // As above.
  }
}

function urlOf(segments, query) {
  const url = new URL(segments.map(encodeURIComponent).join("/"), BASE);
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  return url;
}

/** A request; its answer's body as text. Throws Problem, Lost, or the signal's AbortError. */
async function ask(method, segments, { query = {}, headers = {}, body, signal } = {}) {
  const sent = headersOf(token === null ? headers : { ...headers, Authorization: `Bearer ${token}` });
  const patience = AbortSignal.timeout(PATIENCE_MS);
  let response;
  let text;
  try {
    response = await fetch(urlOf(segments, query), {
      method,
      headers: sent,
      body,
      cache: "no-store",
      credentials: "same-origin",
      redirect: "error",
      signal: signal ? AbortSignal.any([signal, patience]) : patience,
    });
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Lost(error.name === "TimeoutError" ? "mq takes too long to answer" : "mq does not answer");
  }
  document.dispatchEvent(new Event(response.status === 401 ? "unauthenticated" : "authenticated"));
  if (response.ok) return text;
  throw new Problem(response.status, membersOf(text));
}

/** Throws Problem for what no header may have: nothing is sent then, so it is not mq that is silent. */
function headersOf(members) {
  try {
    return new Headers(members);
  } catch {
    throw new Problem(0, { title: "A token or content type has characters that cannot be sent" });
  }
}

function membersOf(text) {
  try {
    const members = JSON.parse(text);
    return members !== null && typeof members === "object" ? members : {};
  } catch {
    return {};
  }
}

async function json(...asked) {
  return JSON.parse(await ask(...asked));
}

async function rows(...asked) {
  const text = await ask(...asked);
  return text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

const seen = (receives) => ({ "If-Match": `"${receives}"` });

export const list = (after, signal) => json("GET", ["-", "queues"], { query: { after, count: 1000 }, signal });
export const members = (signal) => json("GET", ["-", "members"], { signal });
export const describe = (queue, signal) => json("GET", [queue], { signal });
export const create = (queue) => json("PUT", [queue]);
export const remove = (queue) => json("DELETE", [queue]);
export const purge = (queue) => json("DELETE", [queue, "messages"]);

export const peek = (queue, { state, after, count }, signal) =>
  rows("GET", [queue, "peek"], { query: { state, after, count }, signal });
export const publish = (queue, body, type, query) =>
  json("POST", [queue, "messages"], { body, query, headers: { "Content-Type": type } });
export const release = (queue, message) =>
  json("PATCH", [queue, "messages", message.id], {
    body: '{"due_in_s": 0}',
    headers: { "Content-Type": "application/json", ...seen(message.receives) },
  });
export const sideline = (queue, message) =>
  json("POST", [queue, "messages", message.id, "sideline"], { headers: seen(message.receives) });
export const discard = (queue, message) =>
  ask("DELETE", [queue, "messages", message.id], { headers: seen(message.receives) });

export const schedules = (queue, signal) => json("GET", [queue, "schedules"], { signal });
export const schedule = (queue, name, body, type, query) =>
  json("PUT", [queue, "schedules", name], { body, query, headers: { "Content-Type": type } });
export const unschedule = (queue, name) => json("DELETE", [queue, "schedules", name]);

export const shovel = (queue, signal) => json("GET", [queue, "shovel"], { signal });
export const beginShovel = (queue, query) => json("POST", [queue, "shovel"], { query });
export const stopShovel = (queue) => json("DELETE", [queue, "shovel"]);
