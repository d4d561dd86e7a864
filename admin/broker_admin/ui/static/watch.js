// @ts-check
/** A page whose content is not read again: its frame alone says whether the broker answers. */

import { keepUpToDate } from "./live.js";

keepUpToDate(async () => undefined, { sample: () => undefined });
