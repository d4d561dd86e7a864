// @ts-check
/** One line at the lower edge that says what came of an action, and goes by itself; and the buttons that copy. */

const TOAST_MS = 8_000; // long enough to read a line and to reach its link

/** @param {string} text @param {{kind?: "good" | "bad", address?: string, link?: string}} [more] */
export function toast(text, { kind = "good", address = "", link = "" } = {}) {
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
