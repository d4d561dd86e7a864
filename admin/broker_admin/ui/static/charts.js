// @ts-check
/**
 * The overview's charts: lines over the last five minutes, drawn as SVG, with the changes of settings marked where they
 * were made. Nothing here reads or keeps anything; `draw` is called with what to draw.
 *
 * @typedef {{sampled_at_ms: number, bytes_in_per_second: number, bytes_out_per_second: number,
 *   requests_per_second: number, network_idle_ratio: number, network_idle_ratios: number[], io_idle_ratio: number,
 *   io_idle_ratios: number[], queue_depth: number, queue_capacity: number, connections: number,
 *   event_loop_busy_ratio: number, compaction_busy_ratio: number, sync_busy_ratio: number,
 *   sync_threads_busy_ratio: number, syncs_waiting: number}} Sample
 * @typedef {{sequence: number, changed_at_ms: number, key: string, old: string | null, new: string | null,
 *   changed_by: string}} Change
 * @typedef {{pick: (sample: Sample) => number | undefined, style: string, area?: boolean}} Line
 * @typedef {{lines: (samples: Sample[]) => Line[], top: (samples: Sample[]) => number, ticks: (top: number) => number[],
 *   tick: (value: number) => string, knob?: string, bound?: (sample: Sample) => number, read: (sample: Sample) => string}} Chart
 */

export const WINDOW_MS = 300_000; // what a chart shows
const GAP_MS = 3_500; // samples further apart than this are not joined: what was between them is not known
const MARGIN = { top: 14, right: 4, bottom: 18, left: 46 };
const LABEL_WIDTH = 90; // pixels that a change written over a chart may take
const NARROW_WIDTH = 300; // below it, the label of four minutes would run into that of five
const SVG = "http://www.w3.org/2000/svg";

/** @param {number} value */
const percent = (value) => `${Math.round(100 * value)}\u00a0%`;

/** @param {number} value */
const short = (value) => {
  const whole = Math.round(value);
  if (value >= 1e6) return `${(value / 1e6).toFixed(value < 1e7 ? 1 : 0)} M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(0)} k`;
  if (value >= 1e3) return `${Math.floor(whole / 1e3)}\u202f${String(whole % 1e3).padStart(3, "0")}`;
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
  return bytes === 0 ? "0" : `${short(bytes / size)}\u00a0${letter}iB`;
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
      return `<strong>${percent(sample[`${pool}_idle_ratio`])}</strong> <span>idle<span class="least"> · least ${percent(low)}</span></span>`;
    },
  };
}

/** @type {Record<string, Chart>} */
export const CHARTS = {
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
  cleaner: {
    knob: "log.cleaner.threads",
    lines: () => [{ pick: (sample) => sample.compaction_busy_ratio, style: "line first", area: true }],
    top: () => 1,
    ticks: halves,
    tick: percent,
    read: (sample) => `<strong>${percent(sample.compaction_busy_ratio)}</strong> <span>compacting</span>`,
  },
  syncs: {
    lines: () => [
      { pick: (sample) => sample.sync_busy_ratio, style: "line first", area: true },
      { pick: (sample) => sample.sync_threads_busy_ratio, style: "line second" },
    ],
    top: () => 1,
    ticks: halves,
    tick: percent,
    read: (sample) => `<strong>${percent(sample.sync_busy_ratio)}</strong> <span>all busy · ${short(sample.syncs_waiting)} waiting</span>`,
  },
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
    // "M" lifts the pen over a gap: a straight line would claim values that were not measured.
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

/** @typedef {{x: (ms: number) => number, y: (value: number) => number, width: number, height: number, base: number,
 *   end: number, top: number}} Frame the chart's scales: `base` is where zero is, `end` the time at the right edge */

/** Draw `chart` into `plot`. @param {Element} plot @param {Chart} chart @param {Sample[]} shown the samples, oldest first
 * @param {Change[]} changes oldest first @param {number | null} cursorMs the time under the pointer */
export function draw(plot, chart, shown, changes, cursorMs) {
  const { clientWidth: width, clientHeight: height } = plot;
  const end = shown.length ? shown[shown.length - 1].sampled_at_ms : Date.now();
  const top = chart.top(shown);
  const base = height - MARGIN.bottom;
  /** @type {Frame} */
  const frame = {
    width, height, base, end, top,
    x: (ms) => MARGIN.left + ((ms - end + WINDOW_MS) / WINDOW_MS) * (width - MARGIN.left - MARGIN.right),
    y: (value) => base - (Math.min(value, top) / top) * (base - MARGIN.top),
  };
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  picture.append(...axes(chart, frame), ...paths(chart, shown, frame), ...markers(chart, changes, frame));
  if (cursorMs !== null && cursorMs >= end - WINDOW_MS) {
    const at = frame.x(cursorMs);
    picture.append(svg("line", { class: "cursor", x1: at, x2: at, y1: MARGIN.top, y2: base }));
  }
  // The whole picture is replaced once a second. Twenty paths of 300 points take a browser about a millisecond, and
  // nothing in it can be focused or selected.
  plot.replaceChildren(picture);
}

/** Grid, values and minutes. @param {Chart} chart @param {Frame} frame */
function axes(chart, { x, y, width, height, end, top }) {
  const elements = chart.ticks(top).flatMap((value) => [
    svg("line", { class: value === 0 ? "axis" : "gridline", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }),
    svg("text", { x: MARGIN.left - 6, y: y(value) + 3.5, "text-anchor": "end" }, chart.tick(value)),
  ]);
  for (let minutes = 5; minutes >= 0; minutes--) {
    if (minutes === 4 && width < NARROW_WIDTH) continue;
    const anchor = minutes === 5 ? "start" : minutes === 0 ? "end" : "middle";
    const label = minutes === 0 ? "now" : minutes === 5 ? "−5 min" : `−${minutes}`;
    elements.push(svg("text", { x: x(end - minutes * 60_000), y: height - 4, "text-anchor": anchor }, label));
  }
  return elements;
}

/** The chart's lines, their areas, and its bound. @param {Chart} chart @param {Sample[]} shown @param {Frame} frame */
function paths(chart, shown, { x, y, base, top }) {
  const elements = chart.lines(shown).flatMap((line) => {
    const path = linePath(shown, line.pick, x, y);
    const drawn = svg("path", { class: line.style, d: path });
    return line.area ? [svg("path", { class: line.style.replace("line", "area"), d: areaPath(path, base) }), drawn] : [drawn];
  });
  const { bound } = chart;
  if (bound) {
    // A bound above the top would lie on the upper edge, and look as if it were that value.
    const path = linePath(shown, (sample) => (bound(sample) <= top ? bound(sample) : undefined), x, y);
    if (path) elements.push(svg("path", { class: "bound", d: path }));
  }
  return elements;
}

/** The changes of settings. @param {Chart} chart @param {Change[]} changes @param {Frame} frame */
function markers(chart, changes, { x, base, width, end }) {
  // The broker's clock may be set back, which puts a change after the newest sample; it is drawn at the edge.
  const recent = changes.filter((one) => one.changed_at_ms > end - WINDOW_MS && one.changed_at_ms <= end + GAP_MS);
  let labelledFrom = Infinity;
  // Newest first: where labels would run into each other, the newest is the one to be read.
  return recent.reverse().map((change) => {
    const at = x(Math.min(change.changed_at_ms, end));
    const isLabelled = change.key === chart.knob && at + LABEL_WIDTH < labelledFrom;
    if (isLabelled) labelledFrom = at;
    return marker(change, chart, at, base, width, isLabelled);
  });
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

/** The time that a pointer over `plot` points at. @param {Element} plot @param {number} clientX
 * @param {number} end the time at the right edge */
export function timeAt(plot, clientX, end) {
  const box = plot.getBoundingClientRect();
  const share = (clientX - box.left - MARGIN.left) / (box.width - MARGIN.left - MARGIN.right);
  return end - WINDOW_MS + Math.min(1, Math.max(0, share)) * WINDOW_MS;
}
