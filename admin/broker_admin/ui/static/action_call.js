// @ts-check
/** The HTTP call that a form of `macros/dialog.html` makes, and the same as commands. Pure functions of the form. */

/** @typedef {HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement} Field */

/** @param {HTMLFormElement} form @returns {Field[]} those that are sent */
function fieldsOf(form) {
  return /** @type {Field[]} */ ([...form.elements]).filter((field) => field.name && !field.disabled);
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

/** A command with `{name}` replaced by what the field holds, or by its `data-twin-text`; `[ … ]` goes where a field in it is empty.
 * @param {string} template @param {HTMLFormElement} form */
export function twinOf(template, form) {
  /** @param {string} name */
  const textOf = (name) => {
    const value = fieldsOf(form)
      .filter((field) => field.name === name)
      .map((field) => field.dataset.twinText ?? valueOf(field))
      .find((each) => each !== undefined);
    return value === undefined || value === null ? "" : Array.isArray(value) ? value.join(",") : String(value);
  };
  /** @param {string} text */
  const filled = (text) => text.replace(/\{([^{}]+)\}/g, (_, name) => quoted(textOf(name)));
  const chosen = template.replace(/ ?\[([^\[\]]*\{[^\[\]]*)\]/g, (_, part) => {
    const names = [...part.matchAll(/\{([^{}]+)\}/g)].map((found) => found[1]);
    return names.every((name) => textOf(name) !== "" && textOf(name) !== "false") ? ` ${part}` : "";
  });
  return filled(chosen);
}
