// @ts-check
/** The overview: charts of the broker's own history, and all else read again while it is looked at. */

import { isLive, isStill, keepUpToDate, quietly } from "./live.js";
import { addChange, addSample, loadReadings } from "./live_charts.js";
import { refreshRegions } from "./morph.js";
import "./toast.js";

const REFRESH_MS = 3_000; // how often the verdict and the lists are read

async function loadAll() {
  await Promise.all([loadReadings(), refreshRegions()]);
}

quietly(loadReadings);
keepUpToDate(loadAll, {
  sample: addSample,
  config: (change) => {
    addChange(change);
    quietly(() => refreshRegions());
  },
});
if (!isStill) setInterval(() => isLive() && !document.hidden && quietly(() => refreshRegions()), REFRESH_MS);
