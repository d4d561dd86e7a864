// @ts-check
/**
 * The pages of topics: what is typed into a dialog is tried on the server, so that what is wrong shows before it is sent.
 * A time is sent as milliseconds.
 */

import "./fresh.js";
import { bytesText, durationText, leaveFor, numberText } from "./live.js";
import "./selection.js";

const TYPING_MS = 300; // after the last letter, so that a word is one request

/** @param {HTMLDialogElement} dialog whose fields are tried as they are typed */
function tryAsTyped(dialog) {
  const tries = /** @type {HTMLButtonElement | null} */ (dialog.querySelector("[data-tries]"));
  if (!tries || !dialog.querySelector("[data-validates]")) return;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let soon;
  dialog.addEventListener("input", (event) => {
    clearTimeout(soon);
    const field = event.target;
    if (!(field instanceof HTMLElement) || !("validates" in field.dataset)) return;
    soon = setTimeout(() => dialog.open && !dialog.querySelector(":enabled:required:invalid") && tries.click(), TYPING_MS);
  });
  dialog.addEventListener("close", () => clearTimeout(soon));
}

/** Keep the hidden field of a time, which commands have as text, in step with what is chosen.
 * @param {HTMLInputElement} field */
function sendMilliseconds(field) {
  const sent = field.form?.elements.namedItem(field.dataset.milliseconds ?? "");
  if (!(sent instanceof HTMLInputElement)) return;
  // Heard before dialog.js, which hears the same event at the form and shows the call and the commands.
  field.addEventListener("input", () => {
    const milliseconds = field.value ? Date.parse(`${field.value}Z`) : NaN;
    sent.value = Number.isNaN(milliseconds) ? "" : String(milliseconds);
    sent.dataset.commandText = sent.value && `${new Date(milliseconds).toISOString().slice(0, 19)}Z`;
  });
}

/** @param {number} count @param {string} word */
const counted = (count, word) => `${numberText(count)} ${word}${count === 1 ? "" : "s"}`;

/** What a dry run found, in words, by the dialog's id; for settings, the changes. @type {Record<string, (answer: any) => string>} */
const FOUND = {
  "create-topic": (answer) => `It would have ${counted(answer.partitions, "partition")}${settingsText(answer.configs)}. ${answer.kept}`,
  "clone-topic": (answer) => `It would have ${counted(answer.partitions, "partition")}${settingsText(answer.configs)}. ${answer.kept}`,
  "add-partitions": (answer) =>
    `From ${answer.partitions_before} to ${counted(answer.partitions, "partition")}. ${Math.round(100 * answer.keys_that_stay_ratio)} % of keys ` +
    "would go to the same partition as before, all others to another one.",
  "purge-topic": (answer) =>
    `${counted(answer.record_count, "record")} would be deleted in ` +
    `${counted(answer.partitions.filter((/** @type {any} */ each) => each.record_count).length, "partition")}. ` +
    `Whole segments leave the disk ${removalText(answer.file_delete_delay_ms)}.`,
  "delete-topic": (answer) =>
    `${counted(answer.partitions, "partition")} with ${counted(answer.record_count, "record")} would be deleted; ` +
    `${answer.groups.length ? `these groups read it: ${answer.groups.slice(0, 5).join(", ")}${answer.groups.length > 5 ? " …" : ""}` : "no group reads it"}. ` +
    `The files leave the disk ${removalText(answer.file_delete_delay_ms)}.`,
};

/** When the space of what was deleted is free. @param {number} delayMs */
function removalText(delayMs) {
  return delayMs ? `after ${durationText(delayMs / 1000)} (file.delete.delay.ms)` : "at once";
}

/** @param {Record<string, string>} configs */
function settingsText(configs) {
  const texts = Object.entries(configs).map(([key, value]) => `${key}=${value}`);
  return texts.length ? ` and ${texts.join(", ")}` : "";
}

/** A value of a setting as it is stored, and as it is read best. @param {string} key @param {string | null} value */
function valueText(key, value) {
  if (value === null) return "not set here";
  if (!/^\d{4,15}$/.test(value)) return value;
  const unit = /\.(ms|bytes)$/.exec(key)?.[1];
  if (unit === "ms") return `${value} (${durationText(Number(value) / 1000).replace(/ 0 \w+$/, "")})`;
  return unit === "bytes" ? `${value} (${bytesText(Number(value))})` : value;
}

/** @param {{changes: {key: string, old: string | null, new: string | null}[]}} answer */
function changesText(answer) {
  const texts = answer.changes.map((each) => `${each.key}: ${valueText(each.key, each.old)} → ${valueText(each.key, each.new)}`);
  return texts.join(", ") || "It is so already; nothing would change.";
}

/** Say what a dry run found, and go to a topic that was created. @param {HTMLDialogElement} dialog */
function tellOutcome(dialog) {
  dialog.addEventListener("tried", (event) => {
    const outcome = dialog.querySelector("[data-outcome]");
    if (!outcome || event.defaultPrevented) return;
    event.preventDefault();
    outcome.textContent = (FOUND[dialog.id] ?? changesText)(/** @type {CustomEvent} */ (event).detail);
  });
  if (dialog.dataset.address !== "/api/v1/topics") return;
  dialog.addEventListener("done", (event) => {
    event.preventDefault();
    leaveFor(`/topics/${encodeURIComponent(/** @type {CustomEvent} */ (event).detail.name)}`);
  });
}

/** Show the settings that have what is typed in their name or in what they say, and those that are filled in.
 * @param {HTMLInputElement} search */
function findSettings(search) {
  const place = search.closest("details");
  search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase();
    let found = 0;
    for (const label of /** @type {Iterable<HTMLLabelElement>} */ (place?.querySelectorAll("[data-setting]") ?? [])) {
      const isFilled = Boolean(/** @type {HTMLInputElement | null} */ (label.querySelector("[name]"))?.value);
      label.hidden = !isFilled && !(label.textContent ?? "").toLowerCase().includes(wanted);
      if (!label.hidden) found += 1;
    }
    place?.querySelector("[data-no-setting]")?.toggleAttribute("hidden", found > 0);
  });
}

for (const field of /** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll("[data-finds-settings]"))) {
  findSettings(field);
}
for (const field of /** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll("[data-milliseconds]"))) {
  sendMilliseconds(field);
}
for (const dialog of /** @type {NodeListOf<HTMLDialogElement>} */ (document.querySelectorAll("dialog.action"))) {
  tryAsTyped(dialog);
  tellOutcome(dialog);
}
