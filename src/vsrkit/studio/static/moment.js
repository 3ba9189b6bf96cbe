// A moment of a video, chosen from its shots or by time, and a region of that frame, drawn or moved by keys.

import { get } from "./api.js";
import { button, clock, delayed, el } from "./dom.js";

const PICTURE_WIDTH = 640;
const FIRST = { width: 128, height: 96 };  // pixels of the source; four times that fits beside the options
const SMALLEST = 16;
const MOVE = 8;  // pixels for an arrow key

export class MomentPicker {
  /** side: largest side of a region; onchange: called when moment or region changed. */
  constructor(video, side, onchange) {
    Object.assign(this, { video, side, onchange, ready: false, time: 0 });
    this.closing = new AbortController();
    const { width, height, duration_s: length, fps, frames } = video.info;
    this.size = { width, height };
    this.last = Math.max(0, (frames - 1) / fps);
    this.region = { width: Math.min(FIRST.width, side, width >> 1), height: Math.min(FIRST.height, side, height >> 1) };
    Object.assign(this.region, { x: (width - this.region.width) >> 1, y: (height - this.region.height) >> 1 });
    this.image = el("img", { src: video.thumbnail, alt: "The frame of the source", draggable: false });
    this.box = el("div", { class: "region", tabindex: "0", role: "group", "aria-roledescription": "region", onkeydown: event => this.#key(event) }, el("i"));
    this.frame = el("div", { class: "frame" }, this.image, this.box);
    this.frame.style.aspectRatio = width + " / " + height;
    this.frame.style.maxWidth = "calc(60vh * " + width / height + ")";  // beside it a finger can scroll
    this.slider = el("input", { type: "range", min: 0, max: Math.max(0, frames - 1), step: 1, "aria-label": "Moment", oninput: () => this.#setFrame(Number(this.slider.value)) });
    this.clock = el("output");
    this.shots = el("div", { class: "shots", role: "group", "aria-label": "Shots" }, el("p", { class: "help quiet", text: "Looking for shots\u2026" }));
    this.element = el("div", { class: "moment" }, this.frame,
      el("div", { class: "line" },
        button("\u22121", { class: "small", label: "Previous frame" }, () => this.#setFrame(Number(this.slider.value) - 1)), this.slider,
        button("+1", { class: "small", label: "Next frame" }, () => this.#setFrame(Number(this.slider.value) + 1)), this.clock),
      el("p", { class: "help quiet", text: "Draw a region on the picture, or move it with the arrow keys; with Shift they change its size." }), this.shots);
    this.load = delayed(150, () => this.#load());
    this.#listen();
    this.#setTime((length ?? 0) / 3);
    this.#fetchShots();
  }

  async #fetchShots() {
    try {
      const { kind, shots } = await get("/api/videos/" + this.video.id + "/shots", { signal: this.closing.signal });
      this.shots.replaceChildren();
      this.shots.setAttribute("aria-label", kind === "shots" ? "Shots" : "Moments");
      this.shotButtons = shots.map(shot => ({
        shot, element: el("button", { type: "button", class: "shot", "aria-pressed": "false", onclick: () => this.#setTime(shot.time_s) },
          el("img", { src: shot.picture, alt: "", loading: "lazy" }), el("span", { text: clock(shot.start_s) })),
      }));
      for (const [index, { element }] of this.shotButtons.entries()) {
        element.setAttribute("aria-label", (kind === "shots" ? "Shot " : "Moment ") + (index + 1) + ", at " + clock(shots[index].start_s));
        this.shots.append(element);
      }
      this.#markShot();
    } catch (error) {
      if (!this.closing.signal.aborted) this.shots.replaceChildren(el("p", { class: "error", text: error.message }));
    }
  }

  #markShot() {
    for (const { shot, element } of this.shotButtons ?? []) {
      element.setAttribute("aria-pressed", this.time >= shot.start_s && this.time < shot.end_s);
    }
  }

  #setTime(seconds) {
    this.#setFrame(Math.floor(seconds * this.video.info.fps + 1e-6));
  }

  #setFrame(number) {
    const last = Number(this.slider.max), frame = Math.min(last, Math.max(0, number));
    this.slider.value = frame;
    // The middle of the frame's duration: rounding does not lead to its neighbour.
    this.time = (frame + 0.5) / this.video.info.fps;
    const text = clock(this.time) + " \u00b7 frame " + (frame + 1);
    this.clock.textContent = text;
    this.slider.setAttribute("aria-valuetext", text);
    this.#markShot();
    this.load();
    this.#changed();
  }

  #load() {
    const width = Math.min(PICTURE_WIDTH * (window.devicePixelRatio > 1 ? 2 : 1), this.size.width);
    this.image.src = "/api/videos/" + this.video.id + "/frame?t=" + this.time.toFixed(4) + "&width=" + width;
  }

  #changed() {
    this.#drawRegion();
    this.ready = true;
    this.onchange();
  }

  /** The region that the server took. */
  showRegion(region) {
    if (this.drawing) return;
    this.region = { ...region };
    this.#drawRegion();
  }

  #drawRegion() {
    const { x, y, width, height } = this.region, percent = (value, whole) => 100 * value / whole + "%";
    Object.assign(this.box.style, {
      left: percent(x, this.size.width), top: percent(y, this.size.height),
      width: percent(width, this.size.width), height: percent(height, this.size.height),
    });
    this.box.setAttribute("aria-label", "Region of " + width + " by " + height + " pixels at " + x + ", " + y +
      ". Arrow keys move it, Shift and arrow keys change its size.");
  }

  #setRegion({ x, y, width, height }) {
    const inside = (value, low, high) => Math.min(high, Math.max(low, Math.round(value)));
    const size = { width: inside(width, SMALLEST, Math.min(this.side, this.size.width)), height: inside(height, SMALLEST, Math.min(this.side, this.size.height)) };
    this.region = { ...size, x: inside(x, 0, this.size.width - size.width), y: inside(y, 0, this.size.height - size.height) };
    this.#drawRegion();
  }

  #key(event) {
    const by = { ArrowLeft: [-MOVE, 0], ArrowRight: [MOVE, 0], ArrowUp: [0, -MOVE], ArrowDown: [0, MOVE] }[event.key];
    if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const { x, y, width, height } = this.region;
    this.#setRegion(event.shiftKey ? { x, y, width: width + by[0], height: height + by[1] } : { x: x + by[0], y: y + by[1], width, height });
    this.#changed();
  }

  #listen() {
    const point = event => {
      const box = this.frame.getBoundingClientRect();
      return { x: (event.clientX - box.left) * this.size.width / box.width, y: (event.clientY - box.top) * this.size.height / box.height };
    };
    this.frame.addEventListener("pointerdown", event => {
      if (event.button > 0) return;
      event.preventDefault();
      this.frame.setPointerCapture(event.pointerId);
      const start = point(event), { region } = this, corner = event.target.tagName === "I";
      const within = start.x >= region.x && start.x < region.x + region.width && start.y >= region.y && start.y < region.y + region.height;
      const whole = region.width === this.size.width && region.height === this.size.height;  // which cannot be moved
      this.drawing = corner ? "size" : within && !whole ? "move" : "draw";
      Object.assign(this, { start, before: { ...region } });
      this.box.focus({ preventScroll: true });
    });
    this.frame.addEventListener("pointermove", event => {
      if (!this.drawing) return;
      const now = point(event), { start, before } = this, by = { x: now.x - start.x, y: now.y - start.y };
      if (this.drawing === "move") this.#setRegion({ ...before, x: before.x + by.x, y: before.y + by.y });
      else if (this.drawing === "size") this.#setRegion({ ...before, width: before.width + by.x, height: before.height + by.y });
      else if (Math.hypot(by.x, by.y) > 4) this.#setRegion(drawn(start, now, this.side));
    });
    const end = event => {
      if (!this.drawing) return;
      // A tap beside the region brings it there.
      if (this.drawing === "draw" && Math.hypot(point(event).x - this.start.x, point(event).y - this.start.y) <= 4) {
        const { width, height } = this.before;
        this.#setRegion({ width, height, x: this.start.x - width / 2, y: this.start.y - height / 2 });
      }
      this.drawing = null;
      if (event.type === "pointerup") this.#changed();
    };
    for (const name of ["pointerup", "pointercancel"]) this.frame.addEventListener(name, end);
  }

  close() {
    this.closing.abort();
  }
}

/** The rectangle between two points, at most `side` wide and high, with a corner at the first. */
function drawn(a, b, side) {
  const width = Math.min(side, Math.abs(b.x - a.x)), height = Math.min(side, Math.abs(b.y - a.y));
  return { width, height, x: b.x < a.x ? a.x - width : a.x, y: b.y < a.y ? a.y - height : a.y };
}
