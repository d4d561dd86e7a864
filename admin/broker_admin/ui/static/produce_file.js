// @ts-check
/** A file of JSON lines, appended in parts: read piece by piece, with progress, and a button that ends it. */

import { numberText, quietly } from "./live.js";
import { refreshRegions } from "./morph.js";

const PART_LINES = 500; // of one request; the server takes a thousand
const PART_BYTES = 1024 * 1024; // of one request, or one line that is longer

const section = /** @type {HTMLElement | null} */ (document.querySelector("[data-api]"));
const input = /** @type {HTMLInputElement | null} */ (document.querySelector("[data-file]"));
const progress = /** @type {HTMLProgressElement | null} */ (document.querySelector("[data-file-progress]"));
const note = /** @type {HTMLElement | null} */ (document.querySelector("[data-file-note]"));
const repartition = /** @type {HTMLInputElement | null} */ (document.querySelector("[data-file-repartition]"));
const cancel = /** @type {HTMLButtonElement | null} */ (document.querySelector("[data-file-cancel]"));

/** The lines of a file, in parts. @param {File} file @returns {AsyncGenerator<{lines: string[], read: number}>} */
async function* parts(file) {
  const reader = file.stream().pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let read = 0;
  /** @type {string[]} */
  let lines = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    rest += value ?? "";
    const found = rest.split("\n");
    rest = done ? "" : (found.pop() ?? "");
    for (const line of found) {
      if (!line.trim()) continue;
      if (lines.length && (lines.length >= PART_LINES || size + line.length > PART_BYTES)) {
        yield { lines, read };
        lines = [];
        size = 0;
      }
      lines.push(line);
      size += line.length;
      read += line.length + 1;
    }
    if (done) break;
  }
  if (lines.length) yield { lines, read };
}

/** @param {File} file @param {AbortSignal} signal */
async function append(file, signal) {
  let appended = 0;
  /** @param {string} text */
  const say = (text) => note && (note.textContent = text);
  try {
    for await (const { lines, read } of parts(file)) {
      if (signal.aborted) break;
      const answer = await fetch(`${section?.dataset.api}?repartition=${repartition?.checked ?? false}`, {
        method: "POST",
        headers: { "X-Requested-With": "page", "Content-Type": "application/x-ndjson" },
        body: lines.join("\n"),
        signal,
      });
      if (!answer.ok) {
        const problem = await answer.json();
        const [first] = problem.errors ?? [];
        const end = first?.detail.endsWith(".") ? "" : ".";
        const line = appended + Number(first?.pointer?.split("/")[1] ?? 0) + 1;
        say(`Record ${line} of the file: ${first?.detail ?? problem.detail}${end} ${numberText(appended)} appended before it.`);
        return;
      }
      appended += lines.length;
      if (progress) progress.value = Math.min(1, read / Math.max(1, file.size));
      say(`${numberText(appended)} appended`);
    }
    say(signal.aborted ? `Cancelled; ${numberText(appended)} were appended.` : `All ${numberText(appended)} were appended.`);
  } catch {
    say(signal.aborted ? `Cancelled; ${appended} or a part more were appended.` : `The broker does not answer; ${appended} were appended.`);
  }
}

input?.addEventListener("change", async () => {
  const file = input.files?.[0];
  if (!file || !progress || !cancel) return;
  const controller = new AbortController();
  const stop = () => controller.abort();
  progress.value = 0;
  progress.hidden = cancel.hidden = false;
  input.disabled = true;
  cancel.addEventListener("click", stop);
  await append(file, controller.signal);
  cancel.removeEventListener("click", stop);
  progress.hidden = cancel.hidden = true;
  input.disabled = false;
  input.value = "";
  quietly(() => refreshRegions());
});
