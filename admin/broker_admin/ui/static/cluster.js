// @ts-check
/** Pages of brokers and replicas: read again at once when something happens in the cluster, and every second besides. */

import "./dialog.js";
import { quietly } from "./live.js";
import { refreshEvery, refreshRegions } from "./morph.js";

const REFRESH_MS = 1_000; // high watermarks and lags move all the time

const refresh = refreshEvery(REFRESH_MS, () => refreshRegions(), { cluster: () => quietly(refresh) });
