// @ts-check
/**
 * A search that goes on while the page is looked at: rows as they are found, how far it is, and a button that cancels it
 * and goes on. The page itself shows what was found in its first half second.
 */

import { bytesText, isStill, numberText } from "./live.js";
import { localTime, showLocalTimes } from "./times.js";

/** @typedef {{rows: string, ended_by: string | null, searched_records: number, searched_bytes: number,
 *   left_records: number, left_bytes: number, failed_records: number, first_failure: string,
 *   reached_ms: number | null, errors: {partition: number, error: string}[], next_cursor: string | null}} Turn */

/** The rows of a piece of a table. @param {string} markup @returns {HTMLTableRowElement[]} */
export function rowsOf(markup) {
  const page = new DOMParser().parseFromString(`<table><tbody>${markup}</tbody></table>`, "text/html");
  return [...page.querySelectorAll("tr")].map((row) => document.importNode(row, true));
}

/** Hand each line of JSON that comes from an address to `take`. @param {string} address @param {AbortSignal} signal
 * @param {(line: any) => void} take */
async function readLines(address, signal, take) {
  const answer = await fetch(address, { headers: { accept: "application/x-ndjson" }, signal });
  if (!answer.ok || !answer.body) throw new Error((await answer.json()).detail);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) take(JSON.parse(line));
  }
}

export class Search {
  /** @param {HTMLElement} line which says what was found, and where the search goes on */
  constructor(line) {
    this.line = line;
    this.address = new URL(line.dataset.goesOn ?? "", location.href);
    this.endings = JSON.parse(line.dataset.endings ?? "{}");
    const [found = 0, records = 0, bytes = 0, failed = 0] = (line.dataset.counts ?? "").split(" ").map(Number);
    this.found = found;
    this.records = records;
    this.bytes = bytes;
    this.failed = failed;
    /** @type {AbortController | null} */
    this.underWay = null;
    /** @type {Turn | null} */
    this.last = null;
    this.button = this.part("[data-search-button]");
    this.button.onclick = () => (this.underWay ? this.cancel() : this.start()); // a later search has the same button
    if (isStill) this.stop("stopped");
    else this.start();
  }

  /** @param {string} selector */
  part(selector) {
    return /** @type {HTMLElement} */ (this.line.querySelector(selector));
  }

  async start() {
    const underWay = new AbortController();
    this.underWay = underWay;
    this.button.textContent = "Cancel";
    this.address.searchParams.set("format", "html");
    this.address.searchParams.set("limit", String(Math.max(1, Number(this.line.dataset.limit) - this.found)));
    const atStart = { records: this.records, bytes: this.bytes, failed: this.failed };
    try {
      await readLines(this.address.href, underWay.signal, (turn) => this.take(turn, atStart));
      if (this.underWay === underWay) this.stop("the broker has ended it");
    } catch (error) {
      if (underWay.signal.aborted) return;
      this.stop(error instanceof Error && !(error instanceof TypeError) ? error.message : "the broker does not answer");
    }
  }

  cancel() {
    this.underWay?.abort();
    this.stop("cancelled");
  }

  /** @param {Turn} turn @param {{records: number, bytes: number, failed: number}} atStart */
  take(turn, atStart) {
    const rows = rowsOf(turn.rows);
    const body = document.querySelector("[data-records]");
    body?.append(...rows);
    if (rows.length) body?.querySelector("tr.empty")?.remove();
    showLocalTimes();
    this.found += rows.length;
    this.records = atStart.records + turn.searched_records;
    this.bytes = atStart.bytes + turn.searched_bytes;
    this.failed = atStart.failed + turn.failed_records;
    this.last = turn;
    if (turn.next_cursor) this.address.searchParams.set("cursor", turn.next_cursor);
    if (turn.ended_by) this.stop(this.endings[turn.ended_by]);
    else this.say("searching");
  }

  /** @param {string} reason */
  stop(reason) {
    const { ended_by: endedBy, next_cursor: cursor } = this.last ?? { ended_by: null, next_cursor: null };
    this.underWay = null;
    this.say(reason);
    const isOver = endedBy === "end" || endedBy === "limit" || endedBy === "size";
    this.button.hidden = isOver;
    this.part("[data-progress]").hidden = isOver;
    this.button.textContent = "Search further";
    const next = /** @type {HTMLAnchorElement | null} */ (document.querySelector(".pager [rel=next]"));
    if (!next || !isOver) return;
    const query = new URLSearchParams(new URL(next.href).search);
    query.set("cursor", cursor ?? "");
    next.href = `?${query}`;
    next.classList.toggle("scripted-away", !cursor || endedBy === "end");
  }

  /** Say what was found, and how far the search is. @param {string} state */
  say(state) {
    const { left_records: left, left_bytes: leftBytes, reached_ms: reached } = this.last ?? { left_records: 0, left_bytes: 0, reached_ms: null };
    const all = left ? `${numberText(this.records)} of ${numberText(this.records + left)}` : numberText(this.records);
    const size = left ? `${bytesText(this.bytes)} of about ${bytesText(this.bytes + leftBytes)}` : bytesText(this.bytes);
    const place = reached === null ? "" : `, up to ${localTime(new Date(reached))}`;
    const failed = this.failed ? ` ${numberText(this.failed)} had no value for the filter.` : "";
    this.part("[data-count]").textContent =
      `${numberText(this.found)} found in ${all} records (${size})${place}; ${state}.${failed}`;
    /** @type {HTMLProgressElement} */ (this.part("[data-progress]")).value = this.bytes / (this.bytes + leftBytes || 1);
    const nothing = document.querySelector("[data-records] tr.empty td");
    if (nothing) nothing.textContent = left || !this.last ? "No record matches yet." : "No record matches.";
  }
}
