// @ts-check
/**
 * The overview: charts of the broker's own history, the knobs, the tables.
 *
 * Samples come from GET /api/v1/history once, and from the event stream after that (see live.js).
 *
 * @typedef {import("./charts.js").Sample} Sample
 * @typedef {import("./charts.js").Change} Change
 */

import { CHARTS, WINDOW_MS, draw, timeAt } from "./charts.js";
import { Knob } from "./knobs.js";
import { get, isLive, isStill, keepUpToDate, loadRows, quietly, showConnections } from "./live.js";

const TABLES_MS = 5_000; // how often the tables of topics and groups are read

/** @type {Sample[]} */
let samples = [];
/** @type {Change[]} */
let changes = [];
/** @type {number | null} the time under the pointer, the same in all charts */
let cursorMs = null;

/** @type {Knob[]} */
const knobs = [...document.querySelectorAll("[data-form]")].map(
  (form) => new Knob(/** @type {HTMLFormElement} */ (form), loadConfig),
);

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

async function loadReadings() {
  const [history, journal] = await Promise.all([get("/api/v1/history"), get("/api/v1/journal")]);
  samples = history.samples;
  changes = journal.changes;
  render();
}

async function loadConfig() {
  const { configs } = await get("/api/v1/config");
  for (const knob of knobs) if (configs[knob.key]) knob.show(configs[knob.key]);
}

async function loadTables() {
  await Promise.all([loadRows("topics"), loadRows("groups")]);
}

async function loadAll() {
  await Promise.all([loadReadings(), loadConfig(), loadRows("journal"), loadTables()]);
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
// Side by side, what can be opened is opened in all three cards: in one alone it would leave empty spaces beside it.
for (const kind of ["curl", "explanation"]) {
  const all = /** @type {HTMLDetailsElement[]} */ ([...document.querySelectorAll(`details.${kind}`)]);
  for (const opened of all) {
    opened.addEventListener("toggle", () => {
      if (matchMedia("(min-width: 1181px)").matches) for (const other of all) other.open = opened.open;
    });
  }
}
// A chart is drawn for the width that it has, so that text in it is never stretched.
new ResizeObserver(render).observe(document.body);

quietly(loadAll);
keepUpToDate(loadAll, {
  sample: (sample) => {
    samples.push(sample);
    samples = samples.slice(-WINDOW_MS / 1000);
    render();
  },
  config: (change) => {
    changes.push(change);
    render();
    quietly(loadConfig);
    quietly(() => loadRows("journal"));
  },
});
if (!isStill) setInterval(() => isLive() && !document.hidden && quietly(loadTables), TABLES_MS);
