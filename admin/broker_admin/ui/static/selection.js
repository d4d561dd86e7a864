// @ts-check
/**
 * The list of topics: those whose boxes are ticked, deleted or purged in one dialog that says what becomes of each.
 *
 * What is selected is what is seen: a topic that leaves the list, by a search or because it is gone, is not selected.
 */

import { numberText, quietly } from "./live.js";
import { refreshRegions } from "./morph.js";

/** @typedef {{topic: string, partition_count: number, record_count: number, groups: string[], error: string | null}} Outcome */

const bar = /** @type {HTMLElement | null} */ (document.querySelector("[data-selection]"));

/** @returns {HTMLInputElement[]} */
const boxes = () => [.../** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll("tr:not([data-gone]) input[data-select]"))];

/** The names of the topics that are selected. */
const selected = () => boxes().filter((box) => box.checked).map((box) => box.dataset.select ?? "");

/** @param {number} count */
const topics = (count) => `${count} topic${count === 1 ? "" : "s"}`;

function show() {
  const every = /** @type {HTMLInputElement | null} */ (document.querySelector("[data-select-all]"));
  if (!bar || !every) return;
  const all = boxes();
  const count = selected().length;
  every.checked = count > 0 && count === all.length;
  every.indeterminate = count > 0 && count < all.length;
  const note = bar.querySelector("[data-selected-count]");
  if (note) note.textContent = `${topics(count)} selected`;
  bar.hidden = !count;
}

/** @param {Outcome} outcome @param {string} verb @param {boolean} isTrial */
function outcomeText({ partition_count: partitions, record_count: records, groups, error }, verb, isTrial) {
  if (error) return `refused: ${error}`;
  const readers = groups.length ? `; read by ${groups.slice(0, 3).join(", ")}${groups.length > 3 ? " …" : ""}` : "";
  const count = `${numberText(records)} record${records === 1 ? "" : "s"}`;
  return `${isTrial ? "would be" : ""} ${verb}: ${count} in ${partitions} partition${partitions === 1 ? "" : "s"}${readers}`.trim();
}

/** One action on the selection. @param {HTMLDialogElement} dialog @param {string} verb what is done, such as `deleted` */
function actOnSelection(dialog, verb) {
  const list = /** @type {HTMLElement} */ (dialog.querySelector("[data-selected-names]"));
  const sent = /** @type {HTMLInputElement} */ (dialog.querySelector("[name=topics]"));
  const typed = /** @type {HTMLInputElement} */ (dialog.querySelector("[data-typed]"));
  const [word] = (typed.dataset.typed ?? "").split(" ");
  const outcome = /** @type {HTMLElement} */ (dialog.querySelector("[data-outcome]"));
  const cancel = /** @type {HTMLElement} */ (dialog.querySelector("footer [data-closes]"));
  const commands = [.../** @type {NodeListOf<HTMLElement>} */ (dialog.querySelectorAll("[data-command]"))].map((place) => ({ place, template: place.dataset.command ?? "" }));

  const fill = () => {
    const names = selected();
    sent.value = names.join("\n");
    typed.dataset.typed = `${word} ${topics(names.length)}`;
    const phrase = typed.closest("label")?.querySelector("b");
    if (phrase) phrase.textContent = typed.dataset.typed;
    cancel.textContent = "Cancel";
    // A topic's name has no character that a shell would take for anything else, and of a pattern's only the dot.
    const pattern = names.map((name) => name.replaceAll(".", "\\.")).join("|");
    for (const { place, template } of commands) place.dataset.command = template.replace("TOPICS", names.join(" ")).replace("PATTERN", `'${pattern}'`);
    list.replaceChildren(...names.map((name) => {
      const item = document.createElement("li");
      item.dataset.topic = name;
      const title = document.createElement("b");
      title.textContent = name;
      const note = document.createElement("span");
      item.append(title, " ", note);
      return item;
    }));
  };
  // Heard before dialog.js opens the dialog and shows the call.
  document.addEventListener("click", (event) => {
    if (event.target instanceof Element && event.target.closest(`[data-opens="${dialog.id}"]`)) fill();
  }, { capture: true });

  /** @param {Event} event @param {boolean} isTrial */
  const tell = (event, isTrial) => {
    event.preventDefault();
    /** @type {Outcome[]} */
    const found = /** @type {CustomEvent} */ (event).detail.topics;
    for (const each of found) {
      const item = [...list.children].find((child) => /** @type {HTMLElement} */ (child).dataset.topic === each.topic);
      const note = item?.querySelector("span");
      if (!note) continue;
      note.className = each.error ? "bad" : "aside";
      note.textContent = outcomeText(each, verb, isTrial);
    }
    const refused = found.filter((each) => each.error).length;
    outcome.dataset.kind = refused ? "bad" : "good";
    outcome.textContent = `${topics(found.length - refused)} ${isTrial ? "would be " : ""}${verb}${refused ? `, ${refused} refused` : ""}${isTrial ? "; nothing was changed yet" : ""}.`;
  };
  dialog.addEventListener("tried", (event) => tell(event, true));
  dialog.addEventListener("done", (event) => {
    tell(event, false);
    typed.value = ""; // what was done is not done again by a second click
    cancel.textContent = "Close";
    for (const box of boxes()) box.checked = false;
    quietly(() => refreshRegions());
  });
}

for (const [id, verb] of [["delete-selected", "deleted"], ["purge-selected", "purged"]]) {
  const dialog = document.getElementById(id);
  if (dialog instanceof HTMLDialogElement) actOnSelection(dialog, verb);
}
document.addEventListener("change", (event) => {
  const box = event.target;
  if (!(box instanceof HTMLInputElement) || !bar) return;
  if ("selectAll" in box.dataset) for (const each of boxes()) each.checked = box.checked;
  if ("select" in box.dataset || "selectAll" in box.dataset) show();
});
document.addEventListener("refreshed", show);
show();
