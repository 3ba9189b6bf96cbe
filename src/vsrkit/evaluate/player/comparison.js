// Pictures or videos of one scene, laid over each other with dividers between them or side by side, with zoom.
// Used by the page of the studio and, inside one file, by reports; so it imports nothing and knows no page.

const ZOOMS = [0.25, 0.5, 1, 2, 3, 4, 6, 8, 12, 16];  // device pixels for a pixel of the picture
const NARROWEST = 0.02;  // of the stage, between two dividers
const SMALLEST_TAG = 48, NARROWEST_PANE = 220;  // CSS pixels

/** An element with a class and a text; the text is never parsed as HTML. */
export function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

/** A button that calls `action`; `name` is its accessible name where `text` is only a sign. */
export function makeButton(text, name, action) {
  const button = make("button", "", text);
  button.type = "button";
  if (name) {
    button.setAttribute("aria-label", name);
    button.title = name;
  }
  button.addEventListener("click", action);
  return button;
}

export class Comparison {
  /** label: accessible name of the pictures. */
  constructor(label) {
    this.width = this.height = 1;  // of the picture in pixels
    this.layers = [];  // { name, element, shown, slot, tag }
    this.dividers = [];
    this.positions = [];  // of the dividers, 0 to 1 across the visible part of the picture
    this.sideBySide = false;
    this.zoom = null;  // device pixels for a pixel of the picture; null fits the stage
    this.centre = { x: 0.5, y: 0.5 };
    this.pointers = new Map();
    this.element = make("div", "comparison");
    this.bar = make("div", "bar");
    this.stage = make("div", "stage");
    this.stage.tabIndex = 0;
    this.stage.setAttribute("role", "group");
    this.stage.setAttribute("aria-label", label + ". Plus and minus zoom, arrow keys move the enlarged picture.");
    this.element.append(this.bar, this.stage);
    this.#buildBar();
    this.#listen();
    new ResizeObserver(() => this.layout()).observe(this.stage);
  }

  #buildBar() {
    this.choices = make("div", "choices");
    this.choices.setAttribute("role", "group");
    this.choices.setAttribute("aria-label", "Pictures to show");
    this.sideButton = makeButton("Side by side", "", () => this.setSideBySide(!this.sideBySide));
    this.zoomText = make("output");
    this.zoomText.setAttribute("aria-label", "Zoom");
    this.zoomBar = make("div");
    this.zoomBar.append(
      makeButton("\u2212", "Smaller", () => this.step(-1)), this.zoomText, makeButton("+", "Larger", () => this.step(1)),
      makeButton("1:1", "One pixel of the picture for one of the screen", () => this.setZoom(1)),
      makeButton("Fit", "Fit the picture", () => this.setZoom(null)));
    this.bar.append(this.choices, make("span", "space"), this.sideButton, this.zoomBar);
  }

  /** Show other pictures; each is { name, element }, with `shown: false` for one that is off at first. */
  setLayers(layers, width, height) {
    const kept = layers.length === this.layers.length;
    if (width !== this.width || height !== this.height) this.centre = { x: 0.5, y: 0.5 };
    Object.assign(this, { width, height });
    for (const child of [...this.stage.children]) if (!this.dividers.includes(child)) child.remove();
    this.layers = layers.map(({ name, element, shown = true }, index) => {
      const layer = { name, element, shown: kept ? this.layers[index].shown : shown };
      layer.slot = make("div", "slot");
      layer.tag = make("span", "tag", name);
      layer.slot.append(element);
      this.stage.insertBefore(layer.slot, this.dividers[0] ?? null);
      this.stage.insertBefore(layer.tag, this.dividers[0] ?? null);
      return layer;
    });
    this.#buildChoices();
    this.#buildDividers();
    this.layout();
  }

  /** Show a text in place of pictures of this size. */
  setMessage(text, width, height) {
    this.setLayers([], width, height);
    this.stage.append(make("div", "blank", text));
  }

  get shown() {
    return this.layers.filter(layer => layer.shown);
  }

  #buildChoices() {
    this.choices.replaceChildren();
    this.choices.hidden = this.layers.length < 3;
    this.zoomBar.hidden = this.layers.length === 0;
    this.sideButton.hidden = this.layers.length < 2;
    for (const layer of this.choices.hidden ? [] : this.layers) {
      const button = makeButton(layer.name, "", () => {
        if (layer.shown && this.shown.length === 1) return;
        layer.shown = !layer.shown;
        button.setAttribute("aria-pressed", layer.shown);
        this.#buildDividers();
        this.layout();
      });
      button.setAttribute("aria-pressed", layer.shown);
      this.choices.append(button);
    }
  }

  #buildDividers() {
    const shown = this.shown, count = Math.max(0, shown.length - 1);
    if (count !== this.positions.length) {
      this.positions = Array.from({ length: count }, (_, index) => (index + 1) / (count + 1));
    }
    while (this.dividers.length > count) this.dividers.pop().remove();
    while (this.dividers.length < count) this.#addDivider(this.dividers.length);  // the others keep the focus
    for (const [index, divider] of this.dividers.entries()) {
      divider.setAttribute("aria-label", "Divider between " + shown[index].name + " and " + shown[index + 1].name);
    }
  }

  #addDivider(index) {
    const divider = make("div", "divider");
    divider.tabIndex = 0;
    divider.setAttribute("role", "slider");
    divider.setAttribute("aria-valuemin", 0);
    divider.setAttribute("aria-valuemax", 100);
    divider.addEventListener("keydown", event => this.#dividerKey(event, index));
    this.dividers.push(divider);
    this.stage.append(divider);
  }

  #dividerKey(event, index) {
    const step = event.shiftKey ? 0.1 : 0.01, now = this.positions[index];
    const moved = {
      ArrowLeft: now - step, ArrowDown: now - step, ArrowRight: now + step, ArrowUp: now + step,
      PageDown: now - 0.1, PageUp: now + 0.1, Home: 0, End: 1,
    }[event.key];
    if (moved === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    this.moveDivider(index, moved);
  }

  /** Move a divider to a position from 0 to 1; it stays between its neighbours. */
  moveDivider(index, position) {
    const low = index > 0 ? this.positions[index - 1] + NARROWEST : 0;
    const high = index < this.positions.length - 1 ? this.positions[index + 1] - NARROWEST : 1;
    this.positions[index] = Math.min(high, Math.max(low, position));
    this.layout();
  }

  setSideBySide(sideBySide) {
    this.sideBySide = sideBySide;
    this.sideButton.setAttribute("aria-pressed", sideBySide);
    this.layout();
  }

  /** zoom: device pixels for a pixel of the picture, or null to fit; the point `at` of the stage stays where it is. */
  setZoom(zoom, at) {
    const before = this.geometry();
    this.zoom = zoom === null ? null : Math.min(ZOOMS.at(-1), Math.max(ZOOMS[0], zoom));
    if (at) {
      const after = this.geometry();
      const x = (at.x - before.left) / before.wide, y = (at.y - before.top) / before.high;
      this.centre = { x: x + (after.pane.width / 2 - at.x) / after.wide, y: y + (after.pane.height / 2 - at.y) / after.high };
    }
    this.layout();
  }

  /** The next larger or smaller zoom. */
  step(direction, at) {
    const now = this.geometry().zoom;
    const next = direction > 0 ? ZOOMS.find(zoom => zoom > now * 1.01) : ZOOMS.findLast(zoom => zoom < now * 0.99);
    if (next !== undefined) this.setZoom(next, at);
  }

  /** How many panes there are beside each other and below: one, or nearly a square of them. */
  #panes() {
    if (!this.sideBySide) return { columns: 1, rows: 1 };
    const shown = Math.max(1, this.shown.length), wide = this.stage.clientWidth / 2 >= NARROWEST_PANE;
    const columns = wide ? Math.ceil(Math.sqrt(shown)) : 1;
    return { columns, rows: Math.ceil(shown / columns) };
  }

  /** Where the picture lies: pane (CSS pixels), left, top, wide, high, zoom (device pixels). */
  geometry() {
    const ratio = window.devicePixelRatio || 1, { columns, rows } = this.#panes();
    const stage = { width: this.stage.clientWidth || 1, height: this.stage.clientHeight || 1 };
    const pane = { width: stage.width / columns, height: stage.height / rows, columns };
    let fitting = Math.min(pane.width / this.width, pane.height / this.height) * ratio;
    if (fitting >= 1) fitting = Math.floor(fitting);  // whole pixels stay sharp
    const zoom = this.zoom ?? fitting, wide = this.width * zoom / ratio, high = this.height * zoom / ratio;
    const place = (size, length, centre) => {
      const start = length <= size ? (size - length) / 2 : Math.min(0, Math.max(size - length, size / 2 - centre * length));
      return Math.round(start * ratio) / ratio;
    };
    const left = place(pane.width, wide, this.centre.x), top = place(pane.height, high, this.centre.y);
    return { stage, pane, left, top, wide, high, zoom, overflows: wide > pane.width + 1 || high > pane.height + 1 };
  }

  layout() {
    const shown = this.shown, { columns, rows } = this.#panes();
    this.stage.style.aspectRatio = this.width * columns + " / " + this.height * rows;
    const at = this.geometry();
    const from = Math.max(0, at.left), to = Math.min(at.pane.width, at.left + at.wide);
    const edges = [0, ...this.positions.map(position => from + position * (to - from)), at.pane.width];
    for (const layer of this.layers) {
      const index = shown.indexOf(layer);
      layer.slot.hidden = layer.tag.hidden = index < 0;
      if (index < 0) continue;
      const column = this.sideBySide ? index % at.pane.columns : 0, row = this.sideBySide ? Math.floor(index / at.pane.columns) : 0;
      const box = { left: column * at.pane.width, top: row * at.pane.height };
      Object.assign(layer.slot.style, {
        left: box.left + "px", top: box.top + "px", width: at.pane.width + "px", height: at.pane.height + "px",
        clipPath: this.sideBySide ? "none" : `inset(0 ${at.pane.width - edges[index + 1]}px 0 ${edges[index]}px)`,
      });
      Object.assign(layer.element.style, {
        width: at.wide + "px", height: at.high + "px", transform: `translate(${at.left}px, ${at.top}px)`,
      });
      const start = this.sideBySide ? box.left : Math.max(edges[index], index ? 0 : from);
      const width = (this.sideBySide ? box.left + at.pane.width : edges[index + 1]) - start - 16;
      Object.assign(layer.tag.style, { left: start + 8 + "px", top: box.top + 8 + "px", maxWidth: Math.max(0, width) + "px" });
      layer.tag.hidden = width < SMALLEST_TAG;
    }
    for (const [index, divider] of this.dividers.entries()) {
      const percent = Math.round(100 * this.positions[index]);
      divider.hidden = this.sideBySide;
      divider.style.left = edges[index + 1] + "px";
      divider.setAttribute("aria-valuenow", percent);
      divider.setAttribute("aria-valuetext", percent + " %");
    }
    this.stage.classList.toggle("zoomed", at.overflows);
    this.stage.classList.toggle("pixels", at.zoom >= 1 && Number.isInteger(at.zoom));
    this.zoomText.textContent = Math.round(at.zoom * 100) + " %";
  }

  #listen() {
    const stage = this.stage;
    stage.addEventListener("pointerdown", event => this.#down(event));
    stage.addEventListener("pointermove", event => this.#move(event));
    for (const name of ["pointerup", "pointercancel"]) stage.addEventListener(name, event => this.#up(event));
    stage.addEventListener("dblclick", event => this.setZoom(this.zoom === null ? 1 : null, this.#point(event)));
    stage.addEventListener("keydown", event => this.#key(event));
    stage.addEventListener("wheel", event => {
      if (!event.ctrlKey && !event.metaKey) return;  // the page scrolls
      event.preventDefault();
      this.step(event.deltaY < 0 ? 1 : -1, this.#point(event));
    }, { passive: false });
  }

  #point(event) {
    const box = this.stage.getBoundingClientRect(), pane = this.geometry().pane;
    return { x: (event.clientX - box.left) % pane.width, y: (event.clientY - box.top) % pane.height };
  }

  #down(event) {
    if (event.button > 0) return;
    this.stage.setPointerCapture(event.pointerId);
    const at = this.geometry(), point = this.#point(event);
    let index = this.dividers.indexOf(event.target);
    if (index >= 0) this.dividers[index].focus({ focusVisible: false });
    if (index < 0 && !at.overflows && !this.sideBySide && this.positions.length) {
      const position = this.#position(point.x);
      const far = this.positions.map(each => Math.abs(each - position));
      index = far.indexOf(Math.min(...far));
      this.moveDivider(index, position);
    }
    this.pointers.set(event.pointerId, { ...point, index });
  }

  #position(x) {
    const at = this.geometry(), from = Math.max(0, at.left), to = Math.min(at.pane.width, at.left + at.wide);
    return (x - from) / Math.max(1, to - from);
  }

  #move(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const point = this.#point(event), others = [...this.pointers.values()].filter(each => each !== before);
    if (others.length === 1) {
      const spread = now => Math.hypot(now.x - others[0].x, now.y - others[0].y);
      this.setZoom(this.geometry().zoom * spread(point) / Math.max(1, spread(before)), point);
    } else if (before.index >= 0) {
      this.moveDivider(before.index, this.#position(point.x));
    } else {
      this.pan(before.x - point.x, before.y - point.y);
    }
    this.pointers.set(event.pointerId, { ...before, ...point });
  }

  #up(event) {
    this.pointers.delete(event.pointerId);
  }

  /** Move the enlarged picture by CSS pixels. */
  pan(x, y) {
    const at = this.geometry();
    const inside = (centre, size, length) => Math.min(1 - size / 2 / length, Math.max(size / 2 / length, centre));
    if (at.wide > at.pane.width) this.centre.x = inside(this.centre.x + x / at.wide, at.pane.width, at.wide);
    if (at.high > at.pane.height) this.centre.y = inside(this.centre.y + y / at.high, at.pane.height, at.high);
    this.layout();
  }

  #key(event) {
    if (event.target !== this.stage || event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = { ArrowLeft: [-40, 0], ArrowRight: [40, 0], ArrowUp: [0, -40], ArrowDown: [0, 40] };
    if (event.key === "+" || event.key === "=") this.step(1);
    else if (event.key === "-") this.step(-1);
    else if (event.key === "0") this.setZoom(null);
    else if (event.key === "1") this.setZoom(1);
    else if (moves[event.key] && this.geometry().overflows) this.pan(...moves[event.key]);
    else return;
    event.preventDefault();
  }
}

/** A layer of a comparison with one picture. */
export function pictureLayer(name, address, shown = true) {
  const image = make("img");
  Object.assign(image, { src: address, alt: name, decoding: "async", draggable: false });
  return { name, element: image, shown };
}
