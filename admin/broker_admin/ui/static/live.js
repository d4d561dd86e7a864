// @ts-check
/**
 * What all pages share: reading from the broker, its event stream, the connection state in the header, the banner,
 * local times.
 *
 * A page is in one of three states. *Live*: the event stream is open. *Polling*: the server refused the stream because
 * all of them are taken, so the page reads everything every two seconds. *Lost*: the broker does not answer; the page
 * goes on trying, and once a reading is overdue it greys all readings and says in a banner how old they are.
 *
 * `?still` in the address draws once and opens no stream, for pictures and for print.
 */

import { localTime, showLocalTimes } from "./times.js";

export const POLL_MS = 2_000; // how often things are read while there is no stream
const STALE_MS = 5_000; // five samples or two polls have not come: more than a hiccup of the network
const READINESS_MS = 10_000; // how often it is asked whether clients are served
const STREAM_RETRY_MS = 4_000; // between two attempts to get one of the streams, while all are taken
const READ_TIMEOUT_MS = 10_000;
/** Where the API has what only the broker itself knows that serves this page. */
export const nodeApi = document.body.dataset.nodeApi ?? "";
/** Where it has the settings of that broker. */
export const configApi = document.body.dataset.configApi ?? "";
export const isStill = new URLSearchParams(location.search).has("still");

/** @typedef {{started_at_ms: number, uptime_seconds: number, version: string, durability: string,
 *   listeners: {name: string, host: string, port: number}[]}} Node */

/** @type {"live" | "polling" | "lost" | "paused"} */
let state = "live";
let lastReadingAt = performance.now(); // when the broker last answered or sent an event, on the page's own clock
let startedAtMs = Number(document.body.dataset.startedAtMs);
/** @type {{seconds: number, at: number}} the uptime that the broker reported, and when */
let uptime = { seconds: Number(find("[data-uptime]")?.dataset.uptime ?? 0), at: 0 };
let reasonNotReady = document.body.dataset.reasonNotReady ?? ""; // as /readyz reports it, at first as the page did
/** @type {string} what stays in the banner until it is closed or there is worse */
let notice = "";

/** An element that not every page has. @param {string} selector */
function find(selector) {
  return /** @type {HTMLElement | null} */ (document.querySelector(selector));
}

/** An element of the frame. @param {string} selector */
function part(selector) {
  return /** @type {HTMLElement} */ (document.querySelector(selector));
}

/** @param {string} selector @param {string} text for the element, on pages that have it */
function say(selector, text) {
  const place = find(selector);
  // Set only when it differs, so that a screen reader does not read it out every second.
  if (place && place.textContent !== text) place.textContent = text;
}

/** Whether the stream is open. */
export const isLive = () => state === "live";

/** The server's answer to a GET, which counts as a reading. @param {string} address @param {string} accept */
export async function read(address, accept) {
  // Without a limit, the reads of a broker that hangs would pile up until the browser opens no more connections.
  const answer = await fetch(address, { headers: { accept }, signal: AbortSignal.timeout(READ_TIMEOUT_MS) });
  lastReadingAt = performance.now();
  return answer;
}

/** @param {string} address @returns {Promise<any>} */
export async function get(address) {
  const answer = await read(address, "application/json");
  if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
  return answer.json();
}

/** Drop the errors of reading in the background: the banner shows them, and the next round tries again.
 * @param {() => Promise<unknown>} work */
export const quietly = (work) => work().catch(() => undefined);

let isLeft = false; // another page was asked for, and has not come yet
addEventListener("pageshow", () => (isLeft = false)); // also when the reader comes back to it

/** Go to another page. @param {string} address */
export function leaveFor(address) {
  isLeft = true;
  location.assign(address);
}

/** Load this page anew, unless it is left: that would end the way to the other page. */
export function loadAnew() {
  if (!isLeft) location.reload();
}

/** A count with thin spaces between the thousands, as the server writes it. @param {number} count */
export const numberText = (count) => count.toLocaleString("en").replaceAll(",", "\u202f");

/** A size in binary units, as the server writes it. @param {number} bytes */
export function bytesText(bytes) {
  let size = bytes;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (size < 1024) return unit === "B" ? `${size} B` : `${size.toFixed(1)} ${unit}`;
    size /= 1024;
  }
  return `${size.toFixed(1)} TiB`;
}

/** A duration by its two largest units. @param {number} seconds */
export function durationText(seconds) {
  /** @type {[number, string][]} */
  const parts = [
    [Math.floor(seconds / 86400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [Math.floor(seconds) % 60, "s"],
  ];
  while (parts.length > 1 && parts[0][0] === 0) parts.shift();
  return parts.slice(0, 2).map(([amount, unit]) => `${amount} ${unit}`).join(" ");
}

/** @param {"live" | "polling" | "lost" | "paused"} newState @param {string} text */
function showState(newState, text) {
  state = newState;
  part("[data-link]").dataset.link = newState;
  say("[data-link-text]", text);
}

/** @param {number} count */
export function showConnections(count) {
  say('[data-reading="connections"]', String(count));
}

/** Show once a second what the age of the last reading means. */
function showAge() {
  if (state === "paused") return; // nobody looks at it
  const ageMs = performance.now() - lastReadingAt;
  const isStale = ageMs > STALE_MS;
  document.body.toggleAttribute("data-stale", isStale);
  if (isStale) {
    showBanner("bad", `The broker does not answer; last reading ${durationText(ageMs / 1000)} ago.`);
    return; // The uptime of a broker that does not answer is not known, so it stands still.
  }
  if (reasonNotReady) showBanner("bad", `Clients are not served: ${reasonNotReady}.`);
  else showBanner("notice", notice);
  say("[data-uptime]", durationText(uptime.seconds + (performance.now() - uptime.at) / 1000));
}

/** Show in the header when the broker was last read, from now on. */
export function keepClock() {
  const show = () => say("[data-clock]", localTime(new Date(Date.now() - (performance.now() - lastReadingAt))));
  show();
  if (!isStill) setInterval(show, 1000);
}

/** @param {"bad" | "notice"} kind @param {string} text which hides the banner when it is empty */
function showBanner(kind, text) {
  const banner = part("[data-banner]");
  banner.hidden = text === "";
  banner.dataset.banner = kind;
  part("[data-banner-close]").hidden = kind === "bad";
  say("[data-banner-text]", text);
}

/** Read who the broker is: after an interruption it may have been restarted, and listen somewhere else. */
async function loadNode() {
  /** @type {Node} */
  const node = await get(nodeApi);
  if (node.version !== document.body.dataset.version) loadAnew(); // other pages and scripts belong to it
  if (node.started_at_ms !== startedAtMs) notice = `The broker was restarted at ${localTime(new Date(node.started_at_ms))}.`;
  startedAtMs = node.started_at_ms;
  uptime = { seconds: node.uptime_seconds, at: performance.now() };
  say('[data-node="durability"]', node.durability);
  find('[data-node="listeners"]')?.replaceChildren(
    ...node.listeners.flatMap(({ name, host, port }) => {
      const code = document.createElement("code");
      code.textContent = `${name}://${host}:${port}`;
      return [code, " "];
    }),
  );
  showAge();
}

async function loadReadiness() {
  const answer = await read("/readyz", "text/plain");
  reasonNotReady = answer.ok ? "" : (await answer.text()).trim().replace(/^not ready: /, "");
  showAge();
}

/** Open the event stream, and again when it ends. @param {() => Promise<unknown>} load reads everything
 * @param {Record<string, (data: any) => void>} handlers by the names of the events */
function connect(load, handlers) {
  const again = () => connect(load, handlers);
  if (document.hidden) {
    // A browser opens six connections to one host. If tabs in the background held theirs, a seventh could not be loaded.
    showState("paused", "paused");
    document.addEventListener("visibilitychange", again, { once: true });
    return;
  }
  const stream = new EventSource(`${nodeApi}/events`);
  const over = new AbortController();
  const close = () => {
    over.abort();
    stream.close();
    again();
  };
  document.addEventListener("visibilitychange", close, { signal: over.signal });
  stream.addEventListener("open", () => {
    lastReadingAt = performance.now();
    showState("live", "live");
    quietly(load);
  });
  for (const [name, handle] of Object.entries(handlers)) {
    stream.addEventListener(name, (event) => {
      lastReadingAt = performance.now();
      handle(JSON.parse(/** @type {MessageEvent} */ (event).data));
    });
  }
  stream.addEventListener("error", () => {
    // The browser opens a connection that ended again by itself. An answer other than 200 ends the EventSource for good.
    const isRefused = stream.readyState === EventSource.CLOSED;
    if (!isRefused || isLive()) showState("lost", "reconnecting");
    if (!isRefused) return;
    over.abort();
    setTimeout(again, STREAM_RETRY_MS);
    quietly(showWhyRefused);
  });
}

/** An EventSource does not show the status of the answer that ended it, so the same address is asked for that. */
async function showWhyRefused() {
  const answer = await fetch(`${nodeApi}/events`, { method: "HEAD" });
  if (answer.status !== 503) return;
  const most = document.body.dataset.maxEventStreams;
  showState("polling", `polling every ${POLL_MS / 1000} s: all ${most} streams are taken`);
}

/** Keep the page up to date, unless it is to be still. @param {() => Promise<unknown>} load reads everything
 * @param {Record<string, (data: any) => void>} handlers by the names of the events */
export function keepUpToDate(load, handlers) {
  showLocalTimes();
  if (isStill) return;
  const loadAll = () => Promise.all([load(), loadNode(), loadReadiness()]);
  connect(loadAll, handlers);
  part("[data-banner-close]").addEventListener("click", () => {
    notice = "";
    showAge();
  });
  setInterval(showAge, 1000);
  setInterval(() => !isLive() && !document.hidden && quietly(loadAll), POLL_MS);
  setInterval(() => isLive() && quietly(loadReadiness), READINESS_MS);
}
