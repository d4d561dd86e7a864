// @ts-check
/**
 * What all pages have in common: reading from the broker, its event stream, the link light, local times.
 *
 * When the stream is lost its page is read every two seconds until it is back. `?still` in the address draws once and
 * opens no stream, for pictures and for print.
 */

export const POLL_MS = 2_000; // how often things are read while there is no stream
export const isStill = new URLSearchParams(location.search).has("still");

let live = false;

/** Whether the stream is open. */
export const isLive = () => live;

/** @param {string} address @returns {Promise<any>} */
export async function get(address) {
  const answer = await fetch(address, { headers: { accept: "application/json" } });
  if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
  return answer.json();
}

/** Errors of reading in the background: the link light tells, and the next round tries again. @param {() => Promise<unknown>} work */
export const quietly = (work) => work().catch(() => undefined);

/** Replace a table's rows by those the server renders. @param {string} what */
export async function loadRows(what) {
  const body = document.querySelector(`[data-${what}]`);
  const answer = await fetch(`/rows/${what}`);
  if (!body || !answer.ok) return;
  body.innerHTML = await answer.text();
  showLocalTimes();
}

/** Times in the reader's own zone, with the date where it is not today. */
export function showLocalTimes() {
  const today = new Date().toDateString();
  /** @type {Intl.DateTimeFormatOptions} */
  const date = { day: "numeric", month: "short" };
  for (const place of document.querySelectorAll("[data-at-ms]")) {
    const at = new Date(Number(place.getAttribute("data-at-ms")));
    /** @type {Intl.DateTimeFormatOptions} */
    const time = { hour: "2-digit", minute: "2-digit" };
    if (!place.hasAttribute("data-to-the-minute")) time.second = "2-digit";
    place.setAttribute("title", at.toISOString());
    place.textContent = at.toLocaleString([], at.toDateString() === today ? time : { ...date, ...time });
  }
}

/** @param {"live" | "lost" | "static"} state @param {string} text */
export function showLink(state, text) {
  live = state === "live";
  const link = /** @type {HTMLElement} */ (document.querySelector("[data-link]"));
  link.dataset.link = state;
  /** @type {HTMLElement} */ (link.querySelector("[data-link-text]")).textContent = text;
}

/** @param {number} count */
export function showConnections(count) {
  const connections = document.querySelector('[data-reading="connections"]');
  if (connections) connections.textContent = String(count);
}

function showUptime() {
  const place = /** @type {HTMLElement} */ (document.querySelector("[data-uptime]"));
  const seconds = Math.floor(Number(place.dataset.uptime) + performance.now() / 1000);
  const parts = [[Math.floor(seconds / 86400), "d"], [Math.floor(seconds / 3600) % 24, "h"], [Math.floor(seconds / 60) % 60, "min"], [seconds % 60, "s"]];
  while (parts.length > 1 && parts[0][0] === 0) parts.shift();
  place.textContent = parts.slice(0, 2).map(([amount, unit]) => `${amount} ${unit}`).join(" ");
}

/** Open the event stream, and again whenever it is lost. @param {() => Promise<unknown>} load reads everything
 * @param {Record<string, (data: any) => void>} handlers by the names of the events */
function connect(load, handlers) {
  const stream = new EventSource("/api/v1/events");
  stream.addEventListener("open", () => {
    showLink("live", "live");
    quietly(load);
  });
  for (const [name, handle] of Object.entries(handlers)) {
    stream.addEventListener(name, (event) => handle(JSON.parse(/** @type {MessageEvent} */ (event).data)));
  }
  stream.addEventListener("error", () => {
    showLink("lost", "reconnecting");
    // The browser tries again by itself, unless the server refused the stream.
    if (stream.readyState === EventSource.CLOSED) setTimeout(() => connect(load, handlers), 2 * POLL_MS);
  });
}

/** Keep the page up to date, unless it is to be still. @param {() => Promise<unknown>} load reads everything
 * @param {Record<string, (data: any) => void>} handlers by the names of the events */
export function keepUpToDate(load, handlers) {
  showLocalTimes();
  if (isStill) return;
  connect(load, handlers);
  setInterval(showUptime, 1000);
  setInterval(() => !live && quietly(load), POLL_MS);
}
