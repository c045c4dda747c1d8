// Names for what the theme leaves without one, and stops of the tab key: for what scrolls, and a button for the menu.
(() => {
  const label = (selector, text) => document.querySelectorAll(selector).forEach((each, number) => {
    if (!each.hasAttribute("aria-label")) each.setAttribute("aria-label", text(each, number));
  });
  const name = () => {
    label(".md-search", () => "Search");
    label(".md-code__nav", (each, number) => `Code block ${number + 1}`);
    label(".md-nav[aria-labelledby]", (each) => {
      const labelled = document.getElementById(each.getAttribute("aria-labelledby"));
      each.removeAttribute("aria-labelledby");
      return `Pages: ${labelled ? labelled.textContent.trim() : "more"}`;
    });
    document.querySelectorAll("pre > code, .md-typeset__scrollwrap, .notebook-output").forEach((each) => {
      if (each.scrollWidth > each.clientWidth) each.tabIndex = 0;
    });
  };
  document.querySelectorAll("label.md-header__button[for='__drawer']").forEach((old) => {
    const button = document.createElement("button");
    button.innerHTML = old.innerHTML;
    button.className = old.className;
    button.setAttribute("for", "__drawer");  // by which the theme shows it on narrow windows
    button.setAttribute("aria-label", "Menu");
    button.addEventListener("click", () => document.getElementById("__drawer").click());
    old.replaceWith(button);
  });
  document.querySelectorAll(".md-search__scrollwrap").forEach((each) => { each.tabIndex = -1; });  // its results are links
  addEventListener("load", name);
  addEventListener("resize", name);
  new MutationObserver(name).observe(document.body, {childList: true, subtree: true});
})();
