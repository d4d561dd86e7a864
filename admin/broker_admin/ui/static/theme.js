// @ts-check
/**
 * The colours: the system's, light or dark, as was chosen last. The one script that is no module, because it has to run
 * before the first paint; what it defines stays inside the function.
 */
(() => {
  const STORE = "trio-broker theme";
  const root = document.documentElement;
  root.classList.add("scripted");

  /** @returns {string} */
  const chosen = () => {
    try {
      return localStorage.getItem(STORE) ?? "system";
    } catch {
      return "system"; // storage is switched off
    }
  };

  /** @param {string} theme */
  const show = (theme) => {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
    for (const button of document.querySelectorAll("[data-theme-choice]")) {
      button.setAttribute("aria-pressed", String(button.getAttribute("data-theme-choice") === theme));
    }
  };

  show(chosen());
  document.addEventListener("DOMContentLoaded", () => {
    show(chosen());
    for (const button of document.querySelectorAll("[data-theme-choice]")) {
      button.addEventListener("click", () => {
        const theme = button.getAttribute("data-theme-choice") ?? "system";
        try {
          localStorage.setItem(STORE, theme);
        } catch {
          // It lasts as long as the page then.
        }
        show(theme);
      });
    }
  });
  addEventListener("storage", (event) => event.key === STORE && show(chosen())); // chosen in another tab
})();
