// The frame of the page: which view is shown, the connection, the number of jobs.

import { announce, button, el } from "./dom.js";
import { LibraryView } from "./library.js";
import { QueueView } from "./queue.js";
import { store } from "./store.js";
import { TryView } from "./try.js";
import { WatchView } from "./watch.js";

const VIEWS = { library: LibraryView, queue: QueueView, try: TryView, watch: WatchView };
const main = document.getElementById("main");
let current = null, first = true;

/** Show the view that the address names, such as #/try/ID. */
function route() {
  if (!location.hash.startsWith("#/") && !first) return;  // a link within the page
  const [, name, id] = location.hash.match(/^#\/(\w+)(?:\/([\w-]+))?/) ?? [];
  const View = VIEWS[name] ?? LibraryView;
  current?.close();
  current = new View(id);
  main.replaceChildren(current.element);
  for (const link of document.querySelectorAll("nav a")) {
    const here = link.id === "nav-" + (View === QueueView || View === WatchView ? "queue" : "library");
    here ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
  if (!first) {
    window.scrollTo(0, 0);
    const heading = main.querySelector("h1");
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
  }
  first = false;
  showTitle();
}

function showTitle() {
  const running = store.orderedJobs.waiting.find(job => job.state === "running");
  const share = running?.progress?.total ? Math.floor(100 * running.progress.done / running.progress.total) + " % \u00b7 " : "";
  document.title = share + (current?.title ?? "Library") + " \u00b7 vsrkit studio";
}

function showJobs({ detail: { value, before } = {} }) {
  const place = document.getElementById("queue-count"), number = store.orderedJobs.waiting.length;
  place.hidden = number === 0;
  place.textContent = number;
  place.setAttribute("aria-label", number + " unfinished");
  showTitle();
  if (!value || !before || value.state === before.state) return;
  if (value.state === "done") announce(value.name + " is finished");
  if (value.state === "failed") announce(value.name + " failed: " + value.error);
}

function showConnection(text) {
  const place = document.getElementById("connection");
  place.textContent = text;
}

function showSignedOut() {
  store.events.stop();
  current?.close();
  current = null;
  main.replaceChildren(el("section", { class: "notice" }, el("h1", { text: "Signed out" }),
    el("p", {}, "Run ", el("code", { text: "vsrkit studio url" }), " in a terminal and open the address that it prints."),
    button("Try again", {}, () => location.reload())));
}

let lost = 0;
store.events.addEventListener("open", () => showConnection(""));
store.events.addEventListener("lost", () => {
  clearTimeout(lost);
  lost = setTimeout(() => store.events.source?.readyState !== EventSource.OPEN && showConnection("Reconnecting\u2026"), 1500);
});
store.addEventListener("jobs", showJobs);
window.addEventListener("signed-out", showSignedOut, { once: true });
window.addEventListener("hashchange", route);
document.querySelector(".skip").addEventListener("click", event => {
  event.preventDefault();
  main.focus();
});
// A file that misses the drop area must not replace the page.
for (const name of ["dragover", "drop"]) window.addEventListener(name, event => event.preventDefault());

route();
store.start().catch(error => showConnection(error.message));
