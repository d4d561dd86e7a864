// @ts-check
/** The page of a topic's records: fields that go with a choice, and rows that open in place. */

import "./dialog.js";
import "./produce_file.js";
import "./toast.js";
import "./watch.js";
import { read } from "./live.js";
import { growTrees } from "./tree.js";
import { Tail } from "./tail.js";

const form = /** @type {HTMLFormElement | null} */ (document.querySelector("[data-messages-form]"));

/** Show the fields that the chosen start and decoders need, and send no others. */
function showFields() {
  if (!form) return;
  /** @param {string} name */
  const text = (name) => String(new FormData(form).get(name) ?? "");
  const wanted = new Set([text("from")]);
  if (text("decode") === "avro" || text("decode_key") === "avro") wanted.add("schema");
  for (const label of /** @type {NodeListOf<HTMLElement>} */ (form.querySelectorAll("[data-for]"))) {
    const isWanted = wanted.has(label.dataset.for ?? "");
    label.hidden = !isWanted;
    for (const field of label.querySelectorAll("input, textarea")) {
      /** @type {HTMLInputElement} */ (field).disabled = !isWanted;
    }
  }
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
  showFields();
  form.addEventListener("change", showFields);
  form.addEventListener("submit", shorten);
  // Back from the next page the browser shows this one as it was left.
  addEventListener("pageshow", () => {
    for (const field of /** @type {Iterable<HTMLInputElement>} */ (form.elements)) field.disabled = false;
    showFields();
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
