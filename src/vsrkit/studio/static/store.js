// What the page knows: the library, the jobs and the queue, kept up to date by events of the server.

import { Events, get } from "./api.js";

class Store extends EventTarget {
  constructor() {
    super();
    this.events = new Events();
    this.folders = [];
    this.videos = new Map();
    this.jobs = new Map();
    this.queue = { paused: false, order: [] };
    this.session = this.models = this.options = null;
    this.heard = 0;  // events about jobs and the queue
    this.newer = { videos: null, jobs: null };  // what events tell while all of a kind are fetched
    this.loaded = false;  // whether library and jobs were fetched
    const on = (name, action) => this.events.addEventListener(name, event => action(event.detail));
    // What fails here is fetched again when the connection is back.
    on("hello", () => this.refresh().catch(() => {}));
    on("library", () => this.fetchLibrary().catch(() => {}));
    on("video", video => {
      this.newer.videos?.set(video.id, video);
      this.#set("videos", video);
    });
    on("job", job => {
      this.heard++;
      this.newer.jobs?.set(job.id, job);
      this.#set("jobs", job);
    });
    on("job-removed", ({ id }) => {
      this.newer.jobs?.set(id, null);
      this.jobs.delete(id);
      this.#tell("jobs");
    });
    on("queue", queue => {
      this.heard++;
      this.newer.jobs?.set("queue", queue);
      this.queue = queue;
      this.#tell("jobs");
    });
    for (const name of ["preview", "plan"]) {
      on(name, value => this.dispatchEvent(new CustomEvent(name, { detail: value })));
    }
  }

  /** Listen, and fetch what does not change. */
  async start() {
    this.events.start();
    await this.#fetchBasics();
  }

  async #fetchBasics() {
    const [session, models, options] = await Promise.all(["session", "models", "options"].map(name => get("/api/" + name)));
    Object.assign(this, { session, models, options });
    this.#tell("ready");
  }

  async refresh() {
    if (!this.session) await this.#fetchBasics();
    await Promise.all([this.fetchLibrary(), this.fetchJobs()]);
    this.loaded = true;
    this.#tell("loaded");
  }

  fetchLibrary() {
    return this.#fetch("videos", "/api/library", ({ folders }, newer) => {
      this.folders = folders;
      this.videos = new Map(folders.flatMap(folder => folder.videos).map(video => [video.id, newer.get(video.id) ?? video]));
    });
  }

  fetchJobs() {
    return this.#fetch("jobs", "/api/jobs", ({ queue, jobs }, newer) => {
      this.queue = newer.get("queue") ?? queue;
      newer.delete("queue");
      this.jobs = new Map([...jobs.map(job => [job.id, job]), ...newer].filter(([, job]) => job));
    });
  }

  /** Ask for all of a kind; an answer that a later request will replace is dropped. */
  async #fetch(kind, path, take) {
    const newer = this.newer[kind] = new Map();
    const answer = await get(path);
    if (newer !== this.newer[kind]) return;
    this.newer[kind] = null;
    take(answer, newer);
    this.#tell(kind);
  }

  /** A new value of a video or job. */
  #set(kind, value) {
    const before = this[kind].get(value.id);
    this[kind].set(value.id, value);
    this.dispatchEvent(new CustomEvent(kind, { detail: { value, before } }));
  }

  /** The answer to a request about jobs; `take` shows it, unless events have arrived meanwhile, which are newer. */
  async settle(request, take) {
    const { heard } = this, answer = await request;
    if (heard === this.heard) take(answer);
    return answer;
  }

  setJob(job) {
    this.#set("jobs", job);
  }

  setQueue(queue) {
    this.queue = queue;
    this.#tell("jobs");
  }

  #tell(name) {
    this.dispatchEvent(new CustomEvent(name, { detail: {} }));
  }

  /** The unfinished jobs in their order, then the finished ones, newest first. */
  get orderedJobs() {
    const waiting = this.queue.order.map(id => this.jobs.get(id)).filter(Boolean);
    const ids = new Set(this.queue.order);
    const rest = [...this.jobs.values()].filter(job => !ids.has(job.id));
    return { waiting, finished: rest.sort((a, b) => (b.finished ?? b.created) - (a.finished ?? a.created)) };
  }

  /** The models that can be used. */
  get readyModels() {
    return this.models?.models.filter(model => model.ready) ?? [];
  }
}

export const store = new Store();

/** Settings of the page that stay on this machine. */
export const remembered = {
  get(name, fallback) {
    try {
      return JSON.parse(localStorage.getItem("vsrkit-" + name)) ?? fallback;
    } catch {
      return fallback;
    }
  },
  set(name, value) {
    try {
      localStorage.setItem("vsrkit-" + name, JSON.stringify(value));
    } catch {
      // Private windows may refuse to store.
    }
  },
};
