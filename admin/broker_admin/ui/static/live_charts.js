// @ts-check
/**
 * The charts of a page, over the broker's own history: drawn once it is loaded, and again with each sample and change.
 * A chart's place is `[data-chart]`, its reading's `[data-reading]`, both by the name that `chart_kinds.js` has for it.
 *
 * @typedef {import("./charts.js").Sample} Sample
 * @typedef {import("./charts.js").Change} Change
 */

import { CHARTS } from "./chart_kinds.js";
import { WINDOW_MS, draw, timeAt } from "./charts.js";
import { get, nodeApi, showConnections } from "./live.js";

/** @type {Sample[]} */
let samples = [];
/** @type {Change[]} */
let changes = [];
/** @type {number | null} the time under the pointer, the same in all charts */
let cursorMs = null;

/** The sample at the pointer, else the newest. */
function readSample() {
  if (cursorMs === null) return samples[samples.length - 1];
  const wanted = cursorMs;
  return samples.reduce((best, sample) =>
    Math.abs(sample.sampled_at_ms - wanted) < Math.abs(best.sampled_at_ms - wanted) ? sample : best,
  );
}

/** Draw everything that depends on samples and changes. */
function render() {
  if (!samples.length) return;
  const end = samples[samples.length - 1].sampled_at_ms;
  const shown = samples.filter((sample) => sample.sampled_at_ms > end - WINDOW_MS);
  const sample = readSample();
  for (const [name, chart] of Object.entries(CHARTS)) {
    const plot = document.querySelector(`[data-chart="${name}"] .plot`);
    const reading = document.querySelector(`[data-reading="${name}"]`);
    if (plot) draw(plot, chart, shown, changes, cursorMs);
    // `read` returns our own markup around numbers, never text from the broker.
    if (reading) reading.innerHTML = chart.read(sample);
  }
  showConnections(sample.connections);
}

/** The settings of one change, as the charts mark them. @param {any} change @returns {Change[]} */
function settingsOf({ number, changed_at_ms, origin, values }) {
  const changed_by = `${origin.client} ${origin.address}`.trim();
  return values.map((/** @type {any} */ value) => ({
    sequence: number, changed_at_ms, changed_by, key: value.name, old: value.old, new: value.new,
  }));
}

/** Read history and changes, and draw them. */
export async function loadReadings() {
  const [history, page] = await Promise.all([
    get(`${nodeApi}/history`),
    get("/api/v1/changes?action=config&resource_type=broker&limit=100"),
  ]);
  samples = history.samples;
  changes = page.items.flatMap(settingsOf).reverse();
  render();
}

/** @param {Sample} sample */
export function addSample(sample) {
  samples.push(sample);
  samples = samples.slice(-WINDOW_MS / 1000);
  render();
}

/** @param {Change} change */
export function addChange(change) {
  changes.push(change);
  render();
}

for (const plot of document.querySelectorAll(".plot")) {
  plot.addEventListener("pointermove", (event) => {
    if (!samples.length) return;
    const { clientX } = /** @type {PointerEvent} */ (event);
    cursorMs = timeAt(plot, clientX, samples[samples.length - 1].sampled_at_ms);
    render();
  });
  plot.addEventListener("pointerleave", () => {
    cursorMs = null;
    render();
  });
}
// A chart is drawn for the width that it has, so that text in it is never stretched.
new ResizeObserver(render).observe(document.body);
