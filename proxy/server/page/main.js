// Shows the page that the address names, and keeps it up to date. A page is {title, load(signal), show(data, page)};
// `listens(name, event)` says whether an event changes it: "reload", new data, or null.

import { ApiError, Live } from "./api.js";
import { curve } from "./curve.js";
import { el, replace } from "./dom.js";
import { overview } from "./overview.js";
import { request, requests } from "./requests.js";
import { session, sessions } from "./sessions.js";

const RELOAD_EVERY = 1500;
const DRIFT = 30_000;

const main = document.getElementById("main");
const alertBox = document.getElementById("alert");
const liveText = document.getElementById("live");
const pause = document.getElementById("pause");

let page = null;
let data = null;
let asking = null;
let timer = 0;
let loadedAt = 0;
let isStale = false; // an event came while a load was under way

const ROUTES = [
  [/^(?:#\/?)?$/, overview],
  [/^#\/economies$/, curve],
  [/^#\/sessions$/, sessions],
  [/^#\/sessions\/([^/]+)$/, session],
  [/^#\/requests$/, requests],
  [/^#\/requests\/([^/]+)$/, request],
];

function findPage() {
  for (const [pattern, make] of ROUTES) {
    const found = pattern.exec(location.hash);
    if (found) return make(...found.slice(1).map(decode), actions);
  }
  return {
    title: "No such page",
    load: async () => null,
    show: () => [el("p", { class: "empty" }, "The dashboard has no page at this address. ", el("a", { href: "#/" }, "Overview"))],
  };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** What a page may ask for: to be drawn again, to be loaded again. */
const actions = {
  redraw: () => draw(),
  reload: () => load(),
};

function draw() {
  replace(main, el("h1", { tabindex: "-1", id: "title" }, page.heading?.(data) ?? page.title), ...page.show(data, actions));
}

async function load({ isNew = false } = {}) {
  clearTimeout(timer);
  timer = 0;
  isStale = false;
  asking?.abort();
  const mine = new AbortController();
  asking = mine;
  try {
    const found = await page.load(mine.signal, data);
    if (mine.signal.aborted) return;
    data = found;
    replace(alertBox);
    draw();
  } catch (error) {
    if (mine.signal.aborted) return;
    if (!(error instanceof ApiError)) console.error(error);
    if (page.isOverview && error.status === 403) { // a client's key shows sessions only
      location.hash = "#/sessions";
      return;
    }
    showError(error);
  }
  asking = null;
  loadedAt = performance.now();
  if (isStale) schedule();
  if (isNew) document.getElementById("title")?.focus({ preventScroll: true });
}

function showError(error) {
  const [text, button] = explain(error);
  replace(alertBox, el("p", { class: "error" }, text, " ", button));
  if (data === null) {
    replace(main, el("h1", { tabindex: "-1", id: "title" }, page.title), page.missing && error.status === 404 ? page.missing() : null);
    if (page.missing && error.status === 404) replace(alertBox);
  }
}

function explain(error) {
  const again = el("button", { type: "button", click: () => load({ isNew: data === null }) }, "Try again");
  if (error.status === 401) {
    const reload = el("button", { type: "button", click: () => location.reload() }, "Reload");
    return ["trimtab asks for its token. Reload the page and give it as the password; the user name does not matter.", reload];
  }
  if (error instanceof ApiError) return [error.message, again];
  return ["The page could not be shown. The browser's console says why.", again];
}

function follow() {
  const before = page;
  page = findPage();
  data = null;
  document.title = `${page.title} \u00b7 trimtab`;
  for (const link of document.querySelectorAll("header nav a")) {
    const address = link.getAttribute("href");
    const isHere = address === "#/" ? page.isOverview : location.hash.startsWith(address);
    if (isHere) link.setAttribute("aria-current", location.hash === address || page.isOverview ? "page" : "true");
    else link.removeAttribute("aria-current");
  }
  scrollTo(0, 0);
  replace(alertBox);
  if (before) replace(main, el("h1", {}, page.title), el("p", { class: "empty" }, "Loading"));
  return load({ isNew: before !== null });
}

function schedule(wait = RELOAD_EVERY) {
  isStale = asking !== null;
  if (timer || isStale) return;
  timer = setTimeout(load, Math.max(0, loadedAt + wait - performance.now()));
}

function hear(name, event) {
  if (name === "open" || name === "lost") {
    if (data !== null) schedule(0);
    return;
  }
  const wanted = data === null ? null : (page.listens?.(name, event, data) ?? null);
  if (wanted === "reload") schedule();
  else if (wanted !== null) {
    data = wanted;
    draw();
  }
}

const STATES = { live: "Live", paused: "Paused", lost: "Not connected, trying again" };

function tell(state) {
  if (liveText.textContent !== STATES[state]) liveText.textContent = STATES[state];
  document.documentElement.dataset.live = state;
  pause.textContent = state === "paused" ? "Resume" : "Pause";
  pause.hidden = false;
}

addEventListener("hashchange", follow);
// A skip link's address is no page of ours.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
const live = new Live(tell, hear);
pause.addEventListener("click", () => live.toggle());
setInterval(() => {
  if (!live.paused && !document.hidden && page.drifts) schedule(0);
}, DRIFT);
await follow();
