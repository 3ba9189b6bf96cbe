// Requests to the server, and its events. docs/studio.md describes all of them.

/** An answer about an error: `status` is that of HTTP, 0 without a connection. */
export class ApiError extends Error {
  constructor(status, message, more = {}) {
    super(message);
    Object.assign(this, { status, more });
  }
}

/** Send a request; returns the JSON of the answer, or its text. */
export async function request(method, path, body, { raw = false, signal } = {}) {
  const options = { method, signal, headers: {} };
  if (body !== undefined) {
    options.body = raw ? body : JSON.stringify(body);
    options.headers["Content-Type"] = raw ? "application/octet-stream" : "application/json";
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "the server does not answer");
  }
  const isJson = (answer.headers.get("Content-Type") ?? "").includes("json");
  const value = answer.status === 204 ? null : await (isJson ? answer.json() : answer.text());
  if (answer.ok) return value;
  if (answer.status === 401) window.dispatchEvent(new Event("signed-out"));
  const { error, ...more } = isJson ? value : {};
  throw new ApiError(answer.status, error ?? "the server answered with status " + answer.status, more);
}

export const get = (path, more) => request("GET", path, undefined, more);
export const post = (path, body = {}, more) => request("POST", path, body, more);
export const put = (path, body) => request("PUT", path, body);
export const patch = (path, body) => request("PATCH", path, body);
export const remove = path => request("DELETE", path);

const NAMES = ["hello", "job", "job-removed", "queue", "video", "library", "preview", "plan"];
const RETRY_MS = [500, 1000, 2000, 4000];
const HIDDEN_MS = 60_000;  // a page in the background gives its connection back: browsers have six for a server

/** Server-sent events as events of this object, with their value in `detail`; `open` and `lost` tell of the connection. */
export class Events extends EventTarget {
  constructor() {
    super();
    this.tries = 0;
    document.addEventListener("visibilitychange", () => {
      clearTimeout(this.hiding);
      if (document.hidden) this.hiding = setTimeout(() => this.stop(), HIDDEN_MS);
      else if (!this.source) this.start();
    });
  }

  start() {
    this.stop();
    this.source = new EventSource("/api/events");
    this.source.addEventListener("open", () => {
      this.tries = 0;
      this.dispatchEvent(new Event("open"));
    });
    this.source.addEventListener("error", () => this.#lost());
    for (const name of NAMES) {
      this.source.addEventListener(name, event => this.dispatchEvent(new CustomEvent(name, { detail: JSON.parse(event.data) })));
    }
  }

  #lost() {
    this.dispatchEvent(new Event("lost"));
    this.source?.close();  // browsers give up after some errors; this does not
    if (this.tries > 1) get("/api/session").catch(() => {});  // tells whether the page is signed out
    const wait = RETRY_MS[Math.min(this.tries++, RETRY_MS.length - 1)];
    this.timer = setTimeout(() => this.start(), wait);
  }

  stop() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }
}
