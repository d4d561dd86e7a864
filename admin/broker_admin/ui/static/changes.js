// @ts-check
/** The list of changes: its table searches as typed, and is read again while it is looked at. */

import "./fresh.js";
import "./table.js";
