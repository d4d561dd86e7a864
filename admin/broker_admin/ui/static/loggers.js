// @ts-check
/** The page of loggers: one dialog sets the level of the logger whose button opened it. */

import "./dialog.js";
import { loggerCommands, showDifferences, showCommands } from "./equivalent_commands.js";
import { keepUpToDate } from "./live.js";
import { refreshRegions } from "./morph.js";

/** @typedef {{name: string, level: string}} LoggerLevel */

const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("set-level"));
const level = /** @type {HTMLSelectElement} */ (dialog.querySelector("select[data-level]"));
const place = { nodeId: level.dataset.nodeId ?? "", bootstrapServer: level.dataset.bootstrapServer ?? "" };

keepUpToDate(() => refreshRegions(), { sample: () => undefined });

// While the event goes down, before dialog.js opens the dialog and shows its call.
document.addEventListener(
  "click",
  (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-logger]") : null;
    if (!(button instanceof HTMLElement)) return;
    level.name = button.dataset.logger ?? "";
    level.value = button.dataset.own ?? "";
    /** @type {HTMLElement} */ (dialog.querySelector("[data-logger-name]")).textContent = level.name;
    /** @type {HTMLElement} */ (dialog.querySelector("[data-differences]")).hidden = true;
  },
  { capture: true },
);

dialog.addEventListener("called", (event) => showCommands(dialog, loggerCommands(place, /** @type {CustomEvent} */ (event).detail ?? {})));
dialog.addEventListener("tried", (event) => {
  event.preventDefault();
  /** @type {{before: LoggerLevel, after: LoggerLevel}[]} */
  const differences = /** @type {CustomEvent} */ (event).detail.differences;
  showDifferences(dialog, ["Logger", "Level"], differences.map(({ before, after }) => [after.name, `${before.level} → ${after.level}`]));
});
