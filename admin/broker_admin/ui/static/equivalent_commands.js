// @ts-check
/** Changes of settings and levels as commands of Kafka and of trio-broker. Pure functions. */

import { quoted } from "./action_call.js";

/** @typedef {Record<string, string | null>} Changes new texts by key; null resets */
/** @typedef {{nodeId: string, bootstrapServer: string}} Place */

/** `kafka-configs.sh` with changes of one resource. @param {Place} place @param {string} entity @param {Changes} changes */
function kafkaConfigs(place, entity, changes) {
  const set = Object.entries(changes).filter(([, value]) => value !== null);
  const reset = Object.keys(changes).filter((key) => changes[key] === null);
  // Kafka's tool separates settings by commas; a value with commas stands in square brackets.
  const added = set.map(([key, value]) => `${key}=${/[,\[\]]/.test(value ?? "") ? `[${value}]` : value}`).join(",");
  const parts = [`kafka-configs.sh --bootstrap-server ${quoted(place.bootstrapServer)}`, `${entity} --alter`];
  if (added) parts.push(`--add-config ${quoted(added)}`);
  if (reset.length) parts.push(`--delete-config ${quoted(reset.join(","))}`);
  return parts.join(" \\\n  ");
}

/** @param {Place} place @param {string} level @param {Changes} changes @returns {string[]} a line for each tool */
export function settingCommands(place, level, changes) {
  const isCluster = level === "cluster";
  const entity = `--entity-type brokers ${isCluster ? "--entity-default" : `--entity-name ${place.nodeId}`}`;
  return [kafkaConfigs(place, entity, changes), ours(place, isCluster ? "--all-brokers" : `--broker ${place.nodeId}`, changes)];
}

/** `trio-broker configs` with the same. @param {Place} place @param {string} whose @param {Changes} changes */
function ours(place, whose, changes) {
  const options = Object.entries(changes).map(([key, value]) =>
    value === null ? `--delete ${quoted(key)}` : `--set ${quoted(`${key}=${value}`)}`,
  );
  const start = `trio-broker configs alter --bootstrap-server ${quoted(place.bootstrapServer)} ${whose}`;
  return [start, ...options].join(" \\\n  ");
}

/** @param {Place} place @param {Changes} levels @returns {string[]} */
export function loggerCommands(place, levels) {
  const entity = `--entity-type broker-loggers --entity-name ${place.nodeId}`;
  return [kafkaConfigs(place, entity, levels), ours(place, `--broker-logger ${place.nodeId}`, levels)];
}

/** Show lines in a dialog in place of its commands. @param {Element} dialog @param {string[]} lines */
export function showCommands(dialog, lines) {
  dialog.querySelectorAll("[data-command]").forEach((place, at) => {
    place.textContent = lines[at] ?? "";
    /** @type {HTMLElement} */ (place.closest(".call")).hidden = lines[at] === undefined;
  });
}

/** A table of differences, made of text only. @param {Element} dialog @param {string[]} titles @param {string[][]} rows */
export function showDifferences(dialog, titles, rows) {
  const place = /** @type {HTMLElement} */ (dialog.querySelector("[data-differences]"));
  /** @param {"th" | "td"} tag @param {string} text @param {string} [scope] */
  const cell = (tag, text, scope) => {
    const made = document.createElement(tag);
    made.textContent = text;
    if (scope) made.setAttribute("scope", scope);
    return made;
  };
  const table = document.createElement("table");
  const head = table.createTHead().insertRow();
  head.append(...titles.map((title) => cell("th", title, "col")));
  const body = table.createTBody();
  for (const [name, ...texts] of rows) body.insertRow().append(cell("th", name, "row"), ...texts.map((text) => cell("td", text)));
  place.replaceChildren(...(rows.length ? [table] : ["Nothing would change."]));
  place.hidden = false;
}
