// One job of the queue: its state and progress, what can be done with it, and what came out.

import { get, post, remove } from "./api.js";
import { cancelDialog, changeDialog } from "./dialogs.js";
import { announce, arrange, button, bytes, count, duration, el, icon, toast } from "./dom.js";
import { store } from "./store.js";

const STATES = { queued: "Waiting", running: "Running", pausing: "Pausing", paused: "Paused", done: "Done", failed: "Failed", cancelled: "Cancelled" };
const STAGES = { scan: "looking for cuts", upscale: "", write: "writing the file" };

/** What a job is doing, in a line of figures. */
export function progressText(job) {
  const at = job.progress;
  if (!at) return job.state === "running" ? "starts\u2026" : "";
  const parts = [STAGES[at.stage] ?? at.stage];
  if (at.total && at.stage !== "write") parts.push(count(at.done) + " of " + count(at.total) + " frames");
  if (at.shots > 1) parts.push("shot " + at.shot + " of " + at.shots);
  if (job.state === "running") {
    if (at.fps && at.stage === "upscale") parts.push((at.fps < 10 ? at.fps.toFixed(2) : Math.round(at.fps)) + " frames per second");
    if (at.eta_s && at.stage !== "write") parts.push(duration(at.eta_s) + " left");
  }
  if (at.workers) parts.push(at.workers + " workers");
  if (job.memory) parts.push(bytes(job.memory) + " memory");
  return parts.filter(Boolean).join(" \u00b7 ");
}

/** The options of a job in a line. */
function optionsText(job) {
  const { model, ...others } = job.options;
  const rest = Object.entries(others).map(([name, value]) => name.replaceAll("_", " ") + " " + value);
  return [model ?? store.models?.default, ...rest, job.report && "report"].filter(Boolean).join(" \u00b7 ");
}

/** A line of text in a box, with a button that copies it. */
export function commandLine(text) {
  const copy = button("Copy", { icon: "copy", class: "small", label: "Copy the command" }, async () => {
    try {
      await navigator.clipboard.writeText(text);
      announce("copied");
      copy.lastChild.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(line);  // without https only the selection is permitted
      copy.lastChild.textContent = "Press Ctrl+C";
    }
    setTimeout(() => { copy.lastChild.textContent = "Copy"; }, 3000);
  });
  const line = el("code", { text });
  return el("div", { class: "command" }, line, copy);
}

/** The folder, the downloads and the command of a finished job. */
export function resultParts(job) {
  const done = job.state === "done", exists = done && job.output.size !== null;
  return [
    done && el("p", { class: "quiet place" }, icon("folder"), el("span", { text: job.output.folder })),
    done && !exists && el("p", { class: "error", text: "The file does not exist any more." }),
    exists && el("div", { class: "actions" },
      el("a", { class: "button", href: "/api/jobs/" + job.id + "/result", download: "" }, icon("download"), "Download " + bytes(job.output.size)),
      job.report && el("a", { class: "button", href: "/api/jobs/" + job.id + "/report", target: "_blank", rel: "noopener" }, icon("report"), "Fidelity report")),
  ].filter(Boolean);
}

export class JobCard {
  constructor(job, view) {
    this.id = job.id;
    this.view = view;
    const label = "Move " + job.name;
    this.grip = el("span", { class: "grip", "aria-hidden": "true", title: "Drag to change the order" }, icon("grip"));
    this.up = button("", { icon: "up", class: "plain", label: label + " up" }, () => view.move(this.id, -1));
    this.down = button("", { icon: "down", class: "plain", label: label + " down" }, () => view.move(this.id, 1));
    this.order = el("div", { class: "order" }, this.grip, this.up, this.down);
    this.thumbnail = el("div", { class: "thumbnail" });
    this.state = el("span", { class: "state" });
    this.bar = el("progress", { max: 1, value: 0, "aria-label": "Progress of " + job.name });
    this.figures = el("p", { class: "quiet numbers figures" });
    this.error = el("p", { class: "error" });
    this.output = el("p", { class: "quiet output" });
    this.options = el("p", { class: "quiet" });
    this.result = el("div", { class: "result" });
    this.actions = el("div", { class: "actions" });
    this.controls = this.#makeControls(job);
    this.logText = el("pre", { class: "log", tabindex: "0", role: "region", "aria-label": "Log of " + job.name });
    this.details = el("details", { class: "more", ontoggle: () => this.details.open && this.#readLog() }, el("summary", { text: "Command and log" }));
    this.element = el("li", { class: "job", dataset: { id: job.id } }, this.order, this.thumbnail,
      el("div", { class: "about" },
        el("div", { class: "line" }, el("h3", { class: "name", text: job.name }), this.state),
        this.output, this.options, this.bar, this.figures, this.error, this.result, this.actions, this.details));
  }

  update(job) {
    const video = store.videos.get(job.video), key = JSON.stringify([job, video?.thumbnail]);
    if (key === this.key) return;
    this.key = key;
    const changed = this.job?.state !== job.state || this.job?.output.size !== job.output.size;
    this.job = job;
    this.element.dataset.state = this.state.dataset.state = job.state;
    this.state.textContent = STATES[job.state];
    this.output.textContent = "\u2192 " + job.output.name;
    this.options.textContent = optionsText(job);
    if (video?.thumbnail && !this.thumbnail.firstChild) this.thumbnail.append(el("img", { src: video.thumbnail, alt: "" }));
    this.#showProgress(job);
    this.error.hidden = !job.error;
    this.error.textContent = job.error ?? "";
    if (!changed) return;
    this.result.replaceChildren(...resultParts(job));
    const kept = document.activeElement, inside = this.actions.contains(kept);
    arrange(this.actions, this.#actions(job));
    if (inside && !kept.isConnected) this.actions.firstChild.focus();
    if (this.details.open) this.#readLog();
  }

  #showProgress(job) {
    const at = job.progress, shown = ["running", "pausing", "paused"].includes(job.state);
    this.bar.hidden = !shown;
    this.figures.hidden = !shown && job.state !== "done";
    if (job.state === "done") this.figures.textContent = "took " + duration(job.finished - job.started) + " \u00b7 " + bytes(job.output.size);
    else this.figures.textContent = progressText(job);
    if (at?.total) this.bar.value = at.done / at.total;
    else if (job.state === "running") this.bar.removeAttribute("value");  // not known yet
    else this.bar.value = 0;
  }

  /** What can be done with a job; made once, so that a change of state takes no button away under a click. */
  #makeControls(job) {
    const act = (text, sign, path, body) => button(text, { icon: sign, label: text + " " + job.name }, () => this.#act(path, body));
    return {
      watch: el("a", { class: "button primary", href: "#/watch/" + job.id, "aria-label": "Watch " + job.name }, icon("eye"), "Watch"),
      edit: button("Options\u2026", { icon: "settings", label: "Options of " + job.name }, () => changeDialog(this.job)),
      pause: act("Pause", "pause", "pause"),
      stop: act("Stop now", "stop", "pause", { now: true }),
      resume: act("Resume", "play", "resume"),
      cancel: button("Cancel", { icon: "close", label: "Cancel " + job.name }, () => this.#cancel()),
      retry: act("Retry", "retry", "retry"),
      forget: button("Remove", { icon: "close", label: "Remove " + job.name + " from the list" }, () => this.#remove()),
    };
  }

  #actions(job) {
    const { watch, edit, pause, stop, resume, cancel, retry, forget } = this.controls, begun = job.started !== null;
    return {
      queued: [begun ? watch : edit, pause, cancel],
      running: [watch, pause, cancel],
      pausing: [watch, resume, stop, cancel],
      paused: [begun && watch, resume, cancel],
      done: [job.output.size !== null && watch, forget],
      failed: [retry, edit, forget],
      cancelled: [retry, edit, forget],
    }[job.state].filter(Boolean);
  }

  async #act(path, body) {
    await this.#send(path, body).catch(error => toast(error.message, { error: true }));
  }

  async #send(path, body) {
    const job = await store.settle(post("/api/jobs/" + this.id + "/" + path, body), job => store.setJob(job));
    announce(job.name + ": " + STATES[job.state]);
  }

  #cancel() {
    return this.job.started === null ? this.#act("cancel") : cancelDialog(this.job, () => this.#send("cancel"));
  }

  async #remove() {
    const next = this.element.nextElementSibling ?? this.element.previousElementSibling;
    try {
      await remove("/api/jobs/" + this.id);
      (next?.querySelector("button, a") ?? document.querySelector("h1")).focus();
    } catch (error) {
      toast(error.message, { error: true });
    }
  }

  async #readLog() {
    const text = await get("/api/jobs/" + this.id + "/log").catch(error => error.message);
    this.logText.textContent = text.trim() || "The log is empty.";
    if (!this.details.contains(this.logText) || this.command !== this.job.command) {
      this.command = this.job.command;
      this.details.replaceChildren(this.details.firstChild, commandLine(this.job.command), this.logText);
    }
    this.logText.scrollTop = this.logText.scrollHeight;
  }

  /** Show where the job is among the unfinished ones; -1 for a finished one. */
  place(index, length) {
    this.order.hidden = index < 0;
    const { activeElement: focused } = document;
    this.up.disabled = index === 0;
    this.down.disabled = index === length - 1;
    // A button that is switched off loses the focus.
    if (focused === this.up && this.up.disabled) this.down.focus();
    if (focused === this.down && this.down.disabled) this.up.focus();
  }
}

