// @ts-check
/** The overview: charts of the broker's own history, and tables that are read again while they are looked at. */

import { isLive, isStill, keepUpToDate, loadRows, quietly } from "./live.js";
import { addChange, addSample, loadReadings } from "./live_charts.js";

const TABLES_MS = 5_000; // how often the tables of topics and groups are read

async function loadTables() {
  await Promise.all([loadRows("topics"), loadRows("groups")]);
}

async function loadAll() {
  await Promise.all([loadReadings(), loadRows("journal"), loadTables()]);
}

quietly(loadAll);
keepUpToDate(loadAll, {
  sample: addSample,
  config: (change) => {
    addChange(change);
    quietly(() => loadRows("journal"));
  },
});
if (!isStill) setInterval(() => isLive() && !document.hidden && quietly(loadTables), TABLES_MS);
