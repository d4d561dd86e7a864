// @ts-check
/**
 * Actions of `macros/dialog.html`: each is one HTTP call, shown before it is made, tried first where it can be.
 *
 * Fired at the dialog, with the server's answer as `detail`: `tried` after a dry run, `done` after the change. A listener
 * that calls `preventDefault` shows the answer itself. `called` is fired with the body whenever the call is shown anew.
 */

import { bodyOf, curlOf, formErrors, queryOf, commandOf } from "./action_call.js";
import { leaveFor, quietly } from "./live.js";
import { refreshRegions } from "./morph.js";
import { toast } from "./toast.js";

/** @typedef {{pointer: string, detail: string}} FieldError */

/** @param {HTMLDialogElement} dialog */
const outcomeOf = (dialog) => /** @type {HTMLElement} */ (dialog.querySelector("[data-outcome]"));

/** One action. */
class Action {
  /** @param {HTMLDialogElement} dialog */
  constructor(dialog) {
    this.dialog = dialog;
    this.form = /** @type {HTMLFormElement} */ (dialog.querySelector("form"));
    this.method = dialog.dataset.method ?? "POST";
    this.does = /** @type {HTMLButtonElement} */ (dialog.querySelector("[data-does]"));
    this.tries = /** @type {HTMLButtonElement | null} */ (dialog.querySelector("[data-tries]"));
    this.typed = /** @type {HTMLInputElement | null} */ (dialog.querySelector("[data-typed]"));
    this.isLent = false; // whether its address is that of the button that opened it
    this.form.addEventListener("input", () => this.choose(), { capture: true });
    this.form.addEventListener("input", () => this.showCall());
    document.addEventListener("refreshed", () => this.closeIfOver());
    this.choose();
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!this.does.disabled) this.call(false);
    });
    this.tries?.addEventListener("click", () => this.call(true));
    for (const closer of dialog.querySelectorAll("[data-closes]")) closer.addEventListener("click", () => dialog.close());
    this.showCall();
  }

  /** Show and send the fields of the choice that was made: a radio button that `data-chooses` those of `data-chosen`. */
  choose() {
    const choices = /** @type {NodeListOf<HTMLInputElement>} */ (this.form.querySelectorAll("[data-chooses]"));
    const chosen = new Set([...choices].filter((each) => each.checked).map((each) => each.dataset.chooses));
    for (const place of /** @type {NodeListOf<HTMLElement>} */ (this.form.querySelectorAll("[data-chosen]"))) {
      place.hidden = !chosen.has(place.dataset.chosen);
      for (const field of place.querySelectorAll("input")) field.disabled = place.hidden;
    }
  }

  /** Close where the button is gone that opened it: what it was about, such as a trial, is over. */
  closeIfOver() {
    const opener = `[data-opens="${this.dialog.id}"][data-address="${CSS.escape(this.dialog.dataset.address ?? "")}"]`;
    if (this.dialog.open && this.isLent && !document.querySelector(opener)) this.dialog.close();
  }

  /** @param {string | undefined} address in place of the dialog's own */
  open(address) {
    this.isLent = Boolean(address);
    if (address) this.dialog.dataset.address = address;
    this.say("", "");
    this.showTried(null);
    if (this.typed) this.typed.value = "";
    this.showCall();
    this.dialog.showModal();
    // Not the cross at the top, which is the first that could have it.
    const first = this.form.querySelector(".fields :is(input:not([type=hidden]), select, textarea), [data-typed], [data-tries]") ?? this.does;
    /** @type {HTMLElement} */ (first).focus();
  }

  /** @param {boolean} isTrial */
  address(isTrial) {
    const query = queryOf(this.form);
    if (isTrial) query.set("dry_run", "true");
    const text = query.toString();
    return text ? `${this.dialog.dataset.address}?${text}` : (this.dialog.dataset.address ?? "");
  }

  showCall() {
    if (this.typed) this.does.disabled = this.typed.value !== this.typed.dataset.typed;
    const call = this.dialog.querySelector("[data-call]");
    const base = document.body.dataset.baseUrl ?? "";
    if (call) call.textContent = curlOf(this.method, base + this.address(false), bodyOf(this.form));
    for (const command of /** @type {NodeListOf<HTMLElement>} */ (this.dialog.querySelectorAll("[data-command]"))) {
      command.textContent = commandOf(command.dataset.command ?? "", this.form);
    }
    this.dialog.dispatchEvent(new CustomEvent("called", { detail: bodyOf(this.form) }));
  }

  /** @param {string} kind @param {string} text */
  say(kind, text) {
    const outcome = outcomeOf(this.dialog);
    outcome.dataset.kind = kind;
    outcome.textContent = text;
    for (const reason of this.form.querySelectorAll(".reason")) reason.remove();
    for (const field of this.form.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
  }

  /** @param {any} answer of a dry run, or null */
  showTried(answer) {
    const place = /** @type {HTMLElement | null} */ (this.dialog.querySelector("[data-tried]"));
    if (!place) return;
    place.hidden = answer === null;
    place.textContent = answer === null ? "" : JSON.stringify(answer, null, 2);
  }

  /** Make the call. @param {boolean} isTrial which changes nothing */
  async call(isTrial) {
    const errors = formErrors(this.form);
    if (errors.length) return this.refused({ errors });
    this.say("busy", "The broker is asked …");
    this.does.disabled = true;
    try {
      const body = bodyOf(this.form);
      const answer = await fetch(this.address(isTrial), {
        method: this.method,
        headers: { "x-requested-with": "admin page", ...(body === null ? {} : { "content-type": "application/json" }) },
        ...(body === null ? {} : { body: JSON.stringify(body) }),
      });
      const text = await answer.text();
      const json = text && /json/.test(answer.headers.get("content-type") ?? "") ? JSON.parse(text) : {};
      if (!answer.ok) this.refused(json);
      else if (isTrial) this.wasTried(json);
      else await this.wasDone(json);
    } catch {
      // The request may have arrived and only its answer been lost.
      this.say("bad", "The broker did not answer. Whether the change was made is seen once it does.");
    } finally {
      this.does.disabled = false;
      this.showCall();
    }
  }

  /** @param {{title?: string, detail?: string, errors?: FieldError[]}} problem */
  refused(problem) {
    let elsewhere = !problem.errors?.length; // whether there is more to say than stands beside the fields
    this.say("bad", `Refused: ${problem.detail ?? problem.title ?? "the broker does not say why"}`);
    for (const { pointer, detail } of problem.errors ?? []) {
      const name = pointer.startsWith("?") ? pointer : pointer.slice(1).replaceAll("~1", "/").replaceAll("~0", "~");
      const field = this.form.elements.namedItem(name);
      if (!(field instanceof HTMLElement)) {
        elsewhere = true;
        continue;
      }
      field.setAttribute("aria-invalid", "true");
      const reason = document.createElement("span");
      reason.className = "reason";
      reason.textContent = detail;
      field.after(reason);
    }
    if (!elsewhere) outcomeOf(this.dialog).textContent = "Nothing was changed: see beside the fields.";
  }

  /** @param {any} answer */
  wasTried(answer) {
    this.say("good", "This would be done; nothing was changed yet.");
    if (this.dialog.dispatchEvent(new CustomEvent("tried", { detail: answer, cancelable: true }))) this.showTried(answer);
  }

  /** @param {any} answer */
  async wasDone(answer) {
    if (!this.dialog.dispatchEvent(new CustomEvent("done", { detail: answer, cancelable: true }))) return;
    this.dialog.close();
    const title = this.dialog.querySelector("h2")?.textContent ?? "";
    const sequence = answer.changes?.[0]?.sequence ?? answer.number;
    const then = this.dialog.dataset.then;
    const link = sequence === undefined ? { address: "/changes", link: "see the changes" } : { address: `/changes/${sequence}`, link: "see the change" };
    toast(`${title}: done.`, link, then !== undefined);
    if (then) leaveFor(then);
    else await quietly(() => refreshRegions());
  }
}

/** @type {Map<string, Action>} */
const actions = new Map();
for (const dialog of /** @type {NodeListOf<HTMLDialogElement>} */ (document.querySelectorAll("dialog.action"))) {
  actions.set(dialog.id, new Action(dialog));
}
document.addEventListener("click", (event) => {
  const opener = event.target instanceof Element ? event.target.closest("[data-opens]") : null;
  if (opener instanceof HTMLElement) actions.get(opener.dataset.opens ?? "")?.open(opener.dataset.address);
});
