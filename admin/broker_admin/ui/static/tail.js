// @ts-check
/**
 * New records as they come: rows above those that were found. It pauses while the pointer is over them, and stops when
 * nobody has seen the page for ten minutes.
 */

import { rowsOf } from "./search.js";
import { showLocalTimes } from "./times.js";

const SHOWN_ROWS = 500; // the oldest leave the page; the search finds them
const HIDDEN_MS = 10 * 60_000; // a tab in the background for longer was forgotten
const TIME_IS_OVER = "ten minutes are over"; // why the server ends a stream that it could go on with

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
    /** @type {HTMLTableRowElement[]} */
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
    const query = new URLSearchParams({ format: "html" });
    for (const name of ["partitions", "where", "decode", "decode_key", "schema"]) {
      const text = String(new FormData(this.form).get(name) ?? "");
      if (text && text !== "auto") query.set(name, text);
    }
    this.skipped = 0;
    this.button.setAttribute("aria-pressed", "true");
    this.say("Waiting for new records.");
    const source = new EventSource(`${this.section.dataset.tail}?${query}`);
    this.source = source;
    source.addEventListener("records", (event) => {
      const found = JSON.parse(event.data);
      this.waiting = [...this.waiting, ...rowsOf(found.rows)].slice(-SHOWN_ROWS);
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
    for (const row of this.waiting) {
      row.classList.add("fresh");
      this.body.prepend(row);
    }
    showLocalTimes();
    this.body.querySelector("tr.empty")?.remove();
    this.waiting = [];
    const rows = this.body.querySelectorAll("tr.record");
    for (const row of [...rows].slice(SHOWN_ROWS)) row.remove();
    if (this.source) this.say(`Live.${this.skipped ? ` ${this.skipped} skipped.` : ""}`);
  }

  /** @param {string} text */
  say(text) {
    this.note.hidden = false;
    this.note.textContent = text;
  }
}
