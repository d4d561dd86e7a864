// @ts-check
/** One line at the lower edge that says what came of an action, and goes by itself; and the buttons that copy. */

const TOAST_MS = 8_000; // long enough to read a line and to reach its link

const NEXT = "trio-broker toast"; // where a line waits for the page that comes after this one

/** @param {string} text @param {{kind?: "good" | "bad", address?: string, link?: string}} [more]
 * @param {boolean} [isOfNextPage] whether this page is about to be left */
export function toast(text, more = {}, isOfNextPage = false) {
  if (!isOfNextPage) return show(text, more);
  try {
    sessionStorage.setItem(NEXT, JSON.stringify([text, more]));
  } catch {
    show(text, more); // storage is switched off: it is seen for as long as the page is
  }
}

/** @param {string} text @param {{kind?: "good" | "bad", address?: string, link?: string}} more */
function show(text, { kind = "good", address = "", link = "" }) {
  const place = /** @type {HTMLElement} */ (document.querySelector("[data-toasts]"));
  const line = document.createElement("p");
  line.dataset.kind = kind;
  line.append(text);
  if (address) {
    const anchor = document.createElement("a");
    anchor.href = address;
    anchor.textContent = link;
    line.append(" ", anchor);
  }
  place.replaceChildren(line);
  setTimeout(() => line.remove(), TOAST_MS);
}

try {
  const waiting = sessionStorage.getItem(NEXT);
  sessionStorage.removeItem(NEXT);
  if (waiting) show(...(/** @type {Parameters<typeof show>} */ (JSON.parse(waiting))));
} catch {
  // Storage is switched off, so nothing waits there.
}

document.addEventListener("click", async (event) => {
  const button = event.target instanceof Element ? event.target.closest("[data-copies], [data-copies-part]") : null;
  if (!button) return;
  const isPart = button.hasAttribute("data-copies-part"); // a record's key or value, which is the block below
  const source = isPart ? button.closest("section")?.querySelector("pre") : button.parentElement?.querySelector("code");
  try {
    await navigator.clipboard.writeText(source?.textContent ?? "");
    toast("Copied.");
  } catch {
    toast("This browser does not let the page copy; select the text instead.", { kind: "bad" });
  }
});
