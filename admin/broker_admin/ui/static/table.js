// @ts-check
/**
 * Tables of `macros/table.html`: the search filters as typed, j and k move between rows, Enter and a click open one.
 *
 * @module imported for its effect; `refreshRegions` of morph.js is what puts new rows in place.
 */

import { quietly } from "./live.js";
import { refreshRegions } from "./morph.js";

const TYPING_MS = 250; // after the last letter, so that a word is one request

for (const form of /** @type {NodeListOf<HTMLFormElement>} */ (document.querySelectorAll("form[data-search]"))) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let soon;
  const search = () => {
    const given = [...new FormData(form)].filter(([, value]) => value !== "").map(([name, value]) => [name, String(value)]);
    const query = new URLSearchParams(given).toString();
    // Kept in the address, so that the page can be linked to, and is read again as it is seen.
    history.replaceState(null, "", query ? `${form.action}?${query}` : form.action);
    return quietly(() => refreshRegions());
  };
  form.addEventListener("input", () => {
    clearTimeout(soon);
    soon = setTimeout(search, TYPING_MS);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(soon);
    search();
  });
  form.querySelector("[type=submit]")?.classList.add("scripted-away");
}

/** @returns {HTMLTableRowElement[]} the rows that can be moved between */
function rows() {
  const bodies = "tbody:is([data-rows], [data-records])";
  const body = document.activeElement?.closest(bodies) ?? document.querySelector(bodies);
  return /** @type {HTMLTableRowElement[]} */ ([...(body?.querySelectorAll(":scope > tr:not(.empty, .opened)") ?? [])]);
}

/** Move the focus to the next or the previous row. @param {1 | -1} step */
export function moveRow(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.contains(document.activeElement));
  const row = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + step, 0), all.length - 1)];
  row.tabIndex = -1;
  row.focus({ preventScroll: true });
  row.scrollIntoView({ block: "nearest" });
}

/** Follow the first link of a row. @param {Element | null | undefined} row */
function open(row) {
  const link = row?.querySelector("a[href]");
  if (link instanceof HTMLAnchorElement) link.click();
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target instanceof HTMLTableRowElement) open(event.target);
});

document.addEventListener("click", (event) => {
  if (!(event.target instanceof Element) || event.target.closest("a, button, input, select, label, summary")) return;
  if (String(getSelection())) return; // text of the row was selected, not the row
  open(event.target.closest("tbody[data-rows] > tr"));
});
