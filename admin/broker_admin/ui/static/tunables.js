// @ts-check
/**
 * The cards that change a setting: each makes one PATCH, and shows that call and its outcome.
 *
 * @typedef {import("./charts.js").Change} Change
 */

import { configApi, quietly } from "./live.js";

/** @param {Change} change */
function linkTo(change) {
  const link = document.createElement("a");
  link.href = `/changes/${change.sequence}`;
  link.textContent = `change ${change.sequence}`;
  return link;
}

/** One tunable: slider, number, button, the call they make, and its outcome. */
export class Tunable {
  /** @param {HTMLFormElement} form @param {() => Promise<unknown>} changed is called after each attempt to change the key */
  constructor(form, changed) {
    this.form = form;
    this.changed = changed;
    this.key = form.dataset.form ?? "";
    this.slider = /** @type {HTMLInputElement} */ (form.querySelector('input[type="range"]'));
    this.number = /** @type {HTMLInputElement} */ (form.querySelector('input[type="number"]'));
    this.sliderMaximum = Number(this.slider.dataset.sliderMaximum); // how far the slider goes at least
    this.apply = /** @type {HTMLButtonElement} */ (form.querySelector(".apply"));
    this.resetButton = /** @type {HTMLButtonElement} */ (form.querySelector("[data-reset]"));
    this.tries = /** @type {HTMLButtonElement} */ (form.querySelector("[data-try]"));
    this.current = this.number.value;
    this.wasTried = false;
    this.slider.addEventListener("input", () => this.choose(this.slider.value));
    this.number.addEventListener("input", () => this.choose(this.number.value));
    this.resetButton.addEventListener("click", () => this.send(null));
    this.tries.addEventListener("click", () => this.send(Number(this.number.value), `?try_seconds=${this.tries.dataset.try}`));
    this.compares = /** @type {HTMLButtonElement} */ (form.querySelector("[data-compare]"));
    this.compares.addEventListener("click", () => this.send(Number(this.number.value), `?compare_seconds=${this.compares.dataset.compare}`));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.isChange) this.send(Number(this.number.value));
    });
    const copy = /** @type {HTMLButtonElement} */ (form.querySelector("[data-copy]"));
    copy.hidden = !navigator.clipboard;
    copy.addEventListener("click", async () => {
      await navigator.clipboard.writeText(this.part("call").textContent ?? "");
      this.say("good", "The command was copied.");
    });
    form.noValidate = true; // The broker's own refusal is shown instead: it knows the rule.
    this.choose(this.current);
  }

  get isChange() {
    return this.number.value !== "" && this.number.value !== this.current;
  }

  /** @param {string} name */
  part(name) {
    return /** @type {HTMLElement} */ (this.form.querySelector(`[data-${name}]`));
  }

  /** @param {string} value */
  choose(value) {
    this.number.value = value;
    if (value !== "") this.slider.value = value;
    this.apply.disabled = this.tries.disabled = this.compares.disabled = !this.isChange;
    this.showCall(value === "" ? null : Number(value));
  }

  /** @param {number | null} value @param {string} [query] */
  showCall(value, query = "") {
    this.part("call").textContent = [
      `curl -X PATCH ${document.body.dataset.baseUrl}${configApi}${query}`.replace(/(\S+\?\S+)/, "'$1'"),
      "-H 'X-Requested-With: curl'",
      "-H 'Content-Type: application/json'",
      `-d '{"${this.key}": ${value}}'`,
    ].join(" \\\n  ");
  }

  /** @param {"good" | "bad" | "busy" | "unanswered"} kind @param {string} text */
  say(kind, text) {
    const outcome = this.part("outcome");
    outcome.dataset.kind = kind;
    outcome.textContent = text;
  }

  /** Make the change and show its outcome. @param {number | null} value which resets the key when it is null
   * @param {string} [query] which makes it a trial */
  async send(value, query = "") {
    this.showCall(value, query);
    this.say("busy", "The broker is asked …");
    try {
      const answer = await fetch(`${configApi}${query}`, {
        method: "PATCH",
        headers: { "content-type": "application/json", "x-requested-with": "admin page" },
        body: JSON.stringify({ [this.key]: value }),
      });
      this.showOutcome(answer.status, await answer.json(), query);
    } catch {
      // The request may have arrived and only its answer been lost. The next reading of the key shows its value.
      this.say("unanswered", "The broker did not answer. Whether the change was made is shown here once it does.");
    }
    await quietly(this.changed);
  }

  /** @param {number} status @param {any} body the answer to the PATCH @param {string} query */
  showOutcome(status, body, query) {
    if (status === 200) {
      this.number.value = body.configs[this.key].value;
      const change = body.changes.find((/** @type {Change} */ one) => one.key === this.key);
      if (change && query.startsWith("?compare")) {
        this.say("good", `${change.old} and ${change.new} in turn, three times ${this.compares.dataset.compare} s each, and then ${change.old}: `);
        this.part("outcome").append(linkTo(change));
        return;
      }
      const state = query ? `in effect for ${this.tries.dataset.try} s; keep or undo it above` : "in effect";
      this.say("good", change ? `${change.old} → ${change.new}, ${state}. What it does is measured for a minute: ` : "It was so already.");
      if (change) this.part("outcome").append(linkTo(change));
    } else {
      const reasons = (body.errors ?? []).map((/** @type {{detail: string}} */ one) => one.detail);
      this.say("bad", `Nothing was changed: ${reasons.join("; ") || body.detail}`);
    }
  }

  /** Show the key as it is now, keeping what the user is choosing. @param {any} entry */
  show(entry) {
    const untouched = !this.isChange || this.number.value === entry.value;
    const allowed = entry.allowed_range;
    this.current = entry.value;
    if (this.part("outcome").dataset.kind === "unanswered") this.say("busy", "");
    this.slider.min = allowed?.minimum ?? 1;
    this.slider.max = String(Math.min(allowed?.maximum ?? Infinity, Math.max(this.sliderMaximum, 4 * Number(entry.value))));
    if (allowed) {
      this.number.min = this.part("minimum").textContent = allowed.minimum;
      this.number.max = this.part("maximum").textContent = allowed.maximum;
    }
    this.part("now").textContent = entry.value;
    // A value on trial is not stored, and one of the cluster is not this broker's to take away.
    const isTried = entry.levels?.some((/** @type {{origin: string}} */ level) => level.origin === "on trial");
    if (this.wasTried && !isTried) this.say("busy", ""); // it spoke of the trial
    this.wasTried = isTried;
    this.resetButton.hidden = entry.source !== "DYNAMIC_BROKER_CONFIG" || isTried;
    this.choose(untouched ? entry.value : this.number.value);
  }
}
