// Elements, icons and the words of the page. Texts are set as text, never parsed as HTML.

/** An element. Properties beginning with `on` are listeners; `class`, `dataset` and `text` are what they say. */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "text") element.textContent = value;
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter(child => child !== null && child !== undefined && child !== false));
  return element;
}

const ICONS = {
  upload: "M12 16V4m0 0L7 9m5-5 5 5M4 16v3a1 1 0 0 0 1 1h14a1 1 0 0 0 1-1v-3",
  download: "M12 4v12m0 0 5-5m-5 5-5-5M4 19h16",
  play: "M7 4.500v15l12-7.500z",
  pause: "M8 5v14M16 5v14",
  stop: "M6 6h12v12H6z",
  retry: "M4 12a8 8 0 1 0 2.500-5.800M4 4v4.500h4.500",
  up: "M12 19V5m0 0-6 6m6-6 6 6",
  down: "M12 5v14m0 0 6-6m-6 6-6-6",
  close: "M6 6l12 12M18 6 6 18",
  grip: "M9 6h.01M15 6h.01M9 12h.01M15 12h.01M9 18h.01M15 18h.01",
  grid: "M4 4h7v7H4zM13 4h7v7h-7zM4 13h7v7H4zM13 13h7v7h-7z",
  list: "M4 6h16M4 12h16M4 18h16",
  eye: "M2 12s3.500-7 10-7 10 7 10 7-3.500 7-10 7-10-7-10-7zM12 15a3 3 0 1 0 0-6 3 3 0 0 0 0 6z",
  settings: "M4 7h10M18 7h2M4 17h2M10 17h10M16 4.500v5M8 14.500v5",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  log: "M5 4h14v16H5zM8 9h8M8 13h8M8 17h5",
  report: "M5 20V10M12 20V4M19 20v-7",
  plus: "M12 5v14M5 12h14",
  warning: "M12 4 2.500 20h19zM12 10v4.500M12 17.500v.01",
  check: "M4 12.500 9.500 18 20 6.500",
  folder: "M3 6h6l2 2.500h10V19H3z",
};

/** A drawing beside a text; screen readers pass over it. */
export function icon(name) {
  const space = "http://www.w3.org/2000/svg", svg = document.createElementNS(space, "svg");
  for (const [key, value] of Object.entries({ viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" })) svg.setAttribute(key, value);
  const path = document.createElementNS(space, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** A button with an icon, a text, or both; without a text, `label` is its name. */
export function button(text, { icon: sign, label, ...properties } = {}, action) {
  const about = label ? { "aria-label": label, ...(text ? {} : { title: label }) } : {};
  return el("button", { type: "button", ...about, ...properties, onclick: action }, sign && icon(sign), text && el("span", { text }));
}

/** A text in which `words` are code, as in the help of the command. */
export function marked(text) {
  return text.split("`").map((part, index) => index % 2 ? el("code", { text: part }) : part);
}

/** Replace the children of an element only where they differ, so that focus and scrolling stay. */
export function arrange(parent, children) {
  for (const child of [...parent.children]) if (!children.includes(child)) child.remove();
  children.forEach((child, index) => {
    if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] ?? null);
  });
}

const contents = new WeakMap();

/** Make the children of an element again if these values differ from those of the last time, so that focus stays elsewhere. */
export function renew(element, values, make) {
  const text = JSON.stringify(values);
  if (contents.get(element) === text) return;
  contents.set(element, text);
  element.replaceChildren(...make().filter(Boolean));
}

/** Tell people who do not see the page. */
export function announce(text) {
  const place = document.getElementById("announcements");
  place.textContent = "";
  setTimeout(() => { place.textContent = text; }, 50);
}

/** A line in a corner, which goes away by itself; errors stay until they are closed. */
export function toast(text, { link, error = false } = {}) {
  const line = el("div", { class: error ? "toast failed" : "toast", role: error ? "alert" : "status" }, el("span", { text }),
    link && el("a", { href: link.href, text: link.text }));
  line.append(button("", { icon: "close", label: "Close", class: "plain" }, () => line.remove()));
  document.getElementById("toasts").append(line);
  if (!error) setTimeout(() => line.remove(), 20_000);
}

/** A whole number as text, such as 1,234. */
export const count = number => number.toLocaleString("en");

/** A number and its noun: "1 file", "3 files". */
export const counted = (number, noun) => count(number) + " " + noun + (number === 1 ? "" : "s");

/** Bytes as text, such as 12.3 MB. */
export function bytes(size) {
  if (size === null || size === undefined) return "\u2013";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let power = 0;
  while (size >= 999.5 && power < units.length - 1) {
    size /= 1000;
    power++;
  }
  return (power && size < 99.95 ? size.toFixed(1) : Math.round(size)) + "\u00a0" + units[power];
}

/** A position or length in a video, such as 1:02:03. */
export function clock(seconds) {
  if (seconds === null || seconds === undefined) return "\u2013";
  const whole = Math.round(seconds), pad = number => String(number).padStart(2, "0");
  const minutes = Math.floor(whole / 60) % 60, hours = Math.floor(whole / 3600);
  return (hours ? hours + ":" + pad(minutes) : minutes) + ":" + pad(whole % 60);
}

/** A time to wait in words, such as 2 h 5 min. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "\u2013";
  if (seconds < 10) return seconds.toFixed(1) + "\u00a0s";
  if (seconds < 90) return Math.round(seconds) + "\u00a0s";
  const minutes = Math.round(seconds / 60);
  if (minutes < 90) return minutes + "\u00a0min";
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? hours + "\u00a0h " + minutes % 60 + "\u00a0min" : Math.round(hours / 24) + "\u00a0days";
}

/** `encoder_options` as "Encoder options". */
export const title = name => (name[0].toUpperCase() + name.slice(1)).replaceAll("_", " ");

/** Call `action` a moment later, once for many calls. */
export function soon(action) {
  let timer = 0;
  return () => {
    timer ||= setTimeout(() => {
      timer = 0;
      action();
    }, 40);
  };
}

/** Call `action` when it was not called for some time. */
export function delayed(milliseconds, action) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), milliseconds);
  };
}
