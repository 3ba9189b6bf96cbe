// The videos: what they are, what the source checks say, and what can be done with them.

import { arrange, button, bytes, clock, counted, delayed, el, icon, renew, soon } from "./dom.js";
import { addDialog } from "./dialogs.js";
import { remembered, store } from "./store.js";
import { uploads } from "./uploads.js";

const ORDERS = {
  name: ["Name", (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true })],
  modified: ["Newest", (a, b) => b.modified - a.modified],
  length: ["Longest", (a, b) => (b.info?.duration_s ?? 0) - (a.info?.duration_s ?? 0)],
  size: ["Largest", (a, b) => b.size - a.size],
};
const STATES = { queued: "in the queue", running: "running", pausing: "pausing", paused: "paused" };

const SHELLS = Array.from({ length: 4 }, () => el("li", { class: "card shell", "aria-hidden": "true" }));

/** The streams beside the picture in a few words, such as "aac en, 2 subtitles". */
function streamsText(info) {
  const others = info.streams.filter(stream => stream.kind !== "video"), kinds = {};
  for (const { kind, codec, language } of others) (kinds[kind] ??= []).push([codec, language !== "und" && language].filter(Boolean).join(" "));
  return Object.entries(kinds).map(([kind, each]) => kind === "audio" ? each.join(", ") : counted(each.length, kind)).join(", ");
}

/** Width, height and rate of a picture. */
export function pictureText(info) {
  return info.width + "\u00d7" + info.height + " \u00b7 " + Number(info.fps.toFixed(2)) + " fps" + (info.hdr ? " \u00b7 HDR" : "");
}

class Card {
  constructor(video, view) {
    this.id = video.id;
    this.thumbnail = el("div", { class: "thumbnail" });
    this.box = el("input", { type: "checkbox", class: "select", "aria-label": "Select " + video.name, onchange: () => view.showSelection() });
    this.name = el("h2", { class: "name" });
    this.facts = el("div", { class: "facts" });
    this.remarks = el("div", { class: "facts" });
    this.actions = el("div", { class: "actions" });
    this.element = el("li", { class: "card" }, this.thumbnail, this.box, el("div", { class: "about" }, this.name, this.facts, this.remarks), this.actions);
  }

  /** job: the first unfinished one of the video, if there is one. */
  update(video, job) {
    this.video = video;
    const { state, thumbnail, info, remarks } = video, badge = job && STATES[job.state];
    this.box.hidden = this.box.disabled = state !== "ready";
    renew(this.thumbnail, [state, thumbnail, info?.duration_s, badge], () => this.#picture(video, badge));
    renew(this.name, [state], () => [state === "ready" ? el("a", { href: "#/try/" + video.id, text: video.name, title: video.name }) : el("span", { text: video.name })]);
    renew(this.facts, [video.place, state, video.error, video.size, info, video.job], () => this.#facts(video));
    renew(this.remarks, remarks, () => remarks?.length ? [this.#remarks(remarks)] : []);
    renew(this.actions, [state, video.job], () => this.#actions(video));
  }

  #picture({ thumbnail, state, info }, badge) {
    return [
      thumbnail ? el("img", { src: thumbnail, alt: "", loading: "lazy", decoding: "async" }) : el("span", { class: "nothing" }, icon(state === "broken" ? "warning" : "eye")),
      info?.duration_s && el("span", { class: "length", text: clock(info.duration_s) }),
      badge && el("span", { class: "badge", text: badge })];
  }

  #facts(video) {
    const place = video.place && el("p", { class: "quiet place" }, icon("folder"), el("span", { text: video.place }));
    if (video.state === "broken") return [place, el("p", { class: "error", text: video.error })];
    if (video.state === "pending") return [place, el("p", { class: "quiet", text: bytes(video.size) + " \u00b7 is being read\u2026" })];
    const { info } = video, streams = streamsText(info);
    return [place,
      el("p", { class: "quiet numbers", text: pictureText(info) + " \u00b7 " + bytes(video.size) }),
      el("p", { class: "quiet", text: [info.codec, streams, video.job && "result of a job"].filter(Boolean).join(" \u00b7 ") })];
  }

  #remarks(remarks) {
    const chips = remarks.map(text => el("span", { class: "chip", text: text.split(":")[0] }));
    return el("details", { class: "remarks" }, el("summary", {}, ...chips), ...remarks.map(text => el("p", { text })));
  }

  #actions(video) {
    const ready = video.state === "ready";
    return [
      ready && el("a", { class: "button primary", href: "#/try/" + video.id, "aria-label": "Try " + video.name }, icon("eye"), "Try"),
      ready && video.job === null && button("Upscale\u2026", { label: "Upscale " + video.name }, () => addDialog([this.video])),
      ready && video.job !== null && el("a", { class: "button", href: "#/watch/" + video.job, "aria-label": "Watch " + video.name }, "Watch"),
      el("a", { class: "button plain", href: "/api/videos/" + video.id + "/file", download: "", "aria-label": "Download " + video.name, title: "Download" }, icon("download"))];
  }
}

export class LibraryView {
  constructor() {
    this.title = "Library";
    this.cards = new Map();
    this.closing = new AbortController();
    this.file = el("input", { type: "file", multiple: true, accept: "video/*,.mkv,.mts,.m2ts,.vob,.y4m,.avi", class: "unseen", tabindex: "-1", "aria-hidden": "true",
      onchange: () => {
        uploads.add(this.file.files);
        this.file.value = "";
      } });
    this.summary = el("p", { class: "quiet", role: "status", text: "\u00a0" });
    this.list = el("ul", { class: "videos" });
    this.search = el("input", { type: "search", placeholder: "Search", "aria-label": "Search by name", oninput: delayed(100, () => this.show()) });
    this.order = el("select", { "aria-label": "Order", onchange: () => this.show() },
      ...Object.entries(ORDERS).map(([value, [text]]) => el("option", { value, text })));
    this.order.value = remembered.get("order", "name");
    this.layout = button("", { icon: "list", label: "Show as a list", "aria-pressed": "false" }, () => this.setList(!this.list.classList.contains("rows")));
    this.selection = el("div", { class: "selection", role: "region", "aria-label": "Selected videos" });
    this.selection.hidden = true;
    this.empty = el("p", { class: "empty quiet", hidden: true });
    this.element = el("div", { class: "view library" },
      el("div", { class: "head" }, el("div", {}, el("h1", { text: "Library" }), this.summary),
        el("div", { class: "tools" }, this.search, this.order, this.layout, this.file,
          button("Upload", { icon: "upload", class: "primary" }, () => this.file.click()))),
      uploads.list, this.selection, this.list, this.empty,
      el("div", { class: "drop", "aria-hidden": "true" }, el("div", {}, icon("upload"), el("p", { text: "Drop videos to upload them" }))));
    this.setList(remembered.get("rows", false));
    this.#listen();
    this.show();
    uploads.restore();
  }

  #listen() {
    const { signal } = this.closing;
    for (const name of ["videos", "jobs", "loaded"]) store.addEventListener(name, soon(() => this.show()), { signal });
    let depth = 0;
    const over = on => this.element.classList.toggle("dropping", on);
    const files = event => event.dataTransfer?.types.includes("Files");
    window.addEventListener("dragenter", event => files(event) && ++depth && over(true), { signal });
    window.addEventListener("dragleave", event => files(event) && --depth <= 0 && over(false), { signal });
    window.addEventListener("drop", event => {
      depth = 0;
      over(false);
      uploads.add(event.dataTransfer?.files ?? []);
    }, { signal });
  }

  setList(rows) {
    this.list.classList.toggle("rows", rows);
    this.layout.setAttribute("aria-pressed", rows);
    remembered.set("rows", rows);
  }

  show() {
    if (!store.loaded) return arrange(this.list, SHELLS);
    remembered.set("order", this.order.value);
    const wanted = this.search.value.trim().toLowerCase();
    const found = [...store.videos.values()].filter(video => (video.place + "/" + video.name).toLowerCase().includes(wanted));
    found.sort(ORDERS[this.order.value][1]);
    const jobs = new Map(store.orderedJobs.waiting.toReversed().map(job => [job.video, job]));
    for (const video of found) {
      if (!this.cards.has(video.id)) this.cards.set(video.id, new Card(video, this));
      this.cards.get(video.id).update(video, jobs.get(video.id));
    }
    for (const id of this.cards.keys()) if (!store.videos.has(id)) this.cards.delete(id);
    arrange(this.list, found.map(video => this.cards.get(video.id).element));
    this.#summarise(found);
    this.showSelection();
  }

  #summarise(found) {
    const names = store.folders.map(folder => folder.path).join(", ");
    this.summary.textContent = counted(found.length, "video") + " in " + names;
    const truncated = store.folders.some(folder => folder.truncated);
    this.empty.hidden = found.length > 0 && !truncated;
    this.empty.textContent = truncated ? "There are more videos than can be shown; start the studio with a smaller folder."
      : store.videos.size ? "No video has this name." : "There are no videos in this folder yet. Drop some here, or choose them with Upload.";
  }

  get selected() {
    return [...this.cards.values()].filter(card => card.box.checked && card.element.isConnected).map(card => card.video);
  }

  showSelection() {
    const { selected } = this;
    this.selection.hidden = selected.length === 0;
    if (!selected.length || this.selection.dataset.count === String(selected.length)) return;
    this.selection.dataset.count = selected.length;
    this.selection.replaceChildren(
      el("strong", { text: counted(selected.length, "video") + " selected" }),
      button("Upscale " + selected.length + "\u2026", { class: "primary" }, () => addDialog(this.selected).then(added => added && this.#select(false))),
      button("Select all", {}, () => this.#select(true)),
      button("Select none", {}, () => this.#select(false)));
  }

  #select(checked) {
    for (const { box, element } of this.cards.values()) if (element.isConnected && !box.disabled) box.checked = checked;
    this.showSelection();
  }

  close() {
    this.closing.abort();
  }
}
