// @ts-check
/** Times in the reader's own zone, which the server does not know: it writes them in UTC, with `data-at-ms`. */

/** @type {Intl.DateTimeFormatOptions} */
const TO_THE_MINUTE = { hour: "2-digit", minute: "2-digit" };
/** @type {Intl.DateTimeFormatOptions} */
const TO_THE_SECOND = { ...TO_THE_MINUTE, second: "2-digit" };
/** @type {Intl.DateTimeFormatOptions} */
const TO_THE_MILLISECOND = { ...TO_THE_SECOND, fractionalSecondDigits: 3 };
const ZONE = new Intl.DateTimeFormat().resolvedOptions().timeZone; // by name: its offset changes with the season

/** Write the times of the page, and the zone where it is named. */
export function showLocalTimes() {
  for (const place of document.querySelectorAll("[data-at-ms]")) {
    const at = new Date(Number(place.getAttribute("data-at-ms")));
    if (Number.isNaN(at.getTime())) continue; // beyond the calendar
    place.setAttribute("title", at.toISOString());
    const parts = place.hasAttribute("data-to-the-minute") ? TO_THE_MINUTE : TO_THE_SECOND;
    place.textContent = localTime(at, place.hasAttribute("data-to-the-ms") ? TO_THE_MILLISECOND : parts);
  }
  for (const place of document.querySelectorAll("[data-zone]")) place.textContent = ZONE;
}

/** A time, with the date where it is not today, and the year where it is not this one. @param {Date} at @param {Intl.DateTimeFormatOptions} [time] */
export function localTime(at, time = TO_THE_SECOND) {
  const now = new Date();
  if (at.toDateString() === now.toDateString()) return at.toLocaleString([], time);
  const year = at.getFullYear() === now.getFullYear() ? undefined : "numeric";
  return at.toLocaleString([], { day: "numeric", month: "short", year, ...time });
}
