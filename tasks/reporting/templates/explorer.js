"use strict";
(() => {
  const CELL = 4500, MOST_FOUND = 100, MOST_UNFOLDED = 40;
  const at = (id) => document.getElementById(id);
  const said = JSON.parse(at("data").textContent);
  const nodes = [{ id: 0, parent: null, level: -1, name: "All insights", children: [], size: null }];
  for (const [parent, level, name, text, keywords, size, noise, notes] of said.rows)
    nodes.push({ id: nodes.length, parent, level, name: name.trim() ? name : "(no name)", text, keywords, size, noise, notes, children: [] });
  for (const node of nodes.slice(1)) nodes[node.parent].children.push(node);
  if (nodes.length === 1) return;

  const bySize = (a, b) => (b.size ?? 0) - (a.size ?? 0) || a.id - b.id;
  for (const node of nodes) node.children.sort(bySize);
  const [topic, group] = said.nouns;
  const figure = (size) => (said.margins ? Math.max(0, size) : size).toLocaleString("en").replace("-", "\u2212");
  const units = (node) => node.size === null ? "size not measured"
    : said.margins ? `${figure(node.size)} \u00b1${node.noise} units`
    : `${said.noisy ? "about " : ""}${figure(node.size)} ${node.size === 1 ? "unit" : "units"}`;
  const above = (node) => { const path = []; for (let id = node.parent; id; id = nodes[id].parent) path.unshift(nodes[id]); return path; };

  /** An element with attributes and content; text is always text. */
  const make = (tag, attributes = {}, ...content) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...content);
    return made;
  };

  let chosen = null, place = nodes[0], drawnAt = 0;

  // --- details -------------------------------------------------------------------------------------------------

  function show(node) {
    chosen = node;
    const body = [make("h3", { dir: "auto" }, node.name), make("p", { class: "soft small" }, sizeLine(node))];
    if (node.text.trim()) body.push(make("p", { dir: "auto" }, node.text));
    if (node.keywords.length)
      body.push(make("p", { class: "small soft" }, node.notes.length && !said.margins ? "Keywords, and how many chose them" : "Keywords"),
        make("ul", { class: "words" }, ...node.keywords.map((word, number) => node.notes[number]
          ? make("li", {}, make("span", { dir: "auto" }, word), make("span", { class: "soft" }, `: ${node.notes[number]}`))
          : make("li", { dir: "auto" }, word))));
    if (node.children.length)
      body.push(make("p", { class: "small soft" }, `Contains ${count(node.children.length, topic)}`),
        make("ul", { class: "members" }, ...node.children.slice(0, MOST_FOUND).map((child) => {
          const button = make("button", { type: "button" }, make("span", { dir: "auto" }, child.name), ` (${units(child)})`);
          button.addEventListener("click", () => choose(child));
          return make("li", {}, button);
        })));
    at("detail-kind").textContent = ((word) => word[0].toUpperCase() + word.slice(1))(node.level ? group : topic);
    at("detail-body").replaceChildren(...body);
    at("detail-body").scrollTop = 0;
    showing(true);
  }

  const nothing = [...at("detail-body").childNodes];

  function showing(something) {
    at("detail").classList.toggle("empty", !something);
    at("close").hidden = !something;
    document.documentElement.classList.toggle("showing", something);
  }

  function sizeLine(node) {
    const where = above(node).map((one) => one.name).join(" \u203a ");
    const noise = said.margins ? "; margin of error 95 %, of the noise alone" : node.noise ? `; the noise has a standard deviation of ${node.noise}` : "";
    const below = said.noisy && node.size !== null && node.size <= 0 ? "; few units, or none" : "";
    return `${units(node)}${noise}${below}${where ? `. In ${where}` : ""}`;
  }

  const count = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;

  function close() {
    const from = chosen;
    chosen = null;
    at("detail-kind").textContent = "Details";
    at("detail-body").replaceChildren(...nothing);
    showing(false);
    for (const item of at("tree").querySelectorAll("[aria-selected=true]")) item.setAttribute("aria-selected", "false");
    for (const cell of at("map").querySelectorAll("[aria-current]")) cell.removeAttribute("aria-current");
    if (from && at("results").hidden) reveal(from).focus();
    else at("query").focus();
  }

  /** Show a node everywhere: details, tree and map. */
  function choose(node, zoom = node.children.length > 0) {
    show(node);
    mark(reveal(node));
    if (zoom) open(items.get(node.id), true);
    draw(zoom ? node : nodes[node.parent ?? 0]);
  }

  // --- tree ----------------------------------------------------------------------------------------------------

  const items = new Map();

  function item(node, position, siblings) {
    const largest = Math.max(1, siblings[0].size ?? 0);
    const share = Math.max(0, node.size ?? 0) / largest;
    const inside = make("span");
    inside.style.width = `${(100 * share).toFixed(1)}%`;
    const row = make("div", { class: "row" },
      make("span", { class: "twist", "aria-hidden": "true" }, node.children.length ? "\u25b8" : ""),
      make("span", { class: "name", dir: "auto" }, node.name),
      make("span", { class: "size" }, node.size === null ? "" : said.margins ? `${figure(node.size)} \u00b1${node.noise}` : figure(node.size)),
      make("span", { class: "bar", "aria-hidden": "true" }, inside));
    const made = make("li", {
      role: "treeitem", tabindex: "-1", "aria-level": String(above(node).length + 1), "aria-posinset": String(position + 1),
      "aria-setsize": String(siblings.length), "aria-selected": "false", "aria-label": `${node.name}, ${units(node)}`,
    }, row);
    if (node.children.length) made.setAttribute("aria-expanded", "false");
    made.dataset.id = node.id;
    items.set(node.id, made);
    return made;
  }

  function fill(list, siblings) {
    list.append(...siblings.map((node, position) => item(node, position, siblings)));
  }

  function open(element, wanted) {
    const node = nodes[element.dataset.id];
    if (!node.children.length) return;
    element.setAttribute("aria-expanded", String(wanted));
    element.querySelector(".twist").textContent = wanted ? "\u25be" : "\u25b8";
    let list = element.querySelector(":scope > ul");
    if (wanted && !list) {
      list = make("ul", { role: "group" });
      fill(list, node.children);
      element.append(list);
    }
    if (!list) return;
    if (!wanted && list.contains(document.activeElement)) focusItem(element);
    list.hidden = !wanted;
  }

  /** The item of a node, with all above it unfolded. */
  function reveal(node) {
    for (const one of above(node)) open(items.get(one.id), true);
    return items.get(node.id);
  }

  function mark(element) {
    for (const other of at("tree").querySelectorAll("[aria-selected=true]")) other.setAttribute("aria-selected", "false");
    element.setAttribute("aria-selected", "true");
    hold(element);
    const row = element.firstChild.getBoundingClientRect(), tree = at("tree").getBoundingClientRect();
    if (row.top < tree.top) at("tree").scrollTop -= tree.top - row.top + 8;
    else if (row.bottom > tree.bottom) at("tree").scrollTop += row.bottom - tree.bottom + 8;
  }

  let held = null;
  /** One item of the tree is a stop of the tab key. */
  function hold(element) {
    if (held) held.tabIndex = -1;
    held = element;
    held.tabIndex = 0;
  }

  function focusItem(element) {
    if (!element) return;
    hold(element);
    element.focus({ preventScroll: true });
    element.firstChild.scrollIntoView({ block: "nearest" });
  }

  const isOpen = (element) => element.getAttribute("aria-expanded") === "true";
  const parentItem = (element) => element.parentElement.closest("[role=treeitem]");
  const lastInside = (element) => isOpen(element) ? lastInside(element.querySelector(":scope > ul").lastElementChild) : element;

  function following(element) {
    if (isOpen(element)) return element.querySelector(":scope > ul").firstElementChild;
    for (let one = element; one; one = parentItem(one)) if (one.nextElementSibling) return one.nextElementSibling;
    return null;
  }

  const preceding = (element) => element.previousElementSibling ? lastInside(element.previousElementSibling) : parentItem(element);

  function startingWith(element, sign) {
    const fits = (one) => nodes[one.dataset.id].name.toLowerCase().startsWith(sign);
    for (let one = following(element); one; one = following(one)) if (fits(one)) return one;
    for (let one = at("tree").firstElementChild; one && one !== element; one = following(one)) if (fits(one)) return one;
    return null;
  }

  const TREE_KEYS = {
    ArrowDown: (one) => focusItem(following(one)),
    ArrowUp: (one) => focusItem(preceding(one)),
    ArrowRight: (one) => isOpen(one) ? focusItem(following(one)) : open(one, true),
    ArrowLeft: (one) => isOpen(one) ? open(one, false) : focusItem(parentItem(one)),
    Home: () => focusItem(at("tree").firstElementChild),
    End: () => focusItem(lastInside(at("tree").lastElementChild)),
    Enter: (one) => choose(nodes[one.dataset.id]),
    " ": (one) => choose(nodes[one.dataset.id]),
    "*": (one) => { for (const other of one.parentElement.children) open(other, true); },
  };

  at("tree").addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const one = event.target.closest("[role=treeitem]");
    const action = TREE_KEYS[event.key];
    if (action) action(one);
    else if (event.key.length === 1) focusItem(startingWith(one, event.key.toLowerCase()));
    else return;
    event.preventDefault();
  });

  at("tree").addEventListener("click", (event) => {
    const one = event.target.closest("[role=treeitem]");
    if (!one) return;
    const node = nodes[one.dataset.id];
    if (event.target.classList.contains("twist")) { open(one, !isOpen(one)); focusItem(one); return; }
    const fold = isOpen(one) && chosen === node;
    choose(node);
    if (fold) open(one, false);
    focusItem(one);
  });

  // --- map -----------------------------------------------------------------------------------------------------

  /** Squarified rows (Bruls, Huizing and van Wijk, 2000): [left, top, width, height] for each area, in their order. */
  function squarified(areas, width, height) {
    const found = [];
    let left = 0, top = 0, row = [];
    const worst = (sizes, side) => {
      const sum = sizes.reduce((a, b) => a + b, 0);
      return Math.max(...sizes.map((one) => Math.max((side * side * one) / (sum * sum), (sum * sum) / (side * side * one))));
    };
    const lay = () => {
      const sum = row.reduce((a, b) => a + b, 0), tall = width >= height, thick = sum / (tall ? height : width);
      let along = 0;
      for (const one of row) {
        const long = one / thick;
        found.push(tall ? [left, top + along, thick, long] : [left + along, top, long, thick]);
        along += long;
      }
      if (tall) { left += thick; width -= thick; } else { top += thick; height -= thick; }
      row = [];
    };
    for (const area of areas) {
      const side = Math.min(width, height);
      if (row.length && worst([...row, area], side) > worst(row, side)) lay();
      row.push(area);
    }
    if (row.length) lay();
    return found;
  }

  function draw(node) {
    place = node;
    const drawn = node.children.filter((one) => one.size > 0), map = at("map");
    const focused = map.contains(document.activeElement);
    map.hidden = !drawn.length;
    trail(node);
    const width = map.clientWidth, height = map.clientHeight;
    drawnAt = width;
    const shown = drawn.slice(0, Math.max(12, Math.floor(width * height / CELL)));
    at("map-note").textContent = note(node, drawn, shown);
    if (!width) return;
    const total = shown.reduce((sum, one) => sum + one.size, 0);
    const boxes = squarified(shown.map((one) => (one.size / total) * width * height), width, height);
    map.replaceChildren(...boxes.map(([left, top, wide, high], number) => {
      const made = cell(shown[number]);
      Object.assign(made.style, { left: `${left}px`, top: `${top}px`, width: `${wide}px`, height: `${high}px` });
      if (wide < 40 || high < 20) made.classList.add("tiny");
      else if (wide < 90 || high < 44) made.classList.add("small");
      if (high < 36) made.classList.add("line");
      if (wide < 110 || high < 70) made.classList.add("full");
      return made;
    }));
    const full = [...map.children].filter((one) => one.scrollHeight > one.clientHeight);
    for (const one of full) one.classList.add("full");
    map.setAttribute("aria-label", `Map of ${node.name}: ${count(drawn.length, topic)} by size`);
    const current = map.querySelector("[aria-current]") ?? map.querySelector("button");
    if (current) current.tabIndex = 0;
    if (focused && current) current.focus();
  }

  function note(node, drawn, shown) {
    const missing = node.children.filter((one) => one.size !== null && one.size <= 0).length;
    const unknown = node.children.length - drawn.length - missing;
    const parts = [];
    if (shown.length < drawn.length) parts.push(`The ${shown.length} largest of ${drawn.length.toLocaleString("en")} are drawn.`);
    if (missing) parts.push(`Not drawn: ${count(missing, topic)} with a noisy size of zero or below.`);
    if (unknown) parts.push(`Not drawn: ${count(unknown, topic)} whose size was not measured.`);
    return parts.join(" ");
  }

  function cell(node) {
    const inside = node.children.length ? `, ${count(node.children.length, topic)} inside` : "";
    const made = make("button", {
      type: "button", tabindex: "-1", class: node.children.length ? "cell group" : "cell",
      "aria-label": `${node.name}, ${units(node)}${inside}`, title: `${node.name}, ${units(node)}${inside}`,
    }, make("span", { class: "name", dir: "auto" }, node.name),
      make("span", { class: "size" }, `${figure(node.size)}${node.children.length ? ` \u00b7 ${count(node.children.length, topic)}` : ""}`),
      make("span", { class: "about", dir: "auto" }, node.keywords.slice(0, 8).join(" \u00b7 ")));
    if (node === chosen) made.setAttribute("aria-current", "true");
    made.addEventListener("click", () => choose(node));
    return made;
  }

  function trail(node) {
    const path = node.id ? [nodes[0], ...above(node)] : [];
    const steps = path.flatMap((one) => {
      const button = make("button", { type: "button", dir: "auto" }, one.name);
      button.addEventListener("click", () => { if (one.id) choose(one); else draw(one); });
      return [button, " \u203a "];
    });
    at("path").replaceChildren(...steps, make("span", { class: "here", dir: "auto", "aria-current": "location" }, node.name));
  }

  const SIDES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

  function beside(from, [x, y]) {
    const middle = (one) => { const box = one.getBoundingClientRect(); return [box.left + box.width / 2, box.top + box.height / 2]; };
    const [a, b] = middle(from);
    let best = null, least = Infinity;
    for (const one of at("map").querySelectorAll("button")) {
      const [c, d] = middle(one), along = (c - a) * x + (d - b) * y, across = Math.abs((c - a) * y) + Math.abs((d - b) * x);
      if (one !== from && along > 1 && along + 2 * across < least) { best = one; least = along + 2 * across; }
    }
    return best;
  }

  at("map").addEventListener("keydown", (event) => {
    const from = event.target.closest("button"), cells = at("map").querySelectorAll("button");
    let to = null;
    if (event.key in SIDES) to = beside(from, SIDES[event.key]);
    else if (event.key === "Home") to = cells[0];
    else if (event.key === "End") to = cells[cells.length - 1];
    else if (event.key === "Escape" || event.key === "Backspace") draw(nodes[place.parent ?? 0]);
    else return;
    event.preventDefault();
    if (to) { for (const one of cells) one.tabIndex = -1; to.tabIndex = 0; to.focus(); }
  });

  // --- search --------------------------------------------------------------------------------------------------

  const folded = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  for (const node of nodes.slice(1)) {
    node.named = folded(node.name);
    node.words = folded([node.name, node.text, ...node.keywords].join("\n"));
  }

  function matches(query) {
    const wanted = folded(query).split(/\s+/).filter(Boolean);
    const named = (node) => wanted.every((word) => node.named.includes(word));
    return nodes.slice(1).filter((node) => wanted.every((word) => node.words.includes(word)))
      .sort((a, b) => named(b) - named(a) || bySize(a, b));
  }

  function highlighted(text, query) {
    const word = query.trim().toLowerCase(), start = text.toLowerCase().indexOf(word);
    if (start < 0 || !word || text.toLowerCase().length !== text.length) return [text];
    return [text.slice(0, start), make("mark", {}, text.slice(start, start + word.length)), text.slice(start + word.length)];
  }

  /** What was found of a node beyond its name: its keywords, or else its description. */
  function hit(node, query) {
    const wanted = folded(query).split(/\s+/).filter(Boolean);
    if (wanted.every((word) => node.named.includes(word))) return [];
    const words = node.keywords.filter((word) => wanted.some((one) => folded(word).includes(one))).join(", ") || node.text;
    return [make("span", { class: "hit", dir: "auto" }, ...highlighted(words.slice(0, 160), query))];
  }

  function search() {
    const query = at("query").value, empty = !folded(query).trim();
    at("tree").hidden = !empty;
    at("tree-keys").hidden = !empty;
    at("results").hidden = empty;
    document.documentElement.classList.toggle("searching", !empty);
    at("list-title").textContent = empty ? "Tree" : "Found";
    if (empty) { at("results").replaceChildren(); at("found").textContent = ""; return; }
    const found = matches(query);
    at("results").replaceChildren(...found.slice(0, MOST_FOUND).map((node) => {
      const path = above(node).map((one) => one.name).join(" \u203a ");
      const button = make("button", { type: "button" },
        make("span", { class: "name", dir: "auto" }, ...highlighted(node.name, query)),
        ...hit(node, query), make("span", { class: "where" }, `${units(node)}${path ? ` \u00b7 ${path}` : ""}`));
      button.addEventListener("click", () => choose(node));
      return make("li", {}, button);
    }));
    const first = found.length > MOST_FOUND ? `; the first ${MOST_FOUND} are listed` : "";
    at("found").textContent = `${found.length.toLocaleString("en")} of ${count(nodes.length - 1, "insight")} found${first}.`;
  }

  let waiting = 0;
  at("query").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(search, 120); });
  at("query").addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "Enter" && event.key !== "Escape") return;
    clearTimeout(waiting);
    if (event.key === "Escape") at("query").value = "";
    search();
    const first = at("results").querySelector("button");
    if (first && event.key === "ArrowDown") first.focus();
    if (first && event.key === "Enter") first.click();
    event.preventDefault();
  });
  at("results").addEventListener("keydown", (event) => {
    const line = event.target.closest("li");
    if (event.key === "ArrowDown") line.nextElementSibling?.firstChild.focus();
    else if (event.key === "ArrowUp") (line.previousElementSibling?.firstChild ?? at("query")).focus();
    else if (event.key === "Escape") { at("query").value = ""; search(); at("query").focus(); }
    else return;
    event.preventDefault();
  });

  // --- the page ------------------------------------------------------------------------------------------------

  at("close").addEventListener("click", close);
  at("detail").addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });
  document.documentElement.classList.add("js");
  at("app").hidden = false;
  fill(at("tree"), nodes[0].children);
  if (nodes.length <= MOST_UNFOLDED) for (const one of [...at("tree").children]) open(one, true);
  hold(at("tree").firstElementChild);
  const [first] = nodes[0].children;
  draw(nodes[0].children.length === 1 && first.children.length ? first : nodes[0]);
  new ResizeObserver(() => { if (at("map").clientWidth !== drawnAt) draw(place); }).observe(at("map"));
  addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("#all details")) one.open = true; });
})();
