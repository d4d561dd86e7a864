// @ts-check
/** For pages that are nothing but regions, tables and dialogs: they are read again every few seconds while looked at. */

import "./dialog.js";
import { refreshEvery, refreshRegions } from "./morph.js";

const REFRESH_MS = 3_000; // between two readings of the page while it is looked at

refreshEvery(REFRESH_MS, () => refreshRegions());
