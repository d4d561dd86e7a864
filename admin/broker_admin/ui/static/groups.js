// @ts-check
/** The pages about groups: read again every few seconds, and at once when a group that they show has rebalanced. */

import "./dialog.js";
import "./table.js";
import { loadAnew, quietly } from "./live.js";
import { refreshEvery, refreshRegions } from "./morph.js";

const REFRESH_MS = 3_000; // between two readings of the page while it is looked at
const REBALANCE_MS = 250; // after news of a rebalance, of which there may be several in a row

const groupId = /** @type {HTMLElement | null} */ (document.querySelector("[data-group-id]"))?.dataset.groupId;
const isMissing = document.querySelector("[data-missing]") !== null;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let soon;

async function load() {
  const status = await refreshRegions();
  if (status === (isMissing ? 200 : 404)) loadAnew(); // the group has come, or is gone
}

const refresh = refreshEvery(REFRESH_MS, load, {
  groups: (/** @type {{group_ids: string[]}} */ news) => {
    if (groupId !== undefined && !news.group_ids.includes(decodeURIComponent(groupId))) return;
    clearTimeout(soon);
    soon = setTimeout(() => quietly(refresh), REBALANCE_MS);
  },
});
