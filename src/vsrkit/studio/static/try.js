// A video before it is upscaled: a moment and a region of it, as some models would show it, and what each would cost.

import { get, post } from "./api.js";
import { addJobs } from "./dialogs.js";
import { announce, button, bytes, clock, delayed, duration, el, marked, renew } from "./dom.js";
import { pictureText } from "./library.js";
import { MomentPicker } from "./moment.js";
import { OptionsForm } from "./options.js";
import { Comparison, pictureLayer } from "./player/comparison.js";
import { remembered, store } from "./store.js";

const PREVIEW_MS = 500;  // after the last change
const SCALE = 4;  // of most models

export class TryView {
  constructor(id) {
    this.id = id;
    this.title = "Try";
    this.closing = new AbortController();
    this.heading = el("h1", { text: "Try" });
    this.about = el("p", { class: "quiet" });
    this.content = el("div", { class: "try" });
    this.element = el("div", { class: "view" }, el("p", { class: "back" }, el("a", { href: "#/library", text: "Library" })), el("div", {}, this.heading, this.about), this.content);
    const { signal } = this.closing;
    for (const name of ["ready", "loaded", "videos"]) store.addEventListener(name, () => this.#build(), { signal });
    store.addEventListener("preview", ({ detail }) => this.#isNews(this.preview, detail) && this.#showPreview(detail), { signal });
    store.addEventListener("plan", ({ detail }) => this.#isNews(this.plan, detail) && this.#showPlan(detail), { signal });
    this.#build();
  }

  /** Build the view when everything that it needs is known. */
  #build() {
    const video = store.videos.get(this.id);
    if (this.video || !store.session || !store.options || !store.loaded) return;
    if (!video?.info) {
      this.about.textContent = video ? video.error ?? "This video is being read\u2026" : "This video is not in the library any more.";
      return;
    }
    this.video = video;
    this.title = this.heading.textContent = video.name;
    document.title = video.name + " \u00b7 vsrkit studio";
    const { duration_s: length, codec } = video.info;
    this.about.textContent = [pictureText(video.info), length && clock(length), codec].filter(Boolean).join(" \u00b7 ");
    const ready = store.readyModels.map(model => model.name);
    const models = remembered.get("models", [store.models.default]).filter(name => ready.includes(name));
    this.models = models.length ? models.slice(0, store.session.preview.models) : [store.models.default];
    this.chosen = this.models[0];
    this.askPreview = delayed(PREVIEW_MS, () => this.#askPreview());
    this.askPlan = delayed(PREVIEW_MS, () => this.#askPlan());
    this.picker = new MomentPicker(video, store.session.preview.side, () => this.askPreview());
    this.comparison = new Comparison("The region as the models show it");
    const { width, height } = this.picker.region;
    this.comparison.setMessage("The preview appears here.", SCALE * width, SCALE * height);
    this.status = el("p", { class: "quiet status", role: "status", text: "\u00a0" });
    this.options = new OptionsForm({ without: ["model"], onchange: () => this.#changed() });
    this.content.append(
      el("section", { class: "where", "aria-label": "Moment and region" }, el("h2", { text: "Moment and region" }), this.picker.element),
      el("section", { class: "compare", "aria-label": "Comparison" }, el("h2", { text: "Comparison" }), this.comparison.element, this.status),
      this.#settings());
    this.#changed();
  }

  #settings() {
    this.modelList = el("div", { class: "models", role: "group", "aria-label": "Models" });
    this.addModel = button("Compare another model", { icon: "plus", class: "plain" }, () => {
      const others = store.readyModels.filter(model => !this.models.includes(model.name));
      const unused = others.find(model => model.parameters > 0) ?? others[0];
      this.models.push(unused.name);
      this.#showModels();
      this.modelList.querySelectorAll("select")[this.models.length - 1].focus();
      this.#changed();
    });
    this.output = el("input", { type: "text", id: "output", spellcheck: "false", autocomplete: "off", placeholder: "chosen by vsrkit" });
    this.report = el("input", { type: "checkbox" });
    this.error = el("p", { class: "error", role: "alert" });
    this.addButton = button("Add to the queue", { class: "primary wide" }, () => this.#add());
    this.#showModels();
    return el("section", { class: "settings", "aria-label": "Models and options" },
      el("h2", { text: "Models" }), this.modelList, this.addModel,
      el("h2", { text: "Options" }), this.options.element,
      el("div", { class: "field" }, el("label", { for: "output", text: "Output file" }), this.output),
      el("label", { class: "check" }, this.report, "Fidelity report"), this.error, this.addButton);
  }

  #showModels() {
    this.rows = this.models.map((name, index) => this.#modelRow(name, index));
    this.modelList.replaceChildren(...this.rows.map(row => row.element));
    this.addModel.hidden = this.models.length >= Math.min(store.session.preview.models, store.readyModels.length);
  }

  #modelRow(name, index) {
    const select = el("select", { "aria-label": "Model " + (index + 1), onchange: () => {
      if (this.chosen === this.models[index]) this.chosen = select.value;
      this.models[index] = select.value;
      this.#showModels();
      this.modelList.querySelectorAll("select")[index].focus();
      this.#changed();
    } }, ...store.readyModels.filter(model => model.name === name || !this.models.includes(model.name)).map(model => el("option", { value: model.name, text: model.name })));
    select.value = name;
    const radio = el("input", { type: "radio", name: "chosen", value: name, checked: name === this.chosen, onchange: () => this.#choose(name) });
    const figures = el("dl", { class: "plan" });
    const row = el("div", { class: "model" + (name === this.chosen ? " chosen" : "") },
      el("div", { class: "line" }, select, this.models.length > 1 && button("", { icon: "close", class: "plain", label: "Remove " + name }, () => {
        this.models.splice(index, 1);
        if (this.chosen === name) this.chosen = this.models[0];
        this.#showModels();
        this.#changed();
        this.modelList.querySelector("select").focus();
      })),
      el("p", { class: "help quiet" }, ...marked(store.readyModels.find(model => model.name === name).summary)), figures,
      el("label", { class: "check" }, radio, "Upscale with this model"));
    row.querySelector(".check").hidden = this.models.length === 1;
    return { element: row, figures, name };
  }

  #choose(name) {
    this.chosen = name;
    for (const row of this.rows) row.element.classList.toggle("chosen", row.name === name);
  }

  /** Models or options changed. */
  #changed() {
    remembered.set("models", this.models);
    if (!this.options.valid) return;
    for (const { figures } of this.rows) figures.replaceChildren(el("dd", { class: "quiet", text: "Measuring\u2026" }));
    this.askPreview();
    this.askPlan();
  }

  get #request() {
    return { video: this.id, models: this.models, options: this.options.values };
  }

  /** Whether a value of a preview or plan is newer than the one that is shown. */
  #isNews(shown, value) {
    const done = each => each.results.filter(({ state }) => state === "done" || state === "failed").length + (each.state !== "running");
    return shown?.id === value.id && done(value) >= done(shown);
  }

  /** Ask for previews or plans; events bring the results, also some before the answer to this request. */
  async #ask(kind, body, show) {
    const asked = this[kind] = Symbol(kind);
    const answer = await post("/api/" + kind, body);
    if (asked !== this[kind]) return;
    show(answer);
    const { state, id } = answer;
    const now = state === "running" ? await get("/api/" + kind + "/" + id).catch(() => answer) : answer;
    const shown = kind === "plans" ? this.plan : this.preview;
    if (asked === this[kind] && this.#isNews(shown, now)) show(now);
  }

  async #askPreview() {
    if (this.closing.signal.aborted || !this.picker.ready) return;
    const { time, region } = this.picker;
    this.status.textContent = "The preview is computed\u2026";
    this.comparison.element.classList.add("waiting");
    try {
      await this.#ask("previews", { ...this.#request, time_s: time, region }, preview => this.#showPreview(preview));
    } catch (error) {
      this.#fail(error);
    }
  }

  #fail(error) {
    this.status.textContent = error.message;
    this.comparison.element.classList.remove("waiting");
    if (error.status === 400) this.options.showError(error.message);
  }

  #showPreview(preview) {
    this.preview = preview;
    this.picker.showRegion(preview.region);
    const done = preview.results.filter(result => result.state === "done"), running = preview.state === "running";
    this.comparison.element.classList.toggle("waiting", running && !preview.source);
    const failed = preview.results.find(result => result.error);
    this.status.textContent = preview.state === "failed" ? preview.error ?? failed?.error ?? "the preview failed"
      : preview.state === "cancelled" ? "A newer preview has taken the place of this one."
      : running ? "Computing " + (done.length + 1) + " of " + preview.results.length + "\u2026"
        : done.map(({ model, seconds }) => model + ": " + duration(seconds)).join(" \u00b7 ") + (failed ? " \u00b7 " + failed.model + ": " + failed.error : "");
    if (!preview.source) return;
    const names = [preview.id, ...done.map(result => result.model)].join();
    if (names === this.shownNames) return;
    this.shownNames = names;
    const layers = [pictureLayer("Source", preview.source), ...done.map(result => pictureLayer(result.model, result.picture))];
    Promise.all(layers.map(layer => layer.element.decode())).then(() => {
      if (names !== this.shownNames) return;
      this.comparison.setLayers(layers, layers[0].element.naturalWidth, layers[0].element.naturalHeight);
      if (!running) announce("The preview is ready");
    }).catch(() => { this.status.textContent = "the pictures of the preview cannot be loaded"; });
  }

  async #askPlan() {
    if (this.closing.signal.aborted) return;
    try {
      await this.#ask("plans", this.#request, plan => this.#showPlan(plan));
    } catch (error) {
      for (const { figures } of this.rows) figures.replaceChildren(el("dd", { class: "error", text: error.message }));
    }
  }

  #showPlan(plan) {
    this.plan = plan;
    for (const result of plan.results) {
      const row = this.rows.find(each => each.name === result.model);
      if (row) renew(row.figures, [plan.id, result], () => planParts(result));
    }
  }

  async #add() {
    this.error.textContent = "";
    this.addButton.disabled = true;
    try {
      const options = { ...this.options.values, ...(this.chosen === store.models.default ? {} : { model: this.chosen }) };
      await addJobs([{ video: this.id, options, report: this.report.checked, output: this.output.value.trim() || undefined }]);
    } catch (error) {
      this.error.textContent = error.message;
    }
    this.addButton.disabled = false;
  }

  close() {
    this.closing.abort();
    this.picker?.close();
  }
}

/** The figures of a plan as terms and descriptions. */
function planParts(result) {
  if (result.state === "failed") return [el("dd", { class: "error", text: result.error })];
  if (result.state !== "done") return [el("dd", { class: "quiet", text: "Measuring\u2026" })];
  const figures = {
    Time: duration(result.seconds), Size: bytes(result.file_size), Memory: bytes(result.peak_memory),
    Picture: result.width + "\u00d7" + result.height,
  };
  const parts = Object.entries(figures).map(([name, text]) => el("div", {}, el("dt", { text: name }), el("dd", { text })));
  const lines = [...result.warnings, ...result.notes];
  if (lines.length) parts.push(el("details", { class: "remarks" }, el("summary", { text: lines.length + (lines.length === 1 ? " note" : " notes") }), ...lines.map(text => el("p", { text }))));
  return parts;
}
