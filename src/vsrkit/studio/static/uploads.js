// Files that are sent to the server: in pieces, continued after a broken connection or a closed page.

import { ApiError, get, post, remove, request } from "./api.js";
import { announce, arrange, button, bytes, duration, el, toast } from "./dom.js";
import { store } from "./store.js";

const PIECE = 8 << 20;  // bytes of a request; what a broken connection can lose
const RETRY_MS = [1000, 2000, 4000, 8000, 16000];

class Upload {
  constructor(file, declared, changed) {
    Object.assign(this, { file, changed, offset: 0, state: "waiting", error: "", id: null, speed: null });
    if (declared) Object.assign(this, { id: declared.id, offset: declared.offset, state: "unfinished" });
    this.name = file?.name ?? declared.name;
    this.size = file?.size ?? declared.size;
    this.text = el("p", { class: "quiet numbers" });
    this.bar = el("progress", { max: 1, value: 0, "aria-label": "Upload of " + this.name });
    this.actions = el("div", { class: "actions" });
    this.element = el("li", { class: "upload" }, el("strong", { class: "name", text: this.name }), this.text, this.bar, this.actions);
    this.show();
  }

  show() {
    const part = bytes(this.offset) + " of " + bytes(this.size);
    const rest = this.speed ? " \u00b7 " + duration((this.size - this.offset) / this.speed) + " left" : "";
    this.text.textContent = {
      waiting: "waits", sending: part + rest, paused: "paused at " + part, failed: this.error,
      unfinished: "unfinished, " + part + "; choose the same file again to continue",
      retrying: "the connection is broken; trying again\u2026",
    }[this.state];
    this.text.classList.toggle("error", this.state === "failed");
    this.bar.value = this.size ? this.offset / this.size : 0;
    if (this.actions.dataset.state === this.state) return;
    this.actions.dataset.state = this.state;
    const small = { class: "small" };
    arrange(this.actions, [
      ["sending", "retrying"].includes(this.state) && button("Pause", { icon: "pause", ...small }, () => this.pause()),
      ["paused", "failed"].includes(this.state) && this.file && button("Continue", { icon: "play", ...small }, () => this.run()),
      button("Discard", { icon: "close", ...small, label: "Discard the upload of " + this.name }, () => this.discard()),
    ].filter(Boolean));
  }

  set(state, error = "") {
    Object.assign(this, { state, error });
    this.show();
    this.changed(this);
  }

  /** Send the file from where the server has it. */
  async run() {
    const { signal } = this.aborter = new AbortController();
    this.set("sending");
    this.failures = 0;  // since a piece arrived
    while (!signal.aborted) {
      try {
        if (!this.id || this.failures) await this.#declare();
        this.set("sending");
        await this.#send();
        this.set("done");
        announce(this.name + " is uploaded");
        return;
      } catch (error) {
        if (signal.aborted) return;
        const temporary = error.status === 0 || error.status === 409 || error.status === 503;
        if (!temporary || this.failures >= RETRY_MS.length) return void this.set("failed", error.message);
        this.set("retrying");
        await new Promise(done => setTimeout(done, RETRY_MS[this.failures++]));
      }
    }
  }

  async #declare() {
    const { name, size, lastModified } = this.file;
    const found = await post("/api/uploads", { name, size, key: encodeURIComponent(name) + "-" + size + "-" + lastModified });
    Object.assign(this, { id: found.id, offset: found.offset });
  }

  async #send() {
    while (this.offset < this.size) {
      const begin = performance.now(), before = this.offset;
      const found = await this.#put(this.file.slice(this.offset, this.offset + PIECE));
      this.offset = found.offset;
      this.failures = 0;
      const speed = (this.offset - before) / Math.max(0.001, (performance.now() - begin) / 1000);
      this.speed = this.speed ? 0.7 * this.speed + 0.3 * speed : speed;
      this.show();
    }
  }

  /** XMLHttpRequest, because fetch does not tell how much was sent. */
  #put(piece) {
    return new Promise((done, fail) => {
      const sending = new XMLHttpRequest(), before = this.offset;
      sending.open("PUT", "/api/uploads/" + this.id + "?offset=" + before);
      sending.responseType = "json";
      sending.setRequestHeader("Content-Type", "application/octet-stream");
      sending.upload.onprogress = ({ loaded }) => {
        this.offset = before + loaded;
        this.show();
      };
      sending.onload = () => sending.status < 300 ? done(sending.response)
        : fail(new ApiError(sending.status, sending.response?.error ?? "the server answered with status " + sending.status));
      sending.onerror = () => fail(new ApiError(0, "the server does not answer"));
      sending.onabort = () => fail(new ApiError(0, "paused"));
      this.sending = sending;
      sending.send(piece);
    });
  }

  async pause() {
    this.#stop();
    this.set("paused");
    if (this.id) this.offset = (await get("/api/uploads/" + this.id).catch(() => this)).offset;
    this.speed = null;
    this.show();
  }

  #stop() {
    this.aborter?.abort();
    this.sending?.abort();
  }

  async discard() {
    this.#stop();
    this.set("discarded");
    if (this.id) await remove("/api/uploads/" + this.id).catch(() => {});
  }
}

/** All uploads of this page, one after the other; they continue while other views are shown. */
class Uploads {
  constructor() {
    this.all = [];
    this.list = el("ul", { class: "uploads", "aria-label": "Uploads" });
    this.list.hidden = true;
    window.addEventListener("beforeunload", event => {
      if (this.all.some(upload => upload.state === "sending")) event.preventDefault();
    });
  }

  /** Show the uploads that an earlier page has not finished. */
  async restore() {
    const { uploads } = await request("GET", "/api/uploads").catch(() => ({ uploads: [] }));
    const known = new Set(this.all.map(upload => upload.id));
    for (const each of uploads) if (!known.has(each.id)) this.#append(new Upload(null, each, upload => this.#changed(upload)));
  }

  add(files) {
    for (const file of files) {
      const limit = store.session?.max_upload;
      if (limit && file.size > limit) {
        toast(file.name + " has " + bytes(file.size) + "; the limit is " + bytes(limit), { error: true });
        continue;
      }
      const same = this.all.find(upload => upload.state === "unfinished" && upload.name === file.name && upload.size === file.size);
      if (same) this.#forget(same);
      this.#append(new Upload(file, null, upload => this.#changed(upload)));
    }
    this.#next();
  }

  #append(upload) {
    this.all.push(upload);
    this.list.append(upload.element);
    this.list.hidden = false;
  }

  #forget(upload) {
    this.all = this.all.filter(each => each !== upload);
    upload.element.remove();
    this.list.hidden = this.all.length === 0;
  }

  #changed(upload) {
    if (upload.state === "done" || upload.state === "discarded") this.#forget(upload);
    if (!["sending", "retrying"].includes(upload.state)) this.#next();
  }

  #next() {
    if (this.all.some(upload => ["sending", "retrying"].includes(upload.state))) return;
    this.all.find(upload => upload.state === "waiting")?.run();
  }
}

export const uploads = new Uploads();
