// @ts-check
/**
 * On every page: the search for anything (`/`, Ctrl-K), the keys, and the clock of the last reading.
 *
 * @typedef {{kind: string, title: string, address: string, detail: string}} Hit
 */

import { get, keepClock } from "./live.js";
import { refreshRegions } from "./morph.js";
import { moveRow } from "./table.js";
import "./toast.js";

const TYPING_MS = 120; // after the last letter: the search is over names in memory
const CHORD_MS = 1_500; // how long `g` waits for the letter of a page

const palette = /** @type {HTMLDialogElement} */ (document.getElementById("palette"));
const input = /** @type {HTMLInputElement} */ (palette.querySelector("input"));
const list = /** @type {HTMLElement} */ (palette.querySelector("[data-hits]"));
const note = /** @type {HTMLElement} */ (palette.querySelector("[data-palette-note]"));
let at = 0; // the hit that Enter opens
let asked = 0; // numbers the searches, of which only the last one's answer is shown
/** @type {ReturnType<typeof setTimeout> | undefined} */
let soon;

function openPalette() {
  if (document.querySelector("dialog[open]")) return;
  palette.showModal();
  input.select();
  search();
}

async function search() {
  const number = ++asked;
  const query = input.value.trim();
  if (!query) return showHits(pages());
  try {
    const { items } = await get(`/api/v1/search?q=${encodeURIComponent(query)}`);
    if (number === asked) showHits(items);
  } catch {
    if (number === asked) note.textContent = "The broker does not answer.";
  }
}

/** @returns {Hit[]} the pages, before anything is typed */
function pages() {
  const links = /** @type {NodeListOf<HTMLAnchorElement>} */ (document.querySelectorAll(".navigation a[data-key]"));
  return [...links].map((link) => ({
    kind: "page",
    title: link.textContent ?? "",
    address: link.getAttribute("href") ?? "/",
    detail: `g ${link.dataset.key}`,
  }));
}

/** @param {Hit[]} hits */
function showHits(hits) {
  at = 0;
  list.replaceChildren(...hits.map(hitLine));
  note.textContent = hits.length ? "" : "Nothing has that in its name.";
  mark();
}

/** @param {Hit} hit @param {number} number */
function hitLine(hit, number) {
  const line = document.createElement("li");
  line.id = `hit-${number}`;
  line.setAttribute("role", "option");
  const link = document.createElement("a");
  link.href = hit.address;
  link.tabIndex = -1;
  const parts = /** @type {[string, string][]} */ ([["kind", hit.kind], ["title", hit.title], ["detail", hit.detail]]);
  for (const [name, text] of parts) {
    const part = document.createElement(name === "title" ? "bdi" : "span");
    part.className = name;
    part.textContent = text;
    link.append(part, " ");
  }
  line.append(link);
  return line;
}

function mark() {
  [...list.children].forEach((line, number) => line.setAttribute("aria-selected", String(number === at)));
  input.setAttribute("aria-activedescendant", list.children.length ? `hit-${at}` : "");
  list.children[at]?.scrollIntoView({ block: "nearest" });
}

input.addEventListener("input", () => {
  clearTimeout(soon);
  soon = setTimeout(search, TYPING_MS);
});
input.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) {
    event.preventDefault();
    at = Math.min(Math.max(at + step, 0), Math.max(list.children.length - 1, 0));
    mark();
  } else if (event.key === "Escape") {
    event.preventDefault(); // a field of the type search would only be emptied
    palette.close();
  } else if (event.key === "Enter") {
    event.preventDefault();
    /** @type {HTMLAnchorElement | null | undefined} */ (list.children[at]?.querySelector("a"))?.click();
  }
});
palette.addEventListener("click", (event) => event.target === palette && palette.close()); // beside it
document.querySelector("[data-palette]")?.addEventListener("click", openPalette);

/** @type {Record<string, () => void>} */
const KEYS = {
  "/": openPalette,
  "?": () => /** @type {HTMLDialogElement} */ (document.getElementById("keys")).showModal(),
  j: () => moveRow(1),
  k: () => moveRow(-1),
  r: () => refreshRegions().catch(() => undefined),
};
let chordUntil = 0; // `g` was pressed, and a page's letter counts until then

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    return openPalette();
  }
  const isTyping = event.target instanceof HTMLElement && event.target.closest("input, textarea, select, dialog");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return undefined;
  if (performance.now() < chordUntil) {
    chordUntil = 0;
    const link = document.querySelector(`.navigation a[data-key="${CSS.escape(event.key)}"]`);
    if (link instanceof HTMLAnchorElement) return link.click();
  }
  if (event.key === "g") chordUntil = performance.now() + CHORD_MS;
  const act = KEYS[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
  return undefined;
});

// On a narrow screen the navigation scrolls sideways, and the page that is shown may stand beyond its edge.
document.querySelector(".navigation [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
keepClock();
