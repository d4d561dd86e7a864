// @ts-check
/** For pages that are nothing but regions, tables and dialogs: they are read again every few seconds while looked at. */

import "./dialog.js";
import { isLive, isStill, keepUpToDate, quietly } from "./live.js";
import { refreshRegions } from "./morph.js";

const REFRESH_MS = 3_000; // between two readings of the page while it is looked at

let isLoading = false; // a large page may take longer than the pause between two refreshes

async function refresh() {
  if (isLoading) return;
  isLoading = true;
  try {
    await refreshRegions();
  } finally {
    isLoading = false;
  }
}

keepUpToDate(refresh, { sample: () => undefined });
if (!isStill) setInterval(() => isLive() && !document.hidden && quietly(refresh), REFRESH_MS);
