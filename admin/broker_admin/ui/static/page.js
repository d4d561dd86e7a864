// @ts-check
/**
 * What moves on the overview: charts drawn as SVG from the broker's own history, the knobs, the tables.
 *
 * Samples come from GET /api/v1/history once and from the event stream /api/v1/events after that (see live.js). Every
 * action is one HTTP call, and the page shows it.
 *
 * @typedef {{sampled_at_ms: number, bytes_in_per_second: number, bytes_out_per_second: number,
 *   requests_per_second: number, network_idle_ratio: number, network_idle_ratios: number[], io_idle_ratio: number,
 *   io_idle_ratios: number[], queue_depth: number, queue_capacity: number, connections: number,
 *   event_loop_busy_ratio: number}} Sample
 * @typedef {{sequence: number, changed_at_ms: number, key: string, old: string | null, new: string | null,
 *   changed_by: string}} Change
 * @typedef {{pick: (sample: Sample) => number | undefined, style: string, area?: boolean}} Line
 * @typedef {{lines: (samples: Sample[]) => Line[], top: (samples: Sample[]) => number, ticks: (top: number) => number[],
 *   tick: (value: number) => string, knob?: string, bound?: (sample: Sample) => number, read: (sample: Sample) => string}} Chart
 */

import { get, isLive, isStill, keepUpToDate, loadRows, quietly, showConnections } from "./live.js";

const WINDOW_MS = 300_000; // what a chart shows
const GAP_MS = 3_500; // samples further apart than this are not joined: nobody knows what was between
const TABLES_MS = 5_000; // how often the tables of topics and groups are read
const MARGIN = { top: 14, right: 4, bottom: 18, left: 38 };
const SLIDER_REACH = 2000; // of a number without an upper limit, as in knobs.py
const LABEL_WIDTH = 90; // pixels that a change written over a chart may take
const SVG = "http://www.w3.org/2000/svg";

/** @type {Sample[]} */
let samples = [];
/** @type {Change[]} */
let changes = [];
/** @type {number | null} the moment under the pointer, the same in all charts */
let cursorMs = null;

/** @param {number} value */
const percent = (value) => `${Math.round(100 * value)}\u00a0%`;

/** @param {number} value */
const short = (value) => {
  if (value >= 1e6) return `${(value / 1e6).toFixed(value < 1e7 ? 1 : 0)} M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(0)} k`;
  if (value >= 1e3) return `${Math.floor(value / 1e3)}\u202f${String(Math.round(value % 1e3)).padStart(3, "0")}`;
  return value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1);
};

/** The smallest of 1, 2, 3, 4, 6, 8 times a power of ten that is not below `value`. @param {number} value */
function niceTop(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * ([1, 2, 3, 4, 6, 8, 10].find((factor) => factor * power >= value) ?? 10);
}

/** The binary unit in which `bytes` is a number of at most four digits; nothing smaller than a KiB. @param {number} bytes */
function byteUnit(bytes) {
  const power = bytes < 1024 ** 2 ? 1 : bytes < 1024 ** 3 ? 2 : 3;
  return { size: 1024 ** power, letter: " KMG"[power] };
}

/** @param {number} bytes */
function byteTick(bytes) {
  const { size, letter } = byteUnit(bytes);
  return bytes === 0 ? "0" : `${short(bytes / size)}\u00a0${letter}`;
}

/** A rate as our own markup. @param {number} bytes */
function byteRate(bytes) {
  const { size, letter } = byteUnit(bytes);
  return `<strong>${short(bytes / size)}</strong> ${letter}iB/s`;
}

/** @param {number} top */
const halves = (top) => [0, top / 2, top];
/** @param {(sample: Sample) => number} pick @returns {(samples: Sample[]) => number} */
const topOf = (pick) => (shown) => niceTop(Math.max(1, ...shown.map(pick)));

/** A pool's idle ratio: the workers thin, their mean on top. @param {"network" | "io"} pool @param {string} knob @returns {Chart} */
function idleChart(pool, knob) {
  /** @param {Sample} sample */
  const ratios = (sample) => sample[`${pool}_idle_ratios`];
  return {
    knob,
    lines: (shown) => [
      ...Array.from({ length: Math.max(0, ...shown.map((sample) => ratios(sample).length)) }, (_, worker) => ({
        pick: (/** @type {Sample} */ sample) => ratios(sample)[worker],
        style: "worker",
      })),
      { pick: (sample) => sample[`${pool}_idle_ratio`], style: "line first", area: true },
    ],
    top: () => 1,
    ticks: halves,
    tick: percent,
    read: (sample) => {
      const low = Math.min(...ratios(sample));
      return `<strong>${percent(sample[`${pool}_idle_ratio`])}</strong> <span>idle · least ${percent(low)}</span>`;
    },
  };
}

/** @type {Record<string, Chart>} */
const CHARTS = {
  bytes: {
    lines: () => [
      { pick: (sample) => sample.bytes_in_per_second, style: "line first", area: true },
      { pick: (sample) => sample.bytes_out_per_second, style: "line second", area: true },
    ],
    top: (shown) => {
      const most = Math.max(1, ...shown.flatMap((sample) => [sample.bytes_in_per_second, sample.bytes_out_per_second]));
      const { size } = byteUnit(most);
      return niceTop(Math.max(1, most / size)) * size;
    },
    ticks: halves,
    tick: byteTick,
    read: (sample) =>
      `<i class="swatch first"></i>in ${byteRate(sample.bytes_in_per_second)}` +
      `<i class="swatch second"></i>out ${byteRate(sample.bytes_out_per_second)}`,
  },
  requests: {
    lines: () => [{ pick: (sample) => sample.requests_per_second, style: "line first", area: true }],
    top: topOf((sample) => sample.requests_per_second),
    ticks: halves,
    tick: short,
    read: (sample) => `<strong>${short(Math.round(sample.requests_per_second))}</strong> per second`,
  },
  loop: {
    lines: () => [{ pick: (sample) => sample.event_loop_busy_ratio, style: "line first", area: true }],
    top: () => 1,
    ticks: halves,
    tick: percent,
    read: (sample) => `<strong>${percent(sample.event_loop_busy_ratio)}</strong> busy`,
  },
  network: idleChart("network", "num.network.threads"),
  io: idleChart("io", "num.io.threads"),
  queue: {
    knob: "queued.max.requests",
    lines: () => [{ pick: (sample) => sample.queue_depth, style: "line first", area: true }],
    // The capacity is drawn where it is within reach; a queue of 3 in 500 would else be a flat line.
    top: (shown) => {
      const deepest = Math.max(4, ...shown.map((sample) => sample.queue_depth));
      const capacity = Math.max(...shown.map((sample) => sample.queue_capacity), 1);
      return niceTop(deepest * 4 >= capacity ? Math.max(deepest, capacity) : deepest);
    },
    ticks: halves,
    tick: short,
    bound: (sample) => sample.queue_capacity,
    read: (sample) => `<strong>${short(sample.queue_depth)}</strong> <span>of ${short(sample.queue_capacity)} waiting</span>`,
  },
};

/** @param {string} name @param {Record<string, string | number>} attributes @param {string} [text] */
function svg(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  if (text !== undefined) element.textContent = text;
  return element;
}

/** The path of one line, lifted where samples are missing. @param {Sample[]} shown @param {(sample: Sample) => number | undefined} pick
 * @param {(ms: number) => number} x @param {(value: number) => number} y */
function linePath(shown, pick, x, y) {
  let path = "";
  let previousMs = -Infinity;
  for (const sample of shown) {
    const value = pick(sample);
    if (value === undefined) {
      previousMs = -Infinity;
      continue;
    }
    const verb = sample.sampled_at_ms - previousMs > GAP_MS ? "M" : "L";
    path += `${verb}${x(sample.sampled_at_ms).toFixed(1)},${y(value).toFixed(1)}`;
    previousMs = sample.sampled_at_ms;
  }
  return path;
}

/** The path of the area under a line. @param {string} line @param {number} base */
function areaPath(line, base) {
  return line
    .split("M")
    .filter(Boolean)
    .map((part) => {
      const points = part.split("L");
      const first = points[0].split(",")[0];
      const last = points[points.length - 1].split(",")[0];
      return `M${first},${base}L${points.join("L")}L${last},${base}Z`;
    })
    .join("");
}

/** @param {Element} plot @param {Chart} chart @param {Sample[]} shown */
function draw(plot, chart, shown) {
  const { clientWidth: width, clientHeight: height } = plot;
  const end = shown.length ? shown[shown.length - 1].sampled_at_ms : Date.now();
  const top = chart.top(shown);
  const base = height - MARGIN.bottom;
  /** @param {number} ms */
  const x = (ms) => MARGIN.left + ((ms - end + WINDOW_MS) / WINDOW_MS) * (width - MARGIN.left - MARGIN.right);
  /** @param {number} value */
  const y = (value) => base - (Math.min(value, top) / top) * (base - MARGIN.top);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  for (const value of chart.ticks(top)) {
    const style = value === 0 ? "axis" : "gridline";
    picture.append(svg("line", { class: style, x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }));
    picture.append(svg("text", { x: MARGIN.left - 6, y: y(value) + 3.5, "text-anchor": "end" }, chart.tick(value)));
  }
  for (let minutes = 5; minutes >= 0; minutes--) {
    const anchor = minutes === 5 ? "start" : minutes === 0 ? "end" : "middle";
    const label = minutes === 0 ? "now" : minutes === 5 ? "−5 min" : `−${minutes}`;
    picture.append(svg("text", { x: x(end - minutes * 60_000), y: height - 4, "text-anchor": anchor }, label));
  }
  for (const line of chart.lines(shown)) {
    const path = linePath(shown, line.pick, x, y);
    if (line.area) picture.append(svg("path", { class: line.style.replace("line", "area"), d: areaPath(path, base) }));
    picture.append(svg("path", { class: line.style, d: path }));
  }
  if (chart.bound && shown.some((sample) => /** @type {NonNullable<Chart["bound"]>} */ (chart.bound)(sample) <= top)) {
    const bound = chart.bound;
    const path = linePath(shown, (sample) => (bound(sample) <= top ? bound(sample) : undefined), x, y);
    picture.append(svg("path", { class: "bound", d: path }));
  }
  let labelledFrom = Infinity;
  const recent = changes.filter((one) => one.changed_at_ms > end - WINDOW_MS && one.changed_at_ms <= end + GAP_MS);
  for (const change of recent.reverse()) {
    const at = x(Math.min(change.changed_at_ms, end));
    // Newest first, and a label only where it does not run into the one after it.
    const labelled = change.key === chart.knob && at + LABEL_WIDTH < labelledFrom;
    if (labelled) labelledFrom = at;
    picture.append(marker(change, chart, at, base, width, labelled));
  }
  if (cursorMs !== null && cursorMs >= end - WINDOW_MS) {
    picture.append(svg("line", { class: "cursor", x1: x(cursorMs), x2: x(cursorMs), y1: MARGIN.top, y2: base }));
  }
  plot.replaceChildren(picture);
}

/** A change as a dashed line; on the chart of its own knob it is named. @param {Change} change @param {Chart} chart
 * @param {number} at @param {number} base @param {number} width @param {boolean} labelled */
function marker(change, chart, at, base, width, labelled) {
  const own = change.key === chart.knob;
  const group = svg("g", { class: own ? "mark" : "mark other" });
  group.append(svg("title", {}, `${change.key}: ${change.old} → ${change.new}, by ${change.changed_by}`));
  group.append(svg("line", { x1: at, x2: at, y1: MARGIN.top - 2, y2: base }));
  if (labelled) {
    const anchor = at > width - 60 ? "end" : "middle";
    group.append(svg("text", { x: at, y: MARGIN.top - 4, "text-anchor": anchor }, `${change.old} → ${change.new}`));
  }
  return group;
}

/** The sample at the pointer, else the newest. */
function readSample() {
  if (cursorMs === null) return samples[samples.length - 1];
  const wanted = cursorMs;
  return samples.reduce((best, sample) =>
    Math.abs(sample.sampled_at_ms - wanted) < Math.abs(best.sampled_at_ms - wanted) ? sample : best,
  );
}

/** Draw everything that depends on samples and changes. */
function render() {
  if (!samples.length) return;
  const end = samples[samples.length - 1].sampled_at_ms;
  const shown = samples.filter((sample) => sample.sampled_at_ms > end - WINDOW_MS);
  const sample = readSample();
  for (const [name, chart] of Object.entries(CHARTS)) {
    const plot = document.querySelector(`[data-chart="${name}"] .plot`);
    const reading = document.querySelector(`[data-reading="${name}"]`);
    if (plot) draw(plot, chart, shown);
    // `read` returns our own markup around numbers, never text from the broker.
    if (reading) reading.innerHTML = chart.read(sample);
  }
  showConnections(sample.connections);
}

async function loadReadings() {
  const [history, journal] = await Promise.all([get("/api/v1/history"), get("/api/v1/journal")]);
  samples = history.samples;
  changes = journal.changes;
  render();
}

/** One knob: slider, number, button, the call they make, and what came of it. */
class Knob {
  /** @param {HTMLFormElement} form */
  constructor(form) {
    this.form = form;
    this.key = form.dataset.form ?? "";
    this.slider = /** @type {HTMLInputElement} */ (form.querySelector('input[type="range"]'));
    this.number = /** @type {HTMLInputElement} */ (form.querySelector('input[type="number"]'));
    this.apply = /** @type {HTMLButtonElement} */ (form.querySelector(".apply"));
    this.resetButton = /** @type {HTMLButtonElement} */ (form.querySelector("[data-reset]"));
    this.current = this.number.value;
    this.slider.addEventListener("input", () => this.choose(this.slider.value));
    this.number.addEventListener("input", () => this.choose(this.number.value));
    this.resetButton.addEventListener("click", () => this.send(null));
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
    this.apply.disabled = !this.isChange;
    this.showCall(value === "" ? null : Number(value));
  }

  /** @param {number | null} value */
  showCall(value) {
    this.part("call").textContent = [
      `curl -X PATCH ${document.body.dataset.baseUrl}/api/v1/config`,
      "-H 'X-Requested-With: curl'",
      "-H 'Content-Type: application/json'",
      `-d '{"${this.key}": ${value}}'`,
    ].join(" \\\n  ");
  }

  /** @param {"good" | "bad" | "busy"} kind @param {string} text */
  say(kind, text) {
    const outcome = this.part("outcome");
    outcome.dataset.kind = kind;
    outcome.textContent = text;
  }

  /** Make the change, and tell what came of it. @param {number | null} value */
  async send(value) {
    this.showCall(value);
    this.say("busy", "PATCH /api/v1/config …");
    try {
      const answer = await fetch("/api/v1/config", {
        method: "PATCH",
        headers: { "content-type": "application/json", "x-requested-with": "admin page" },
        body: JSON.stringify({ [this.key]: value }),
      });
      this.tell(answer.status, await answer.json());
    } catch (error) {
      this.say("bad", `The broker did not answer: ${error}`);
    }
    await loadConfig();
  }

  /** @param {number} status @param {any} body */
  tell(status, body) {
    if (status === 200) {
      this.number.value = body.configs[this.key].value;
      const change = body.changes.find((/** @type {Change} */ one) => one.key === this.key);
      this.say("good", change ? `PATCH → 200: ${change.old} → ${change.new}, in effect.` : "PATCH → 200: it was so already.");
    } else {
      const reasons = (body.refusals ?? []).map((/** @type {{reason: string}} */ one) => one.reason);
      this.say("bad", `PATCH → ${status}: ${reasons.join("; ") || body.error}`);
    }
  }

  /** Show the key as it is now, keeping what the user is choosing. @param {any} entry */
  show(entry) {
    const untouched = !this.isChange || this.number.value === entry.value;
    const allowed = entry.allowed_range;
    this.current = entry.value;
    this.slider.min = allowed?.minimum ?? 1;
    this.slider.max = allowed?.maximum ?? Math.max(SLIDER_REACH, 4 * Number(entry.value));
    if (allowed) {
      this.number.min = this.part("minimum").textContent = allowed.minimum;
      this.number.max = this.part("maximum").textContent = allowed.maximum;
    }
    this.part("now").textContent = entry.value;
    this.resetButton.hidden = !entry.source.startsWith("DYNAMIC_");
    this.choose(untouched ? entry.value : this.number.value);
  }
}

const knobs = [...document.querySelectorAll("[data-form]")].map((form) => new Knob(/** @type {HTMLFormElement} */ (form)));

async function loadConfig() {
  const { configs } = await get("/api/v1/config");
  for (const knob of knobs) if (configs[knob.key]) knob.show(configs[knob.key]);
}

async function loadTables() {
  await Promise.all([loadRows("topics"), loadRows("groups")]);
}

async function loadAll() {
  await Promise.all([loadReadings(), loadConfig(), loadRows("journal"), loadTables()]);
}

/** @param {PointerEvent} event */
function moveCursor(event) {
  const plot = /** @type {HTMLElement} */ (event.currentTarget);
  if (!samples.length) return;
  const box = plot.getBoundingClientRect();
  const share = (event.clientX - box.left - MARGIN.left) / (box.width - MARGIN.left - MARGIN.right);
  const end = samples[samples.length - 1].sampled_at_ms;
  cursorMs = end - WINDOW_MS + Math.min(1, Math.max(0, share)) * WINDOW_MS;
  render();
}

for (const plot of document.querySelectorAll(".plot")) {
  plot.addEventListener("pointermove", (event) => moveCursor(/** @type {PointerEvent} */ (event)));
  plot.addEventListener("pointerleave", () => {
    cursorMs = null;
    render();
  });
}
// Side by side, the three explanations open together: one alone would leave two empty spaces.
const explanations = /** @type {HTMLDetailsElement[]} */ ([...document.querySelectorAll("details")]);
for (const opened of explanations) {
  opened.addEventListener("toggle", () => {
    if (matchMedia("(min-width: 1021px)").matches) for (const other of explanations) other.open = opened.open;
  });
}
new ResizeObserver(render).observe(document.body);

quietly(loadAll);
keepUpToDate(loadAll, {
  sample: (sample) => {
    samples.push(sample);
    samples = samples.slice(-WINDOW_MS / 1000);
    render();
  },
  config: (change) => {
    changes.push(change);
    render();
    quietly(loadConfig);
    quietly(() => loadRows("journal"));
  },
});
if (!isStill) setInterval(() => isLive() && !document.hidden && quietly(loadTables), TABLES_MS);
