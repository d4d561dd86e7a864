// @ts-check
/**
 * The page of settings: opening a key in place, trying a value as it is typed, and a batch of changes that one dialog
 * tries and applies. The server reads suffixes (`64 MiB`) and says what a value comes to, so nothing of it is here.
 */

import "./dialog.js";
import { settingCommands, showDifferences, showCommands } from "./equivalent_commands.js";
import { configApi, keepUpToDate, quietly } from "./live.js";
import { refreshRegions } from "./morph.js";

const TYPING_MS = 250; // after the last letter, so that a word is one request

/** @typedef {{key: string, old: string | null, new: string | null, effective_old: string | null,
 *   effective_new: string | null, shadowed_by: string | null}} Difference */

const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("change-settings"));
const form = /** @type {HTMLFormElement} */ (dialog.querySelector("form"));
const batch = /** @type {HTMLElement} */ (dialog.querySelector("[data-batch]"));
const pending = /** @type {HTMLElement} */ (document.querySelector("[data-pending]"));
const level = /** @type {HTMLSelectElement} */ (form.elements.namedItem("?level"));
const seconds = /** @type {HTMLSelectElement} */ (form.elements.namedItem("?try_seconds"));
const place = { nodeId: batch.dataset.nodeId ?? "", bootstrapServer: batch.dataset.bootstrapServer ?? "" };

keepUpToDate(() => refreshRegions(), { sample: () => undefined, config: () => quietly(() => refreshRegions()) });

// ---- opening a key ----

document.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("a[data-key-link]") : null;
  if (!(link instanceof HTMLAnchorElement) || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  history.replaceState(null, "", link.href);
  quietly(() => refreshRegions());
});
if (new URLSearchParams(location.search).has("key")) document.querySelector("tr.opened")?.scrollIntoView({ block: "start" });

// ---- the form of an opened key ----

/** @param {HTMLFormElement} edit */
const valueOf = (edit) => new FormData(edit).getAll("value").join(",");

/** What a change would do. @param {string} key @param {string | null} value
 * @returns {Promise<Difference | string>} the reason if it is refused */
async function difference(key, value) {
  const answer = await fetch(`${configApi}/${encodeURIComponent(key)}?dry_run=true&level=${level.value}`, {
    method: "PATCH",
    headers: { "x-requested-with": "admin page", "content-type": "application/json" },
    body: JSON.stringify({ value }),
  });
  const json = await answer.json();
  return answer.ok ? json.differences[0] : String(json.detail);
}

/** Say beside the field what its value comes to. @param {HTMLFormElement} edit @param {string | null} value
 * @returns {Promise<Difference | null>} */
async function tryValue(edit, value) {
  const note = /** @type {HTMLElement} */ (edit.querySelector("[data-note]"));
  /** @type {Difference | string} */
  let found;
  try {
    found = await difference(edit.dataset.edit ?? "", value);
  } catch {
    found = "The broker did not answer.";
  }
  const isRefused = typeof found === "string";
  note.dataset.kind = isRefused ? "bad" : "good";
  note.textContent = typeof found === "string" ? found : sentence(found, value);
  return typeof found === "string" ? null : found;
}

/** @param {Difference} found @param {string | null} value as it was typed */
function sentence(found, value) {
  const isRead = found.new !== null && found.new !== value;
  const first = isRead ? `That is ${found.new}. ` : "";
  if (found.effective_old === found.effective_new) return `${first}The value in effect stays ${shown(found.effective_old)}.`;
  return `${first}${shown(found.effective_old)} becomes ${shown(found.effective_new)}.`;
}

/** @type {Record<string, string>} */
const LEVEL_TEXTS = { broker: "This broker", cluster: "The cluster default" };

/** @param {string | null} text */
const shown = (text) => (text === null ? "not set" : text === "" ? "(empty)" : text);

/** @type {ReturnType<typeof setTimeout> | undefined} */
let soon;
document.addEventListener("input", (event) => {
  const edit = event.target instanceof Element ? event.target.closest("form[data-edit]") : null;
  if (!(edit instanceof HTMLFormElement)) return;
  clearTimeout(soon);
  soon = setTimeout(() => tryValue(edit, valueOf(edit)), TYPING_MS);
});
document.addEventListener("submit", (event) => {
  if (!(event.target instanceof HTMLFormElement) || !event.target.dataset.edit) return;
  event.preventDefault();
  addToBatch(event.target, valueOf(event.target));
});
document.addEventListener("click", (event) => {
  const reset = event.target instanceof Element ? event.target.closest("[data-reset]") : null;
  const edit = reset?.closest("form[data-edit]");
  if (edit instanceof HTMLFormElement) addToBatch(edit, null);
});

// ---- the batch ----

/** @param {HTMLFormElement} edit @param {string | null} value */
async function addToBatch(edit, value) {
  clearTimeout(soon);
  const found = await tryValue(edit, value);
  if (!found) return;
  if (found.old === found.new && found.effective_old === found.effective_new) {
    /** @type {HTMLElement} */ (edit.querySelector("[data-note]")).textContent += ` ${LEVEL_TEXTS[level.value]} has that already.`;
    return;
  }
  const label = document.createElement("label");
  label.dataset.key = found.key;
  const name = document.createElement("b");
  name.textContent = found.key;
  const field = document.createElement("input");
  field.name = found.key;
  field.readOnly = true;
  // A secret comes back as null; it is sent as it was typed. An empty text is a value, where it is not a reset.
  field.value = value === null ? "" : (found.new ?? value);
  field.dataset.empty = value === null ? "null" : "text";
  field.placeholder = value === null ? "reset" : "(empty)";
  const remove = document.createElement("button");
  remove.type = "button";
  remove.dataset.removes = "";
  remove.textContent = "Remove";
  label.append(name, field, remove);
  batch.querySelector(`[data-key="${CSS.escape(found.key)}"]`)?.remove();
  batch.append(label);
  showPending();
}

function showPending() {
  const count = batch.children.length;
  pending.hidden = count === 0;
  const opener = /** @type {HTMLElement} */ (pending.querySelector("[data-opens]"));
  opener.textContent = count === 1 ? "Review 1 change …" : `Review ${count} changes …`;
  form.dispatchEvent(new Event("input"));
}

batch.addEventListener("click", (event) => {
  const remove = event.target instanceof Element ? event.target.closest("[data-removes]") : null;
  if (!remove) return;
  remove.closest("label")?.remove();
  showPending();
  if (batch.children.length) tryBatch();
  else dialog.close();
});

const tryBatch = () => /** @type {HTMLElement} */ (dialog.querySelector("[data-tries]")).click();
pending.addEventListener("click", () => queueMicrotask(tryBatch)); // dialog.js opens it first
for (const choice of [level, seconds]) choice.addEventListener("change", tryBatch);

dialog.addEventListener("called", (event) => {
  const body = /** @type {CustomEvent} */ (event).detail ?? {};
  showCommands(dialog, seconds.value ? [] : settingCommands(place, level.value, body)); // Kafka's protocol knows no trials
});
dialog.addEventListener("tried", (event) => {
  event.preventDefault();
  /** @type {Difference[]} */
  const differences = /** @type {CustomEvent} */ (event).detail.differences;
  const rows = differences.map((each) => [
    each.key,
    `${shown(each.old)} → ${shown(each.new)}`,
    each.effective_old === each.effective_new ? `stays ${shown(each.effective_old)}` : `${shown(each.effective_old)} → ${shown(each.effective_new)}`,
    each.shadowed_by ? "shadowed by this broker's own value" : each.old === each.new ? "no change" : "",
  ]);
  showDifferences(dialog, ["Key", level.value === "cluster" ? "Cluster default" : "This broker", "In effect", ""], rows);
});
dialog.addEventListener("done", () => {
  batch.replaceChildren();
  showPending();
});
