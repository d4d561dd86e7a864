// @ts-check
/**
 * The pages about groups: read again every few seconds, and at once when the group that is shown has rebalanced.
 *
 * The server renders everything. This fetches the page at its own address and puts those of its `data-part`s in place
 * that have changed, so that what is being clicked or is selected stays where it is otherwise.
 */

import { isLive, keepUpToDate, quietly, read, showConnections, showLocalTimes } from "./live.js";

const REFRESH_MS = 3_000; // between two readings of the page while it is looked at
const REBALANCE_MS = 250; // after news of a rebalance, of which there may be several in a row

const groupId = /** @type {HTMLElement | null} */ (document.querySelector("[data-group-id]"))?.dataset.groupId;
/** @type {Map<string, string>} what the server rendered last, by part */
const rendered = new Map();
let isLoading = false; // a page of a large group may take longer than the pause between two refreshes
/** @type {ReturnType<typeof setTimeout> | undefined} */
let soon;

for (const part of parts(document)) rendered.set(name(part), part.innerHTML);

/** @param {Document} page */
function parts(page) {
  return /** @type {HTMLElement[]} */ ([...page.querySelectorAll("[data-part]")]);
}

/** @param {HTMLElement} part */
function name(part) {
  return part.dataset.part ?? "";
}

/** Read this page again and put in place what has changed. */
async function refresh() {
  if (isLoading) return;
  isLoading = true;
  try {
    const answer = await read(location.href, "text/html");
    if (answer.ok) show(new DOMParser().parseFromString(await answer.text(), "text/html"));
    else if (answer.status === 404 && rendered.size) location.reload(); // the group is gone: say so
  } finally {
    isLoading = false;
  }
}

/** @param {Document} page as the server renders it now */
function show(page) {
  if (!rendered.size && parts(page).length) location.reload(); // the group was not there, and now is
  const fresh = new Map(parts(page).map((part) => [name(part), part.innerHTML]));
  for (const part of parts(document)) {
    const html = fresh.get(name(part));
    // Compared with what was rendered, not with what is there: times in it have been written in the local zone since.
    if (html === undefined || html === rendered.get(name(part))) continue;
    // Scrolled places inside the part are new elements; without this they would jump to their top.
    const top = part.querySelector(".scroll")?.scrollTop ?? 0;
    // The server's own rendering, in which all text of clients is escaped.
    part.innerHTML = html;
    rendered.set(name(part), html);
    const scrolled = part.querySelector(".scroll");
    if (scrolled) scrolled.scrollTop = top;
  }
  showLocalTimes();
}

keepUpToDate(refresh, {
  sample: (sample) => showConnections(sample.connections),
  groups: (/** @type {{group_ids: string[]}} */ news) => {
    if (groupId !== undefined && !news.group_ids.includes(decodeURIComponent(groupId))) return;
    clearTimeout(soon);
    soon = setTimeout(() => quietly(refresh), REBALANCE_MS);
  },
});
setInterval(() => isLive() && !document.hidden && quietly(refresh), REFRESH_MS);
