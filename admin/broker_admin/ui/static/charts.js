// @ts-check
/**
 * The charts: lines over the last five minutes, drawn as SVG, with the changes of settings marked where they were made.
 * Nothing here reads or keeps anything; `draw` is called with what to draw.
 *
 * @typedef {{sampled_at_ms: number, bytes_in_per_second: number, bytes_out_per_second: number,
 *   records_in_per_second: number, produce_p99_ms: number, fetch_p99_ms: number, requests_per_second: number,
 *   network_idle_ratio: number, network_idle_ratios: number[], io_idle_ratio: number, io_idle_ratios: number[],
 *   queue_depth: number, queue_capacity: number, connections: number, event_loop_busy_ratio: number, event_loop_cpu_ratio: number,
 *   compaction_busy_ratio: number, sync_busy_ratio: number, sync_threads_busy_ratio: number, syncs_waiting: number}} Sample
 * @typedef {{sequence: number, changed_at_ms: number, key: string, old: string | null, new: string | null,
 *   changed_by: string}} Change
 * @typedef {{pick: (sample: Sample) => number | undefined, style: string, area?: boolean}} Line
 * @typedef {{lines: (samples: Sample[]) => Line[], top: (samples: Sample[]) => number, ticks: (top: number) => number[],
 *   tick: (value: number) => string, tunable?: string, bound?: (sample: Sample) => number, read: (sample: Sample) => string}} Chart
 */

export const WINDOW_MS = 300_000; // what a chart shows
const GAP_MS = 3_500; // samples further apart than this are not joined: what was between them is not known
const MARGIN = { top: 14, right: 4, bottom: 18, left: 46 };
const LABEL_WIDTH = 90; // pixels that a change written over a chart may take
const NARROW_WIDTH = 300; // below it, the label of four minutes would run into that of five
const SVG = "http://www.w3.org/2000/svg";

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
    const isLabelled = change.key === chart.tunable && at + LABEL_WIDTH < labelledFrom;
    if (isLabelled) labelledFrom = at;
    return marker(change, chart, at, base, width, isLabelled);
  });
}

/** A change as a dashed line; on the chart of its own tunable it is named. @param {Change} change @param {Chart} chart
 * @param {number} at @param {number} base @param {number} width @param {boolean} labelled */
function marker(change, chart, at, base, width, labelled) {
  const own = change.key === chart.tunable;
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
