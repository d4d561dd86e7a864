// @ts-check
/** JSON as a tree of `<details>`: the first levels open, long lists in parts, everything as text and never as markup. */

const OPEN_LEVELS = 2; // deeper objects and lists are closed at first
const SHOWN_ITEMS = 100; // of a list or an object, until the rest is asked for

/** What a filter would write for a place. @param {string} path @param {string | number} name */
function placeOf(path, name) {
  if (typeof name === "number") return `${path}[${name}]`;
  return /^[A-Za-z_]\w*$/.test(name) ? `${path}.${name}` : `${path}[${JSON.stringify(name)}]`;
}

/** Characters that are seen as nothing, or turn the direction of writing, as escapes. @param {string} text */
export function visible(text) {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/gu, (each) => `\\u{${(each.codePointAt(0) ?? 0).toString(16)}}`);
}

/** @param {string} kind @param {string} text */
function span(kind, text) {
  const element = document.createElement("span");
  element.className = kind;
  element.textContent = text;
  return element;
}

/** @param {any} value @param {string} path @param {number} level @param {HTMLElement} name */
function node(value, path, level, name) {
  if (value === null || typeof value !== "object") {
    const line = document.createElement("div");
    const isText = typeof value === "string";
    line.append(name, span(isText ? "text" : "plain", isText ? `"${visible(value)}"` : String(value)));
    line.title = path;
    return line;
  }
  const isList = Array.isArray(value);
  const count = isList ? value.length : Object.keys(value).length;
  const details = document.createElement("details");
  const summary = document.createElement("summary");
  summary.append(name, isList ? `[${count}]` : `{${count}}`);
  summary.title = path;
  details.append(summary);
  let isFilled = false;
  const fill = () => {
    if (isFilled) return;
    isFilled = true;
    add(details, value, path, level, 0);
  };
  details.addEventListener("toggle", fill);
  if (level < OPEN_LEVELS) {
    fill();
    details.open = true;
  }
  return details;
}

/** @param {HTMLElement} place @param {any} value @param {string} path @param {number} level @param {number} from */
function add(place, value, path, level, from) {
  /** @type {[string | number, any][]} */
  const all = Array.isArray(value) ? value.map((each, index) => [index, each]) : Object.entries(value);
  for (const [name, each] of all.slice(from, from + SHOWN_ITEMS)) {
    place.append(node(each, placeOf(path, name), level + 1, span("name", `${visible(String(name))}: `)));
  }
  const left = all.length - from - SHOWN_ITEMS;
  if (left <= 0) return;
  const more = document.createElement("button");
  more.type = "button";
  more.textContent = `${left} more`;
  more.addEventListener("click", () => {
    more.remove();
    add(place, value, path, level, from + SHOWN_ITEMS);
  });
  place.append(more);
}

/** Show the JSON texts below `place` as trees. @param {ParentNode} place */
export function growTrees(place) {
  for (const block of place.querySelectorAll("pre[data-json]")) {
    let value;
    try {
      value = JSON.parse(block.textContent ?? "");
    } catch {
      continue; // with an escape that is none of JSON's; it stays text
    }
    const tree = document.createElement("div");
    tree.className = "tree";
    const part = block.closest(".part")?.querySelector("h3")?.firstChild?.textContent?.trim().toLowerCase();
    tree.append(node(value, part ?? "value", 0, span("name", "")));
    const raw = document.createElement("details");
    const summary = document.createElement("summary");
    summary.textContent = "Text";
    raw.append(summary);
    block.replaceWith(tree, raw);
    raw.append(block);
    block.removeAttribute("data-json");
  }
}
