// @ts-check
/** The page of the API: a GET is tried with the values of its form, and its answer is shown as text. */

import { keepUpToDate, read } from "./live.js";

const MAX_SHOWN_CHARACTERS = 64 * 1024; // more of an answer than is read; a browser lays out megabytes slowly

/** The address that a form asks. @param {HTMLFormElement} form */
function addressOf(form) {
  let path = form.dataset.path ?? "";
  const query = new URLSearchParams();
  for (const field of /** @type {NodeListOf<HTMLInputElement | HTMLSelectElement>} */ (form.querySelectorAll("[data-in]"))) {
    if (field.dataset.in === "path") path = path.replace(`{${field.name}}`, encodeURIComponent(field.value));
    else if (field.dataset.in === "query" && field.value) query.append(field.name, field.value);
  }
  return query.size ? `${path}?${query}` : path;
}

/** @param {HTMLFormElement} form @param {string} kind @param {string} text */
function say(form, kind, text) {
  const outcome = /** @type {HTMLElement} */ (form.querySelector("[data-outcome]"));
  outcome.dataset.kind = kind;
  outcome.textContent = text;
}

/** @param {HTMLFormElement} form @param {string} text */
function show(form, text) {
  const place = /** @type {HTMLElement} */ (form.querySelector("[data-tried]"));
  place.hidden = text === "";
  place.textContent = text.length > MAX_SHOWN_CHARACTERS ? `${text.slice(0, MAX_SHOWN_CHARACTERS)}\n… (${text.length} characters)` : text;
}

/** @param {HTMLFormElement} form */
async function tryIt(form) {
  const address = addressOf(form);
  say(form, "busy", `GET ${address} …`);
  const began = performance.now();
  try {
    const answer = await read(address, "application/json, text/plain");
    const text = await answer.text();
    const isJson = /json/.test(answer.headers.get("content-type") ?? "");
    show(form, isJson ? JSON.stringify(JSON.parse(text), null, 2) : text);
    say(form, answer.ok ? "good" : "bad", `${answer.status}, ${Math.round(performance.now() - began)} ms, ${text.length} characters`);
  } catch {
    show(form, "");
    say(form, "bad", "There was no answer, or one that does not end.");
  }
}

for (const form of /** @type {NodeListOf<HTMLFormElement>} */ (document.querySelectorAll("form[data-try]"))) {
  const showAddress = () => {
    const place = form.querySelector("[data-address]");
    if (place) place.textContent = `GET ${addressOf(form)}`;
  };
  form.addEventListener("input", showAddress);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    tryIt(form);
  });
  showAddress();
}

/** Open the operation or schema that the address names. */
function openNamed() {
  const named = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (named instanceof HTMLDetailsElement) {
    named.open = true;
    named.scrollIntoView({ block: "nearest" });
  }
}

addEventListener("hashchange", openNamed);
openNamed();
keepUpToDate(async () => undefined, { sample: () => undefined });
