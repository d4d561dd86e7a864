// @ts-check
/**
 * The page of one group: kept up to date as the list is, and the steps of a reset: which partitions, to where, a dry run
 * as a table, then the change.
 */

import "./dialog.js";
import "./groups.js";
import { partitionsOf, quoted } from "./action_call.js";
import { numberText } from "./live.js";

/** @typedef {{topic: string, partition: number, current_offset: number | null, new_offset: number,
 *   skipped_records: number | null, repeated_records: number | null, remark: string | null, error: string | null}} PartitionReset */

const dialog = /** @type {HTMLDialogElement | null} */ (document.getElementById("reset"));

/** @template {Element} T @param {string} selector @returns {T} */
const find = (selector) => /** @type {T} */ (/** @type {unknown} */ (dialog?.querySelector(selector)));

/** The option of both command lines for a target. @param {string} target @param {string} value */
function targetOption(target, value) {
  const options = { earliest: "--to-earliest", latest: "--to-latest", current: "--to-current" };
  if (target in options) return options[/** @type {keyof typeof options} */ (target)];
  const named = { offset: "--to-offset", shift_by: "--shift-by", time: "--to-datetime", duration: "--by-duration", group: "--from-group" };
  if (target === "file") return "--from-file offsets.csv";
  return `${named[/** @type {keyof typeof named} */ (target)]} ${quoted(value)}`;
}

/** What was chosen becomes what is sent, and the commands that do the same. */
function compose() {
  const target = /** @type {HTMLSelectElement} */ (find("[name=target]")).value;
  let value = "";
  for (const label of /** @type {NodeListOf<HTMLElement>} */ (dialog?.querySelectorAll("[data-value-of]"))) {
    const field = /** @type {HTMLInputElement} */ (label.querySelector("input, textarea"));
    label.hidden = field.disabled = label.getAttribute("data-value-of") !== target;
    if (!field.disabled) value = field.value;
  }
  const isFile = target === "file"; // which names the partitions by itself
  /** @type {HTMLElement} */ (find("[data-with=file]")).hidden = !isFile;
  /** @type {HTMLFieldSetElement} */ (find("[data-scope]")).disabled = isFile;
  const byTopic = /** @type {HTMLInputElement} */ (find("[data-scope-kind=topic]")).checked && !isFile;
  const topic = /** @type {HTMLInputElement} */ (find("[data-scope-topic]")).value.trim();
  const typed = /** @type {HTMLInputElement} */ (find("[data-scope-partitions]")).value.trim();
  const numbers = partitionsOf(typed) ?? (typed ? [typed] : []); // the server says best what is wrong with it
  const scope = numbers.length ? { topic, partitions: numbers } : { topic };
  /** @type {HTMLInputElement} */ (find("[name=topics]")).value = byTopic ? JSON.stringify([scope]) : "";
  const named = byTopic ? `--topic ${quoted(numbers.length ? `${topic}:${numbers.join(",")}` : topic)}` : "--all-topics";
  const scopeOption = isFile ? "" : ` ${named}`;
  const [ours, kafkas] = /** @type {NodeListOf<HTMLElement>} */ (dialog?.querySelectorAll("[data-command]"));
  ours.dataset.base ??= ours.dataset.command;
  kafkas.dataset.base ??= kafkas.dataset.command;
  ours.dataset.command = `${ours.dataset.base}${scopeOption} ${targetOption(target, value)} --execute`;
  const other = target === "group" ? `${(kafkas.dataset.base ?? "").replace(/--group .*/, "")}--group ${quoted(value)}${scopeOption} --reset-offsets --to-current --export > offsets.csv\n` : "";
  const kafkasTarget = target === "group" ? " --from-file offsets.csv" : `${scopeOption} ${targetOption(target, value)}`;
  kafkas.dataset.command = `${other}${kafkas.dataset.base}${kafkasTarget} --execute`;
}

/** The plan as a table. @param {{partitions: PartitionReset[], skipped_records: number, repeated_records: number, creates_group: boolean}} plan */
function showPlan(plan) {
  const place = /** @type {HTMLElement} */ (find("[data-plan]"));
  const count = (/** @type {number | null} */ number) => (number === null ? "–" : numberText(number));
  const summary = document.createElement("p");
  summary.textContent =
    `${count(plan.partitions.length)} partitions; ${count(plan.skipped_records)} records are skipped, ` +
    `${count(plan.repeated_records)} are read again.` + (plan.creates_group ? " The group is created." : "");
  const table = document.createElement("table");
  const head = table.createTHead().insertRow();
  for (const title of ["Partition", "Old", "New", "Skipped", "Read again", "Remark"]) {
    const cell = document.createElement("th");
    cell.scope = "col";
    if (!["Partition", "Remark"].includes(title)) cell.className = "number";
    cell.textContent = title;
    head.append(cell);
  }
  const rows = table.createTBody();
  for (const each of plan.partitions.slice(0, 500)) {
    const row = rows.insertRow();
    const cells = [count(each.current_offset), count(each.new_offset), count(each.skipped_records), count(each.repeated_records)];
    row.insertCell().textContent = `${each.topic}-${each.partition}`;
    for (const text of cells) {
      const cell = row.insertCell();
      cell.className = "number";
      cell.textContent = text;
    }
    row.insertCell().textContent = each.error ?? each.remark ?? "";
  }
  place.replaceChildren(summary, table);
  place.hidden = false;
}

if (dialog) {
  const form = /** @type {HTMLFormElement} */ (dialog.querySelector("form"));
  const kinds = /** @type {NodeListOf<HTMLInputElement>} */ (dialog.querySelectorAll("[data-scope-kind]"));
  for (const kind of kinds) kind.addEventListener("change", () => kinds.forEach((other) => (other.checked = other === kind)));
  // Before dialog.js shows the call, which listens at the form as it bubbles.
  dialog.addEventListener("input", (event) => {
    if (event.target instanceof Element && event.target.matches("[data-scope-topic], [data-scope-partitions]")) {
      kinds.forEach((kind) => (kind.checked = kind.dataset.scopeKind === "topic"));
    }
    compose();
    /** @type {HTMLElement} */ (find("[data-plan]")).hidden = true; // it was of other choices
  }, { capture: true });
  /** @type {HTMLInputElement} */ (find("[data-fills=file]")).addEventListener("change", async (event) => {
    const chosen = /** @type {HTMLInputElement} */ (event.target).files?.[0];
    const lines = /** @type {HTMLTextAreaElement} */ (find("textarea[name=file]"));
    if (!chosen) return;
    lines.value = await chosen.text();
    lines.dispatchEvent(new Event("input", { bubbles: true }));
  });
  dialog.addEventListener("tried", (event) => {
    event.preventDefault();
    showPlan(/** @type {CustomEvent} */ (event).detail);
  });
  compose();
  form.dispatchEvent(new Event("input"));
  if (location.pathname.endsWith("/reset")) /** @type {HTMLElement | null} */ (document.querySelector("[data-opens=reset]"))?.click();
}
