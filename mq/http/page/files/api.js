// Every request of the page.

const BASE = new URL("../", document.baseURI);
const PATIENCE_MS = 15_000;
const KEPT = "mq-token";

/** A problem that mq answered; `members` are its fields. */
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
  // Without storage the token lives as long as this page.
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
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") url.searchParams.append(name, each);
    }
  }
  return url;
}

/** Sends a request and returns the answer's body as text. Throws Problem, Lost, or the signal's AbortError. */
async function ask(...asked) {
  return new TextDecoder().decode((await exchange(...asked)).bytes);
}

/** Sends a request and returns the answer's headers and bytes. Throws as `ask` does. */
async function exchange(method, segments, { query = {}, headers = {}, body, signal } = {}) {
  const sent = headersOf(token === null ? headers : { ...headers, Authorization: `Bearer ${token}` });
  const patience = AbortSignal.timeout(PATIENCE_MS);
  let response;
  let bytes;
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
    bytes = new Uint8Array(await response.arrayBuffer());
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Lost(error.name === "TimeoutError" ? "mq did not answer in time" : "mq does not answer");
  }
  document.dispatchEvent(new Event(response.status === 401 ? "unauthenticated" : "authenticated"));
  if (response.ok) return { headers: response.headers, bytes };
  throw new Problem(response.status, membersOf(new TextDecoder().decode(bytes)));
}

/** Throws Problem for characters that no header may have; nothing is sent then. */
function headersOf(members) {
  try {
    return new Headers(members);
  } catch {
    throw new Problem(0, { title: "The token or the content type has characters that a header cannot have" });
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

const seen = (receives) => ({ "If-Match": `"${receives}"` });
const JSON_TYPE = { "Content-Type": "application/json" };

export const list = (after, signal) => json("GET", ["-", "queues"], { query: { after, count: 1000 }, signal });
export const trends = (range, queue, signal) => json("GET", ["-", "trends"], { query: { range, queue }, signal });
export const members = (signal) => json("GET", ["-", "members"], { signal });
export const describe = (queue, signal) => json("GET", [queue], { signal });
export const create = (queue) => json("PUT", [queue]);
export const remove = (queue) => json("DELETE", [queue]);
export const purge = (queue) => json("DELETE", [queue, "messages"]);

/** A page of messages: `rows`, and where the next begins if mq says so. */
export async function peek(queue, query, signal) {
  const { headers, bytes } = await exchange("GET", [queue, "peek"], { query, signal });
  const lines = new TextDecoder().decode(bytes).split("\n").filter(Boolean);
  return { rows: lines.map((line) => JSON.parse(line)), after: headers.get("X-Peek-After") };
}
export const publish = (queue, body, type, query) =>
  json("POST", [queue, "messages"], { body, query, headers: { "Content-Type": type } });
export const release = (queue, message) =>
  json("PATCH", [queue, "messages", message.id], { body: '{"due_in_s": 0}', headers: { ...JSON_TYPE, ...seen(message.receives) } });
export const sideline = (queue, message) =>
  json("POST", [queue, "messages", message.id, "sideline"], { headers: seen(message.receives) });
export const discard = (queue, message) =>
  ask("DELETE", [queue, "messages", message.id], { headers: seen(message.receives) });
/** The settings, and their entity tag. */
export const settings = async (queue) => {
  const { headers, bytes } = await exchange("GET", [queue, "settings"]);
  return [JSON.parse(new TextDecoder().decode(bytes)), headers.get("ETag")];
};
/** Changes settings. `tag`: only if they still have this entity tag. */
export const change = (queue, patch, tag = null) =>
  json("PATCH", [queue, "settings"], { body: JSON.stringify(patch), headers: tag ? { ...JSON_TYPE, "If-Match": tag } : JSON_TYPE });
/** The document that declares all requests, and what settings mean. */
export const declared = () => json("GET", ["-", "openapi.json"]);

export const head = (queue, id, signal) => exchange("HEAD", [queue, "messages", id], { signal });
/** A message's body, or its first bytes. */
export const body = async (queue, id, count = null, signal = undefined) =>
  (await exchange("GET", [queue, "messages", id], { signal, headers: count ? { Range: `bytes=0-${count - 1}` } : {} })).bytes;
/** A WebSocket that shows a queue's messages as they become ready, from the last `last` on. */
export function follow(queue, last) {
  const url = new URL("-/consume", BASE);
  url.protocol = url.protocol.replace("http", "ws");
  const socket = new WebSocket(url);
  socket.addEventListener("open", () => socket.send(JSON.stringify({ follow: [{ queue, last }] })));
  return socket;
}

export const headOfKey = (queue, key, signal) => exchange("HEAD", [queue, "keys", key], { signal });
/** Acts on many messages of `{ id, receives }`; `kind`: acks, releases or sidelines. The results, in order. */
export const bulk = async (queue, kind, messages) =>
  (await json("POST", [queue, kind], { body: JSON.stringify({ messages }), headers: JSON_TYPE })).results;
export const history = (queue, id, signal) => json("GET", [queue, "messages", id, "history"], { signal });
export const failures = (queue, id, signal) => json("GET", [queue, "messages", id, "failures"], { signal });
export const publishCopy = (queue, body, headers, query) =>
  json("POST", [queue, "messages"], { body, query, headers: Object.fromEntries(headers) });

export const consumers = (queue, signal) => json("GET", [queue, "consumers"], { signal });
export const endConsumer = (queue, consumer) => json("DELETE", [queue, "consumers", consumer]);

export const schedules = (queue, signal) => json("GET", [queue, "schedules"], { signal });
export const schedule = (queue, name, body, type, query) =>
  json("PUT", [queue, "schedules", name], { body, query, headers: { "Content-Type": type } });
export const unschedule = (queue, name) => json("DELETE", [queue, "schedules", name]);

export const shovel = (queue, signal) => json("GET", [queue, "shovel"], { signal });
export const beginShovel = (queue, query) => json("POST", [queue, "shovel"], { query });
export const stopShovel = (queue) => json("DELETE", [queue, "shovel"]);
