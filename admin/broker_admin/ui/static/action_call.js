// @ts-check
/** The HTTP call that a form of `macros/dialog.html` makes, and the same as commands. Pure functions of the form. */

/** @typedef {HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement} Field */

/** @param {HTMLFormElement} form @returns {Field[]} those that are sent */
function fieldsOf(form) {
  return /** @type {Field[]} */ ([...form.elements]).filter((field) => field.name && !field.disabled && !("chooses" in field.dataset));
}

/** What a field stands for in JSON; undefined where it is left out. @param {Field} field */
function valueOf(field) {
  if (field instanceof HTMLInputElement && field.type === "radio" && !field.checked) return undefined;
  if (field instanceof HTMLInputElement && field.type === "checkbox") return field.checked;
  const text = field.value;
  if (text === "") return field.dataset.empty === "null" ? null : field.dataset.empty === "text" ? "" : undefined;
  switch (field.dataset.json) {
    case "number":
      return Number.isNaN(Number(text)) ? text : Number(text); // the server says best what is wrong with it
    case "boolean":
      return text === "true";
    case "lines":
      return text.split("\n").map((line) => line.trim()).filter(Boolean);
    case "partitions":
      return partitionsOf(text) ?? text;
    case "headers":
      return headersOf(text) ?? text;
    case "json":
      try {
        return JSON.parse(text);
      } catch {
        return text;
      }
    default:
      return text;
  }
}

const MAX_PARTITIONS = 10_000; // of one field: a range that says more is a slip

/** Partitions written as `0,2-5`; null if `text` is not of that form. @param {string} text */
export function partitionsOf(text) {
  /** @type {Set<number>} */
  const found = new Set();
  for (const part of text.split(",")) {
    const [, first, last = first] = /^\s*(\d+)(?:\s*-\s*(\d+))?\s*$/.exec(part) ?? [];
    if (first === undefined || Number(last) - Number(first) >= MAX_PARTITIONS) return null;
    for (let number = Number(first); number <= Number(last); number++) found.add(number);
  }
  return [...found];
}

/** Headers written as lines `key=value`, a `key` alone for null, or as the list that the API takes; null if `text` is neither.
 * @param {string} text */
function headersOf(text) {
  if (text.trimStart().startsWith("[")) {
    try {
      return JSON.parse(text);
    } catch {
      return null;
    }
  }
  const found = text.split("\n").filter((line) => line.trim()).map((line) => /^([^=]+)(?:=(.*))?$/.exec(line));
  return found.includes(null) ? null : found.map((each) => ({ key: each?.[1].trim(), value: each?.[2] ?? null }));
}

/** The form of fields that are no JSON, for who typed another one. @type {Record<string, string>} */
const FORMS = {
  partitions: "partitions are numbers and ranges, such as 0,2-5",
  headers: "headers are lines of key=value, such as trace=7; a key alone has the value null",
};

/** What is wrong with the form of a text, by field. @param {HTMLFormElement} form */
export function formErrors(form) {
  return fieldsOf(form)
    .filter((field) => (field.dataset.json ?? "") in FORMS && typeof valueOf(field) === "string")
    .map((field) => ({ pointer: `/${field.name}`, detail: FORMS[field.dataset.json ?? ""] }));
}

/** A record as a line of JSON that `trio-broker produce --json` reads. @param {any} body of the call that appends it */
function recordLine({ key, key_format, value, value_format, tombstone, headers, partition }) {
  /** @param {string} name @param {string | undefined} text @param {string} form */
  const part = (name, text, form) => (text === undefined ? {} : { [form === "base64" ? `${name}_base64` : name]: text });
  const valued = tombstone ? { value: null } : part("value", value, value_format);
  return JSON.stringify({ ...part("key", key, key_format), ...valued, headers, partition });
}

/** The body of the call, or null where it has none. @param {HTMLFormElement} form */
export function bodyOf(form) {
  const fields = fieldsOf(form).filter((field) => !field.name.startsWith("?"));
  if (!fields.length) return null;
  const body = {};
  for (const field of fields) {
    const value = valueOf(field);
    if (value === undefined) continue;
    const names = field.name.split("/");
    const last = names.pop() ?? "";
    /** @type {any} */
    let place = body;
    for (const name of names) place = place[name] ??= {};
    place[last] = value;
  }
  return body;
}

/** The query of the call. @param {HTMLFormElement} form */
export function queryOf(form) {
  const query = new URLSearchParams();
  for (const field of fieldsOf(form)) {
    const value = field.name.startsWith("?") ? valueOf(field) : undefined;
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== undefined && each !== null) query.append(field.name.slice(1), String(each));
    }
  }
  return query;
}

/** A word as a shell takes it. @param {string} text */
export function quoted(text) {
  return /^[\w.,:@%+=\/-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** @param {string} method @param {string} url @param {any} body */
export function curlOf(method, url, body) {
  const lines = [`curl -X ${method} ${quoted(url)}`, "-H 'X-Requested-With: curl'"];
  if (body !== null) lines.push("-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(body))}`);
  return lines.join(" \\\n  ");
}

/** A command with `{name}` replaced by what the field holds, or by its `data-command-text`, and `{*}` by the record that the
 * form describes; `[ … ]` goes where a field in it is empty.
 * @param {string} template @param {HTMLFormElement} form */
export function commandOf(template, form) {
  /** @param {string} name */
  const textOf = (name) => {
    if (name === "*") return recordLine(bodyOf(form));
    const value = fieldsOf(form)
      .filter((field) => field.name === name)
      .map((field) => field.dataset.commandText ?? valueOf(field))
      .find((each) => each !== undefined);
    return value === undefined || value === null ? "" : Array.isArray(value) ? value.join(",") : String(value);
  };
  /** @param {string} text */
  const filled = (text) => text.replace(/\{([^{}]+)\}/g, (_, name) => quoted(textOf(name)));
  const chosen = template.replace(/( ?)\[([^\[\]]*\{[^\[\]]*)\]/g, (_, space, part) => {
    const names = [...part.matchAll(/\{([^{}]+)\}/g)].map((found) => found[1]);
    return names.every((name) => textOf(name) !== "" && textOf(name) !== "false") ? `${space}${part}` : "";
  });
  return filled(chosen);
}
