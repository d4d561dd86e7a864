// @ts-check
/**
 * What each chart of the pages shows: its lines, its scale, and its reading in words.
 *
 * @typedef {import("./charts.js").Sample} Sample
 * @typedef {import("./charts.js").Chart} Chart
 */

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

/** A pool's idle ratio: the workers thin, their mean on top. @param {"network" | "io"} pool @param {string} tunable @returns {Chart} */
function idleChart(pool, tunable) {
  /** @param {Sample} sample */
  const ratios = (sample) => sample[`${pool}_idle_ratios`];
  return {
    tunable,
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

/** The idle ratio of the handlers, and how often a sync found a thread: the same threads do both. @returns {Chart} */
function freeChart() {
  const handlers = idleChart("io", "num.io.threads");
  const free = (/** @type {Sample} */ sample) => 1 - sample.sync_busy_ratio;
  return {
    ...handlers,
    lines: (shown) => [...handlers.lines(shown), { pick: free, style: "line second" }],
    read: (sample) =>
      `<span><i class="swatch first"></i>handlers <strong>${percent(sample.io_idle_ratio)}</strong> idle</span> ` +
      `<span><i class="swatch second"></i>for syncs <strong>${percent(free(sample))}</strong> free</span>`,
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
      `<span><i class="swatch first"></i>in ${byteRate(sample.bytes_in_per_second)}</span> ` +
      `<span><i class="swatch second"></i>out ${byteRate(sample.bytes_out_per_second)}</span>`,
  },
  records: {
    lines: () => [{ pick: (sample) => sample.records_in_per_second, style: "line first", area: true }],
    top: topOf((sample) => sample.records_in_per_second),
    ticks: halves,
    tick: short,
    read: (sample) => `<strong>${short(Math.round(sample.records_in_per_second))}</strong> per second`,
  },
  p99: {
    // 0 stands for a second without such a request.
    lines: () => [
      { pick: (sample) => sample.produce_p99_ms || undefined, style: "line first" },
      { pick: (sample) => sample.fetch_p99_ms || undefined, style: "line second" },
    ],
    top: topOf((sample) => Math.max(sample.produce_p99_ms, sample.fetch_p99_ms)),
    ticks: halves,
    tick: (value) => `${short(value)}\u00a0ms`,
    read: (sample) => `${short(sample.produce_p99_ms)} and ${short(sample.fetch_p99_ms)} ms`,
  },
  requests: {
    lines: () => [{ pick: (sample) => sample.requests_per_second, style: "line first", area: true }],
    top: topOf((sample) => sample.requests_per_second),
    ticks: halves,
    tick: short,
    read: (sample) => `<strong>${short(Math.round(sample.requests_per_second))}</strong> per second`,
  },
  loop: {
    lines: () => [
      { pick: (sample) => sample.event_loop_busy_ratio, style: "line first", area: true },
      { pick: (sample) => sample.event_loop_cpu_ratio, style: "line second" },
    ],
    top: () => 1,
    ticks: halves,
    tick: percent,
    read: (sample) =>
      `<strong>${percent(sample.event_loop_busy_ratio)}</strong> busy <span>· ${percent(sample.event_loop_cpu_ratio)} on a CPU</span>`,
  },
  network: idleChart("network", "num.network.threads"),
  io: freeChart(),
  cleaner: {
    tunable: "log.cleaner.threads",
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
    tunable: "queued.max.requests",
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
