// @ts-check
/**
 * Parts of a page put in place as the server renders them now, by changing what differs: focus, scrolled places, opened
 * `<details>`, what is being typed and what is selected stay.
 *
 * Children are matched by their `id` or `data-key`, others by place and tag. `data-keep` marks an element that a script
 * owns: it stays as it is. While the pointer is inside a `[data-rows]`, its rows change in place and none of them moves:
 * new ones wait, those that are gone are greyed, and all is put right when the pointer leaves.
 */

import { isLive, isStill, keepUpToDate, quietly, read } from "./live.js";
import { showLocalTimes } from "./times.js";

/** @type {WeakMap<Element, Element>} rows as they are to be, of those over which the pointer is now */
const waiting = new WeakMap();

/** Read this page, or another address with the same regions, and put its regions in place.
 * @param {string} [address] @returns {Promise<number>} the status of the answer */
export async function refreshRegions(address = location.href) {
  const answer = await read(address, "text/html");
  if (!answer.ok) return answer.status;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const region of document.querySelectorAll("[data-region]")) {
    const fresh = page.getElementById(region.id);
    if (fresh) morph(region, fresh);
  }
  showLocalTimes();
  document.dispatchEvent(new CustomEvent("refreshed"));
  return answer.status;
}

/** Keep the page up to date by reading it again every `pauseMs` while it is looked at, never twice at the same time.
 * @param {number} pauseMs @param {() => Promise<unknown>} load reads it
 * @param {Record<string, (data: any) => void>} [handlers] by the names of the events
 * @returns {() => Promise<void>} reads it again, unless it is being read */
export function refreshEvery(pauseMs, load, handlers = {}) {
  let isLoading = false; // a large page may take longer than the pause
  async function refresh() {
    if (isLoading) return;
    isLoading = true;
    try {
      await load();
    } finally {
      isLoading = false;
    }
  }
  keepUpToDate(refresh, { sample: () => undefined, ...handlers });
  if (!isStill) setInterval(() => isLive() && !document.hidden && quietly(refresh), pauseMs);
  return refresh;
}

/** Make `element` what `fresh` is. @param {Element} element @param {Element} fresh of another document */
export function morph(element, fresh) {
  if (element.hasAttribute("data-keep") || element.isEqualNode(fresh)) return;
  morphAttributes(element, fresh);
  if (element.hasAttribute("data-rows") && element.matches(":hover")) morphRowsInPlace(element, fresh);
  else morphChildren(element, fresh);
}

/** @param {Element} element @param {Element} fresh */
function morphAttributes(element, fresh) {
  const isTypedIn = element === document.activeElement && element.matches("input, textarea, select");
  for (const { name } of [...element.attributes]) {
    // Which details and dialogs are open, and what is typed, is the reader's.
    if (name === "open" || name === "tabindex" || (isTypedIn && name === "value")) continue;
    if (!fresh.hasAttribute(name)) element.removeAttribute(name);
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (name === "open" && element.tagName === "DETAILS") continue;
    if (element.getAttribute(name) !== value) element.setAttribute(name, value);
  }
}

/** @param {Node} node @returns {string} */
function keyOf(node) {
  if (!(node instanceof Element)) return "";
  return node.id ? `#${node.id}` : (node.getAttribute("data-key") ?? "");
}

/** @param {Element} element @param {Element} fresh */
function morphChildren(element, fresh) {
  /** @type {Map<string, ChildNode>} */
  const keyed = new Map();
  for (const child of element.childNodes) if (keyOf(child)) keyed.set(keyOf(child), child);
  /** @type {ChildNode | null} */
  let next = element.firstChild; // what stands where the next child belongs
  for (const wanted of [...fresh.childNodes]) {
    const key = keyOf(wanted);
    const match = key ? (keyed.get(key) ?? null) : fitting(next, wanted);
    if (!match) {
      element.insertBefore(document.importNode(wanted, true), next);
      continue;
    }
    if (match === next) next = next.nextSibling;
    else element.insertBefore(match, next);
    if (match instanceof Element && wanted instanceof Element) morph(match, wanted);
    else if (match.nodeValue !== wanted.nodeValue) match.nodeValue = wanted.nodeValue;
  }
  while (next) {
    const gone = next;
    next = next.nextSibling;
    gone.remove();
  }
}

/** The node at a place, if it is of the kind that belongs there. @param {ChildNode | null} node @param {Node} wanted */
function fitting(node, wanted) {
  const fits = node && !keyOf(node) && node.nodeType === wanted.nodeType && node.nodeName === wanted.nodeName;
  return fits ? node : null;
}

/** @param {Element} body @param {Element} fresh */
function morphRowsInPlace(body, fresh) {
  const wanted = new Map([...fresh.children].map((row) => [keyOf(row), row]));
  for (const row of body.children) {
    const now = wanted.get(keyOf(row));
    row.toggleAttribute("data-gone", !now);
    if (now) morph(row, now);
  }
  if (!waiting.has(body)) body.addEventListener("pointerleave", () => putRight(body), { once: true });
  waiting.set(body, fresh);
}

/** @param {Element} body whose rows have waited for the pointer to leave */
function putRight(body) {
  const fresh = waiting.get(body);
  waiting.delete(body);
  if (fresh) morphChildren(body, fresh);
  showLocalTimes();
}
