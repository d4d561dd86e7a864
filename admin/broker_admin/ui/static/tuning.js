// @ts-check
/** The page of tunables: charts beside them, and the regions that the server renders, read again while they are looked at. */

import "./dialog.js";
import { Tunable } from "./tunables.js";
import { configApi, get, isLive, isStill, keepUpToDate, quietly } from "./live.js";
import { addChange, addSample, loadReadings } from "./live_charts.js";
import { refreshRegions } from "./morph.js";

const REFRESH_MS = 3_000; // how often the verdict and the tables are read

/** @type {Tunable[]} */
const tunables = [...document.querySelectorAll("[data-form]")].map(
  (form) => new Tunable(/** @type {HTMLFormElement} */ (form), loadConfig),
);

async function loadConfig() {
  const { configs } = await get(configApi);
  for (const tunable of tunables) if (configs[tunable.key]) tunable.show(configs[tunable.key]);
}

async function loadAll() {
  await Promise.all([loadReadings(), loadConfig(), refreshRegions()]);
}

// Side by side, what can be opened is opened in all cards: in one alone it would leave empty spaces beside it.
for (const kind of ["curl", "explanation"]) {
  const all = /** @type {HTMLDetailsElement[]} */ ([...document.querySelectorAll(`details.${kind}`)]);
  for (const opened of all) {
    opened.addEventListener("toggle", () => {
      if (matchMedia("(min-width: 700px)").matches) for (const other of all) other.open = opened.open;
    });
  }
}

// What would help is one click away: the link goes to the card, and puts the value into it.
document.addEventListener("click", (event) => {
  const link = /** @type {Element} */ (event.target).closest("[data-suggests]");
  if (!(link instanceof HTMLElement)) return;
  tunables.find((tunable) => tunable.key === link.dataset.suggests)?.choose(link.dataset.value ?? "");
});

quietly(loadAll);
keepUpToDate(loadAll, {
  sample: addSample,
  config: (change) => {
    addChange(change);
    quietly(loadConfig);
    quietly(() => refreshRegions());
  },
});
if (!isStill) setInterval(() => isLive() && !document.hidden && quietly(() => refreshRegions()), REFRESH_MS);
