// @ts-check
/** The page of a topic's records: fields that go with a choice, and rows that open in place. */

import "./dialog.js";
import "./produce_file.js";
import "./toast.js";
import "./watch.js";
import { read } from "./live.js";
import { Search } from "./search.js";
import { Tail } from "./tail.js";
import { showLocalTimes } from "./times.js";
import { growTrees } from "./tree.js";

const form = /** @type {HTMLFormElement | null} */ (document.querySelector("[data-messages-form]"));

/** Send only the fields that the chosen start and decoders need (messages.css shows no others). */
function enableFields() {
  for (const label of /** @type {NodeListOf<HTMLElement>} */ (form?.querySelectorAll("[data-for]") ?? [])) {
    const isWanted = getComputedStyle(label).display !== "none";
    for (const field of label.querySelectorAll("input, textarea")) {
      /** @type {HTMLInputElement} */ (field).disabled = !isWanted;
    }
  }
}

const time = /** @type {HTMLInputElement | null} */ (form?.querySelector("[name=time]") ?? null);

/** Take a time in the reader's own zone, with what the browser has to choose one. */
function askLocally() {
  if (!time) return;
  const at = new Date(/^\d+$/.test(time.value) ? Number(time.value) : /(Z|[+-]\d\d:?\d\d)$/i.test(time.value) ? time.value : `${time.value}Z`);
  time.type = "datetime-local";
  time.step = "any";
  if (!Number.isNaN(at.getTime())) time.value = new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, -1);
}

/** The address has the time in UTC, so that it is the same for every reader. */
function sendInUtc() {
  if (!time || time.disabled || !time.value) return;
  const at = new Date(time.value);
  time.type = "text";
  time.value = at.toISOString();
}

/** Without empty fields and defaults, so that the address stays short. */
function shorten() {
  const defaults = { from: "newest", limit: "50", decode: "auto", decode_key: "auto" };
  for (const field of /** @type {Iterable<HTMLInputElement>} */ (form?.elements ?? [])) {
    if (field.name && (field.value === "" || field.value === defaults[/** @type {keyof typeof defaults} */ (field.name)])) {
      field.disabled = true;
    }
  }
}

if (form) {
  askLocally();
  form.addEventListener("submit", () => {
    enableFields();
    sendInUtc();
    shorten();
  });
  // Back from the next page the browser shows this one as it was left.
  addEventListener("pageshow", (event) => {
    for (const field of /** @type {Iterable<HTMLInputElement>} */ (form.elements)) field.disabled = false;
    if (event.persisted) askLocally();
  });
}

/** Open a record below its row, or close it. @param {HTMLTableRowElement} row */
async function toggle(row) {
  const next = row.nextElementSibling;
  if (next?.classList.contains("opened")) {
    next.remove();
    return;
  }
  const opened = document.createElement("tr");
  opened.className = "opened";
  const cell = opened.insertCell();
  // Only those in view: a cell over hidden columns would make room for them.
  cell.colSpan = [...row.cells].filter((each) => each.checkVisibility()).length;
  cell.textContent = "Reading …";
  row.after(opened);
  const link = /** @type {HTMLAnchorElement} */ (row.querySelector("a[href]"));
  try {
    const answer = await read(link.href, "text/html");
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const record = page.getElementById("record");
    record?.removeAttribute("id");
    cell.replaceChildren(record ? document.importNode(record, true) : "It is no longer there.");
    growTrees(cell);
    showLocalTimes();
  } catch {
    cell.textContent = "The broker does not answer.";
  }
}

document.addEventListener("click", (event) => {
  if (!(event.target instanceof Element) || event.target.closest("a, button, summary, input")) return;
  const row = event.target.closest("tr.record");
  if (row instanceof HTMLTableRowElement && !String(getSelection())) toggle(row);
});

growTrees(document);

const section = /** @type {HTMLElement | null} */ (document.querySelector("[data-tail]"));
const button = /** @type {HTMLButtonElement | null} */ (document.querySelector("[data-tail-button]"));
if (section && button && form) new Tail(section, button, form);

/** @type {Search | null} */
let search = null;
function searchOn() {
  search?.underWay?.abort();
  const line = /** @type {HTMLElement | null} */ (document.querySelector("[data-goes-on]"));
  search = line && new Search(line);
}
searchOn();
document.addEventListener("refreshed", searchOn); // the rows are those of the page again
