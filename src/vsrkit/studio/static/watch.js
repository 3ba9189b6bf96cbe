// Source and result of a job in step: every part that is finished, later the whole.

import { get } from "./api.js";
import { el } from "./dom.js";
import { commandLine, progressText, resultParts } from "./job-card.js";
import { Player } from "./player/player.js";
import { store } from "./store.js";

const AGAIN_MS = 2000;  // between questions for new parts
const UNFINISHED = ["queued", "running", "pausing", "paused"];
const WAITING = "No part is finished yet; the first one appears here by itself.";

export class WatchView {
  constructor(id) {
    this.id = id;
    this.title = "Watch";
    this.closing = new AbortController();
    this.heading = el("h1", { text: "Watch" });
    this.figures = el("p", { class: "quiet numbers" });
    this.bar = el("progress", { max: 1, value: 0, "aria-label": "Progress" });
    this.note = el("p", { class: "notice", role: "status", text: "Looking for finished parts\u2026" });
    this.result = el("div", { class: "result" });
    this.player = new Player({
      label: "Source and result", names: ["Source", "Result"],
      picture: (side, frame) => "/api/jobs/" + id + "/frames/" + frame + (side ? "/result.png" : "/source.png"),
      times: async part => (await get("/api/jobs/" + id + "/parts/" + part.number)).times_s,
    });
    this.help = el("p", { class: "help quiet", hidden: true,
      text: "Comma and full stop step by a frame, K plays and pauses, arrow keys move the divider. A paused picture is lossless." });
    this.player.element.hidden = true;
    this.element = el("div", { class: "view watch" },
      el("p", { class: "back" }, el("a", { href: "#/queue", text: "Queue" })), el("div", {}, this.heading, this.figures), this.bar, this.note, this.player.element,
      this.help, this.result);
    const { signal } = this.closing;
    window.addEventListener("keydown", event => event.target.matches("body, main, h1") && this.player.key(event), { signal });
    for (const name of ["jobs", "loaded"]) store.addEventListener(name, () => this.#showJob(), { signal });
    this.#showJob();
    this.#ask();
  }

  #showJob() {
    const job = store.jobs.get(this.id);
    if (!job) {
      if (store.loaded) this.#say("This job is not in the list any more.");
      return;
    }
    this.title = this.heading.textContent = job.name;
    const shown = ["running", "pausing", "paused"].includes(job.state);
    this.bar.hidden = !shown;
    this.figures.textContent = job.state === "done" ? "\u2192 " + job.output.name : progressText(job);
    if (job.progress?.total) this.bar.value = job.progress.done / job.progress.total;
    const key = job.state + job.output.size;
    if (key !== this.key) this.result.replaceChildren(...resultParts(job), commandLine(job.command));
    const progress = key + job.progress?.done;
    if (progress !== this.progress) this.#askSoon();
    Object.assign(this, { key, progress });
  }

  #askSoon() {
    this.timer ??= setTimeout(() => {
      this.timer = null;
      this.#ask();
    }, AGAIN_MS);
  }

  async #ask() {
    try {
      const media = await get("/api/jobs/" + this.id + "/parts", { signal: this.closing.signal });
      if (this.closing.signal.aborted) return;
      this.player.element.hidden = this.help.hidden = media.parts.length === 0;
      this.#say(media.parts.length ? "" : WAITING);
      if (media.parts.length) this.player.update(media);
    } catch (error) {
      if (this.closing.signal.aborted) return;
      const begins = error.status === 409 && UNFINISHED.includes(store.jobs.get(this.id)?.state);
      this.#say(begins ? WAITING : error.message);
    }
  }

  #say(text) {
    this.note.hidden = !text;
    this.note.textContent = text;
  }

  close() {
    this.closing.abort();
    clearTimeout(this.timer);
    this.player.close();
  }
}
