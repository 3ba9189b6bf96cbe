// Source and result in step: as videos where the browser can play them, else as single frames; lossless when paused.

import { Comparison, make, makeButton } from "./comparison.js";

const SOURCE = 0, RESULT = 1;
const FAR = 0.25;  // seconds apart from which a video is moved; below, its speed is changed a little
const STEADY = 0.3;  // largest change of speed
const AHEAD = 3;  // frames that are fetched before they are shown, without videos
const SPEEDS = [0.1, 0.25, 0.5, 1, 2];
const SLOW_MS = 400;  // after which a line says that a frame is awaited
const PLAY = "M7 4.500v15l12-7.500z", PAUSE = "M7 5h4v14H7zM13 5h4v14h-4z";

/** A filled shape in place of a sign, which some fonts lack. */
function drawing(shape) {
  const space = "http://www.w3.org/2000/svg", svg = document.createElementNS(space, "svg"), path = document.createElementNS(space, "path");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", shape);
  svg.append(path);
  return svg;
}

/** Seconds as 1:02:03.45 */
export function clockText(seconds) {
  const hundredths = Math.max(0, Math.round(seconds * 100)), whole = Math.floor(hundredths / 100);
  const pad = number => String(number).padStart(2, "0");
  const hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
  return (hours ? hours + ":" + pad(minutes) : minutes) + ":" + pad(whole % 60) + "." + pad(hundredths % 100);
}

export class Player {
  /**
   * label: accessible name.
   * names: of the source and of the result.
   * picture: (side, frame) => address of a lossless picture; side 0 is the source, 1 the result.
   * times: part => promise of the times of its frames in the result.
   */
  constructor({ label, names, picture, times }) {
    Object.assign(this, { names, picture, times });
    this.frame = 0;
    this.playing = false;
    this.turn = 0;  // counts requests to show something; older ones are dropped
    this.showing = null;  // the request that is being answered
    this.loaded = null;  // the part whose clip the videos have, with its times
    this.broken = false;  // the browser cannot play these videos after all
    this.media = { total: 1, fps: 25, width: 1, height: 1, source: null, source_start_s: 0, parts: [] };
    this.comparison = new Comparison(label);
    this.element = this.comparison.element;
    this.videos = [make("video"), make("video")];
    this.images = [make("img"), make("img")];
    this.stacks = this.videos.map((video, side) => {
      Object.assign(video, { muted: true, playsInline: true, preload: "auto", disablePictureInPicture: true });
      video.addEventListener("error", () => video.hasAttribute("src") && this.#fallBack());
      Object.assign(this.images[side], { alt: names[side], draggable: false, hidden: true });
      const stack = make("div", "stack");
      stack.append(video, this.images[side]);
      return stack;
    });
    this.#buildTransport();
    this.element.addEventListener("keydown", event => this.key(event));
  }

  #buildTransport() {
    const transport = make("div", "transport"), buttons = make("div"), track = make("div", "track");
    this.playButton = makeButton("", "Play", () => this.toggle());
    this.playButton.append(drawing(PLAY));
    this.slider = make("input");
    Object.assign(this.slider, { type: "range", min: 0, max: 0, step: 1, value: 0 });
    this.slider.setAttribute("aria-label", "Frame");
    this.slider.addEventListener("input", () => {
      this.pause();
      this.show(Number(this.slider.value));
    });
    this.finished = make("div", "finished");
    this.clock = make("output");
    this.speed = make("select");
    this.speed.setAttribute("aria-label", "Speed");
    for (const speed of SPEEDS) this.speed.append(new Option(speed + "\u00d7", speed, speed === 1, speed === 1));
    this.pixelButton = makeButton("Source pixels", "Show the pixels of the source without smoothing", () => {
      const on = this.stacks[SOURCE].classList.toggle("pixels");
      this.pixelButton.setAttribute("aria-pressed", on);
    });
    this.pixelButton.setAttribute("aria-pressed", false);
    this.comparison.bar.prepend(this.pixelButton);
    buttons.append(
      makeButton("\u22121", "Previous frame (comma)", () => this.step(-1)), this.playButton,
      makeButton("+1", "Next frame (full stop)", () => this.step(1)), this.speed);
    track.append(this.slider, this.finished);
    transport.append(buttons, track, this.clock);
    this.message = make("p", "message");
    this.message.hidden = true;
    this.element.append(transport, this.message);
  }

  /** Show these media; the position stays if its frame exists. The values are those of /api/jobs/ID/parts. */
  update(media) {
    const first = this.comparison.layers.length === 0;
    const size = media.width !== this.media.width || media.height !== this.media.height;
    const clips = this.#hasVideo;
    this.media = media;
    if (first || size) {
      const layers = this.stacks.map((element, side) => ({ name: this.names[side], element }));
      this.comparison.setLayers(layers, media.width, media.height);
    }
    this.slider.max = Math.max(0, media.total - 1);
    this.finished.replaceChildren(...media.parts.map(part => {
      const mark = make("i");
      mark.style.left = 100 * part.first / media.total + "%";
      mark.style.width = 100 * part.frames / media.total + "%";
      return mark;
    }));
    this.playButton.disabled = media.parts.length === 0;
    if (clips !== this.#hasVideo && !this.broken) this.pause();
    if (!this.playing && this.showing === null && (first || this.images[RESULT].hidden)) this.show(this.frame);
  }

  get #hasVideo() {
    return !this.broken && this.media.source !== null && this.media.parts.every(part => part.clip !== null);
  }

  #partOf(frame) {
    return this.media.parts.find(part => frame >= part.first && frame < part.first + part.frames);
  }

  /** The finished frame that is nearest to a frame. */
  #nearest(frame) {
    if (this.#partOf(frame)) return frame;
    const ends = this.media.parts.flatMap(part => [part.first, part.first + part.frames - 1]);
    return ends.reduce((best, each) => Math.abs(each - frame) < Math.abs(best - frame) ? each : best, ends[0] ?? 0);
  }

  /** Show a frame, or the nearest one that is finished. */
  async show(frame) {
    if (!this.media.parts.length) return;
    const turn = ++this.turn;
    this.#setFrame(this.#nearest(frame));
    this.showing = turn;
    const slow = this.#sayIfSlow(turn);
    try {
      const pictures = this.#showPictures(turn);
      if (this.#hasVideo) await this.#seek(turn);
      await pictures;
    } catch (error) {
      if (turn === this.turn) this.#say(error.message || "this frame cannot be shown");
    } finally {
      clearTimeout(slow);
      if (this.showing === turn) this.showing = null;
    }
  }

  #setFrame(frame) {
    this.frame = frame;
    this.slider.value = frame;
    const part = this.#partOf(frame), times = this.loaded?.part.number === part?.number ? this.loaded?.times : null;
    const seconds = times?.[frame - part.first] ?? frame / this.media.fps;
    this.clock.textContent = clockText(seconds) + " \u00b7 frame " + (frame + 1) + " / " + this.media.total;
    this.slider.setAttribute("aria-valuetext", "frame " + (frame + 1) + " of " + this.media.total + ", " + clockText(seconds));
    this.element.dataset.frame = frame;
  }

  /** Replace the videos, whose colours and sizes browsers convert, by lossless pictures of the frame. */
  async #showPictures(turn) {
    const loaded = await this.#fetchPictures(this.frame);
    if (turn !== this.turn) return false;
    for (const [side, picture] of loaded.entries()) this.images[side].src = picture.src;
    await Promise.all(this.images.map(image => image.decode()));
    if (turn !== this.turn) return false;
    for (const image of this.images) image.hidden = false;
    this.#say("");
    return true;
  }

  #fetchPictures(frame) {
    return Promise.all([SOURCE, RESULT].map(async side => {
      const image = new Image();
      image.src = this.picture(side, frame);
      await image.decode().catch(() => { throw new Error("frame " + (frame + 1) + " cannot be read"); });
      return image;
    }));
  }

  /** Load the clip of the part with the current frame. */
  async #load(part) {
    if (this.loaded?.part.number === part.number && this.loaded.part.clip === part.clip) return;
    const times = await this.times(part);
    const addresses = [this.media.source, part.clip];
    for (const [side, video] of this.videos.entries()) {
      if (video.getAttribute("src") !== addresses[side]) video.src = addresses[side];
    }
    this.loaded = { part, times };
  }

  /** The time of a frame in the loaded clip; in the middle of its duration, where rounding does no harm. */
  #timeInClip(frame) {
    const { part, times } = this.loaded, index = frame - part.first;
    const end = times[index + 1] ?? times[index] + 1 / this.media.fps;
    return (times[index] + end) / 2 - part.start_s;
  }

  get #offset() {
    return this.media.source_start_s + this.loaded.part.start_s;
  }

  async #seek(turn) {
    await this.#load(this.#partOf(this.frame));
    if (turn !== this.turn) return;
    const time = this.#timeInClip(this.frame);
    await Promise.all([moveTo(this.videos[SOURCE], this.#offset + time), moveTo(this.videos[RESULT], time)]);
  }

  toggle() {
    return this.playing ? this.pause() : this.play();
  }

  step(count) {
    this.pause();
    return this.show(Math.min(this.media.total - 1, Math.max(0, this.frame + count)));
  }

  /** Stop, on a frame that both sides show. */
  pause() {
    if (!this.playing) return;
    this.#setPlaying(false);
    for (const video of this.videos) video.pause();
    this.show(this.frame);
  }

  #setPlaying(playing) {
    this.playing = playing;
    this.playButton.replaceChildren(drawing(playing ? PAUSE : PLAY));
    this.playButton.setAttribute("aria-label", playing ? "Pause" : "Play");
    this.playButton.title = playing ? "Pause" : "Play";
  }

  async play() {
    if (this.playing || !this.media.parts.length) return;
    const last = this.media.parts.at(-1);
    if (this.frame >= last.first + last.frames - 1) this.#setFrame(this.media.parts[0].first);
    const turn = ++this.turn;
    this.#setPlaying(true);
    try {
      await (this.#hasVideo ? this.#playVideos(turn) : this.#playPictures(turn));
    } catch (error) {
      if (turn !== this.turn) return;
      this.pause();
      this.#say(error.message);
    }
  }

  async #playPictures(turn) {
    const waiting = new Map();
    while (turn === this.turn) {
      const begin = performance.now();
      for (let next = this.frame; next < this.frame + AHEAD; next++) {
        if (this.#partOf(next) && !waiting.has(next)) waiting.set(next, this.#fetchPictures(next));
      }
      const pictures = await waiting.get(this.frame);
      waiting.delete(this.frame);
      if (turn !== this.turn) return;
      for (const [side, image] of this.images.entries()) {
        image.src = pictures[side].src;
        image.hidden = false;
      }
      this.#say("");
      const rest = 1000 / this.media.fps / Number(this.speed.value) - (performance.now() - begin);
      await new Promise(done => setTimeout(done, Math.max(0, rest)));
      if (turn !== this.turn) return;
      if (!this.#partOf(this.frame + 1)) return this.pause();
      this.#setFrame(this.frame + 1);
    }
  }

  async #playVideos(turn) {
    const slow = this.#sayIfSlow(turn);
    await this.#seek(turn).finally(() => clearTimeout(slow));
    if (turn !== this.turn) return;
    await Promise.all(this.videos.map(video => video.play()));
    this.#say("");
    for (const image of this.images) image.hidden = true;
    const tick = () => {
      if (turn !== this.turn) return;
      if (this.videos[RESULT].ended) return this.#nextPart();
      this.#keepInStep();
      this.#setFrame(this.#frameAt(this.videos[RESULT].currentTime));
      requestAnimationFrame(tick);
    };
    tick();
  }

  #frameAt(time) {
    const { part, times } = this.loaded;
    let index = Math.min(times.length - 1, Math.max(0, Math.round(time * this.media.fps)));
    while (index > 0 && times[index] - part.start_s > time + 1e-3) index--;
    while (index < times.length - 1 && times[index + 1] - part.start_s <= time + 1e-3) index++;
    return part.first + index;
  }

  /** Let the source follow the result: jump if it is far off, else play a little faster or slower. */
  #keepInStep() {
    const [source, result] = this.videos, speed = Number(this.speed.value);
    const waits = video => video.readyState < HTMLMediaElement.HAVE_FUTURE_DATA && !video.ended;
    result.playbackRate = speed;
    for (const [one, other] of [[source, result], [result, source]]) {
      if (waits(other) && !one.paused) one.pause();
      else if (!waits(other) && one.paused && !one.ended) one.play().catch(() => {});
    }
    const ahead = source.currentTime - this.#offset - result.currentTime;
    if (Math.abs(ahead) > FAR && !source.seeking && !source.ended) source.currentTime -= ahead;
    source.playbackRate = speed * (1 - Math.max(-STEADY, Math.min(STEADY, 4 * ahead)));
  }

  #nextPart() {
    const next = this.loaded.part.first + this.loaded.part.frames;
    this.playing = false;
    if (this.#partOf(next)) {
      this.#setFrame(next);
      return this.play();
    }
    this.playing = true;
    return this.pause();
  }

  #fallBack() {
    if (this.broken) return;
    this.pause();
    this.broken = true;
    this.#say("");
    this.show(this.frame);
  }

  /** Tell that something is awaited, unless the timer that is returned is cleared soon. */
  #sayIfSlow(turn) {
    return setTimeout(() => turn === this.turn && this.#say("Frame " + (this.frame + 1) + " is being read\u2026"), SLOW_MS);
  }

  #say(line) {
    const text = line || (this.broken ? "This browser cannot play these videos; single frames are shown." : "");
    this.message.textContent = text;
    this.message.hidden = !text;
  }

  /** What a key does; the page may pass on those that are pressed elsewhere. */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target === this.speed) return;
    if (event.key === ",") this.step(-1);
    else if (event.key === ".") this.step(1);
    else if (event.key === "k" || (event.key === " " && event.target === this.comparison.stage)) this.toggle();
    else return;
    event.preventDefault();
  }

  /** Stop everything; the videos are given back. */
  close() {
    this.turn++;
    this.playing = false;
    for (const video of this.videos) {
      video.removeAttribute("src");
      video.load();
    }
  }
}

/** Move a video to a time and wait until it shows that. */
function moveTo(video, time) {
  return new Promise((done, fail) => {
    const settle = () => { clean(); done(); }, refuse = () => { clean(); fail(new Error("the video cannot be played")); };
    const clean = () => {
      video.removeEventListener("seeked", settle);
      video.removeEventListener("error", refuse);
    };
    video.addEventListener("seeked", settle);
    video.addEventListener("error", refuse);
    video.currentTime = time;
  });
}
