// @ts-check
/**
 * New records as they come: rows above those that were found. It pauses while the pointer is over them, and stops when
 * nobody has seen the page for ten minutes.
 */

import { bytesText } from "./live.js";
import { visible } from "./tree.js";

const SHOWN_ROWS = 500; // the oldest leave the page; the search finds them
const PREVIEW_CHARACTERS = 240;
const HIDDEN_MS = 10 * 60_000; // a tab in the background for longer was forgotten
const TIME_IS_OVER = "ten minutes are over"; // why the server ends a stream that it could go on with

/** @typedef {{decoder: string, data: any}} Part */
/** @typedef {{partition: number, offset: number, timestamp_ms: number | null, key: Part | null, value: Part | null,
 *   header_count: number, size_bytes: number, batch: any}} Row */

/** @param {Part | null} part */
function textOf(part) {
  if (!part) return "null";
  const text = typeof part.data === "string" ? part.data : JSON.stringify(part.data);
  return visible(text.length > PREVIEW_CHARACTERS ? `${text.slice(0, PREVIEW_CHARACTERS)}…` : text);
}

/** What the page says of a record's batch. @param {any} batch @returns {Node[]} */
function batchTags(batch) {
  const { control, outcome, transactional, codec, producer_id: producerId, producer_epoch: epoch } = batch;
  const texts = [control && "control", outcome !== "committed" && outcome, transactional && "transaction", codec !== "none" && codec, producerId !== null && `${producerId}/${epoch}`];
  return texts.filter(Boolean).flatMap((text) => {
    const tag = document.createElement("span");
    tag.className = "tag";
    tag.textContent = text;
    return [tag, document.createTextNode(" ")];
  });
}

export class Tail {
  /** @param {HTMLElement} section @param {HTMLButtonElement} button @param {HTMLFormElement} form */
  constructor(section, button, form) {
    this.section = section;
    this.button = button;
    this.form = form;
    this.body = /** @type {HTMLElement} */ (section.querySelector("[data-records]"));
    this.note = /** @type {HTMLElement} */ (section.querySelector("[data-tail-note]"));
    /** @type {EventSource | null} */
    this.source = null;
    /** @type {Row[]} */
    this.waiting = [];
    this.skipped = 0;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.forgotten = undefined;
    button.disabled = !this.body;
    button.addEventListener("click", () => (this.source ? this.stop("stopped") : this.start()));
    this.body?.addEventListener("pointerleave", () => this.show());
    addEventListener("pagehide", () => this.source?.close());
    document.addEventListener("visibilitychange", () => this.watchHidden());
  }

  start() {
    const query = new URLSearchParams();
    for (const name of ["partitions", "where", "decode", "decode_key", "schema"]) {
      const text = String(new FormData(this.form).get(name) ?? "");
      if (text) query.set(name, text);
    }
    this.skipped = 0;
    this.button.setAttribute("aria-pressed", "true");
    this.say("Waiting for new records.");
    const source = new EventSource(`${this.section.dataset.tail}?${query}`);
    this.source = source;
    source.addEventListener("records", (event) => {
      const found = JSON.parse(event.data);
      this.waiting = [...this.waiting, ...found.records].slice(-SHOWN_ROWS);
      this.skipped += found.skipped;
      if (!this.body.matches(":hover")) this.show();
      else this.say(`Paused while hovering; ${this.waiting.length} new.`);
    });
    source.addEventListener("end", (event) => {
      const reason = JSON.parse(event.data);
      if (reason !== TIME_IS_OVER || document.hidden) return this.stop(reason);
      source.close();
      return this.start();
    });
    // It would connect again and again where the filter or the topic is refused.
    source.addEventListener("error", () => this.stop("refused, or the broker does not answer"));
  }

  /** Stop when the page has been hidden for long, whether or not records come meanwhile. */
  watchHidden() {
    clearTimeout(this.forgotten);
    if (!document.hidden) return;
    this.forgotten = setTimeout(() => this.source && this.stop("the page was hidden for ten minutes"), HIDDEN_MS);
  }

  /** @param {string} reason */
  stop(reason) {
    this.source?.close();
    this.source = null;
    this.button.setAttribute("aria-pressed", "false");
    this.show();
    this.say(`Live tail stopped: ${reason}.`);
  }

  show() {
    for (const row of this.waiting) this.body.prepend(this.rowOf(row));
    this.body.querySelector("tr.empty")?.remove();
    this.waiting = [];
    const rows = this.body.querySelectorAll("tr.record");
    for (const row of [...rows].slice(SHOWN_ROWS)) row.remove();
    if (this.source) this.say(`Live.${this.skipped ? ` ${this.skipped} skipped.` : ""}`);
  }

  /** @param {Row} row */
  rowOf(row) {
    const line = document.createElement("tr");
    line.className = `record fresh${row.batch.control ? " marker" : ""}${row.batch.outcome === "aborted" ? " aborted" : ""}`;
    line.dataset.place = `${row.partition}/${row.offset}`;
    /** @param {string} text @param {string} kind */
    const cell = (text, kind) => {
      const made = line.insertCell();
      made.className = kind;
      const content = document.createElement("span");
      if (kind === "value" || kind === "key") content.className = "foreign";
      content.textContent = text;
      made.append(content);
      return made;
    };
    cell(String(row.partition), "number");
    const link = document.createElement("a");
    link.href = `${location.pathname}/${row.partition}/${row.offset}`;
    link.textContent = String(row.offset);
    cell("", "number").replaceChildren(link);
    cell(timeText(row.timestamp_ms), "when");
    cell(textOf(row.key), "key");
    cell(textOf(row.value), "value");
    cell(row.header_count ? String(row.header_count) : "", "number medium");
    cell(bytesText(row.size_bytes), "number narrow");
    cell("", "medium").replaceChildren(...batchTags(row.batch));
    return line;
  }

  /** @param {string} text */
  say(text) {
    this.note.hidden = false;
    this.note.textContent = text;
  }
}

/** A record's time, or its number if that is beyond the calendar. @param {number | null} atMs */
function timeText(atMs) {
  if (atMs === null) return "none";
  const at = new Date(atMs);
  return Number.isNaN(at.getTime()) ? String(atMs) : at.toISOString();
}
