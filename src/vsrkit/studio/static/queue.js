// The queue: unfinished jobs in their order, which can be changed, then the finished ones.

import { post, put } from "./api.js";
import { announce, arrange, button, counted, duration, el, toast } from "./dom.js";
import { JobCard } from "./job-card.js";
import { store } from "./store.js";

export class QueueView {
  constructor() {
    this.title = "Queue";
    this.cards = new Map();
    this.closing = new AbortController();
    this.summary = el("p", { class: "quiet numbers", text: "\u00a0" });
    this.pauseButton = button("Pause the queue", { icon: "pause" }, () => this.#pause());
    this.clearButton = button("Clear finished", {}, () => this.#clear());
    this.waiting = el("ol", { class: "jobs", "aria-label": "Unfinished jobs" });
    this.finished = el("ul", { class: "jobs", "aria-label": "Finished jobs" });
    this.finishedTitle = el("h2", { text: "Finished" });
    this.empty = el("p", { class: "empty quiet" }, "Nothing to do. Choose videos in the ", el("a", { href: "#/library", text: "library" }), ".");
    this.element = el("div", { class: "view queue" },
      el("div", { class: "head" }, el("div", {}, el("h1", { text: "Queue" }), this.summary), el("div", { class: "tools" }, this.pauseButton, this.clearButton)),
      el("h2", { class: "unseen", text: "Unfinished" }), this.waiting, this.empty, this.finishedTitle, this.finished);
    const { signal } = this.closing;
    for (const name of ["jobs", "videos", "loaded"]) store.addEventListener(name, () => this.show(), { signal });
    this.#dragging();
    this.show();
  }

  show() {
    if (this.dragged) return;  // the order is shown when the card is put down
    const { waiting, finished } = store.orderedJobs;
    const card = job => {
      if (!this.cards.has(job.id)) this.cards.set(job.id, new JobCard(job, this));
      this.cards.get(job.id).update(job);
      return this.cards.get(job.id);
    };
    const focused = document.activeElement;
    waiting.forEach((job, index) => card(job).place(index, waiting.length));
    finished.forEach(job => card(job).place(-1, 0));
    for (const [id, { element }] of this.cards) {
      if (store.jobs.has(id)) continue;
      element.remove();
      this.cards.delete(id);
    }
    arrange(this.waiting, waiting.map(job => this.cards.get(job.id).element));
    arrange(this.finished, finished.map(job => this.cards.get(job.id).element));
    if (focused?.isConnected && focused !== document.activeElement) focused.focus();
    this.#summarise(waiting, finished);
  }

  #summarise(waiting, finished) {
    if (!store.loaded) return;
    const running = waiting.find(job => job.state === "running");
    const left = running?.progress?.eta_s;
    const state = store.queue.paused ? "the queue is paused" : running && left ? "current job: " + duration(left) + " left" : "";
    this.summary.textContent = [counted(waiting.length, "job") + " to do", state].filter(Boolean).join(" \u00b7 ");
    this.empty.hidden = waiting.length > 0;
    this.finishedTitle.hidden = finished.length === 0;
    this.clearButton.hidden = !finished.some(job => job.state !== "failed");
    const { paused } = store.queue;
    if (this.pauseButton.dataset.paused === String(paused)) return;
    this.pauseButton.dataset.paused = paused;
    this.pauseButton.replaceChildren(...button(paused ? "Resume the queue" : "Pause the queue", { icon: paused ? "play" : "pause" }).childNodes);
  }

  async #pause() {
    try {
      const { paused } = await store.settle(put("/api/queue", { paused: !store.queue.paused }), queue => store.setQueue(queue));
      announce(paused ? "the queue is paused" : "the queue continues");
    } catch (error) {
      toast(error.message, { error: true });
    }
  }

  async #clear() {
    try {
      const { removed } = await post("/api/queue/clear");
      announce(counted(removed.length, "job") + " removed from the list");
    } catch (error) {
      toast(error.message, { error: true });
    }
  }

  /** Move a job up (-1) or down (1). */
  async move(id, by) {
    const order = [...store.queue.order], from = order.indexOf(id), to = from + by;
    if (from < 0 || to < 0 || to >= order.length) return;
    order.splice(to, 0, ...order.splice(from, 1));
    await this.#setOrder(order);
    announce(store.jobs.get(id).name + " is now number " + (to + 1) + " of " + order.length);
  }

  async #setOrder(order) {
    try {
      await store.settle(put("/api/queue", { order }), queue => store.setQueue(queue));
    } catch (error) {
      toast(error.message, { error: true });
      this.show();
    }
  }

  /** Drag a card by its handle. */
  #dragging() {
    const list = this.waiting;
    list.addEventListener("pointerdown", event => {
      const handle = event.target.closest(".grip");
      if (!handle || event.button > 0) return;
      event.preventDefault();
      this.dragged = handle.closest("li");
      this.dragged.classList.add("dragged");
      list.setPointerCapture(event.pointerId);
    });
    list.addEventListener("pointermove", event => {
      if (!this.dragged) return;
      for (const other of list.children) {
        const box = other.getBoundingClientRect();
        if (other === this.dragged || event.clientY < box.top || event.clientY > box.bottom) continue;
        const after = event.clientY > box.top + box.height / 2;
        list.insertBefore(this.dragged, after ? other.nextSibling : other);
      }
    });
    const drop = event => {
      if (!this.dragged) return;
      this.dragged.classList.remove("dragged");
      this.dragged = null;
      const order = [...list.children].map(element => element.dataset.id);
      if (event.type === "pointerup" && order.join() !== store.queue.order.join()) this.#setOrder(order);
      else this.show();
    };
    for (const name of ["pointerup", "pointercancel"]) list.addEventListener(name, drop);
  }

  close() {
    this.closing.abort();
  }
}
