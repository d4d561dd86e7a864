// @ts-check
/** Pages of brokers and replicas: read again at once when something happens in the cluster, and every second besides. */

import "./dialog.js";
import { isLive, isStill, keepUpToDate, quietly } from "./live.js";
import { refreshRegions } from "./morph.js";

const REFRESH_MS = 1_000; // high watermarks and lags move all the time

let isLoading = false;

async function refresh() {
  if (isLoading) return;
  isLoading = true;
  try {
    await refreshRegions();
  } finally {
    isLoading = false;
  }
}

keepUpToDate(refresh, { sample: () => undefined, cluster: () => quietly(refresh) });
if (!isStill) setInterval(() => isLive() && !document.hidden && quietly(refresh), REFRESH_MS);
