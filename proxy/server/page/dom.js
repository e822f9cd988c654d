// Makes elements. Law: text becomes text nodes only, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An HTML element. A function among the attributes listens to the event of that name. */
export const el = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);

/** An SVG element. */
export const svg = (name, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, name), attributes, children);

/**
 * Replace what is in a container. The element with the focus, open details and scrolled regions stay as they were, if
 * the new content has elements with the same `data-key`.
 */
export function replace(container, ...nodes) {
  const active = document.activeElement;
  const key = container.contains(active) ? active.getAttribute("data-key") : null;
  const kept = [...container.querySelectorAll("[data-key]")].map((node) => [
    node.getAttribute("data-key"),
    node.open,
    node.scrollLeft,
  ]);
  container.replaceChildren(...nodes.flat(Infinity).filter(Boolean));
  const found = new Map([...container.querySelectorAll("[data-key]")].map((node) => [node.getAttribute("data-key"), node]));
  for (const [name, open, left] of kept) {
    const node = found.get(name);
    if (!node) continue;
    if (open !== undefined) node.open = open;
    if (left) node.scrollLeft = left;
  }
  const next = key === null ? null : found.get(key);
  next?.focus({ preventScroll: true });
  if (next && active.type === "search") next.setSelectionRange(active.selectionStart, active.selectionEnd);
}

const drawers = new WeakMap();
const widths = new Map();
const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) drawers.get(target)?.();
});

/** A box that `draw(width)` fills, at first and whenever its width changes. Boxes of one name have the same width. */
export function responsive(name, draw) {
  const box = el("div", { class: `drawing ${name}` });
  let drawn = widths.get(name) ?? 900;
  const redraw = () => {
    const width = Math.floor(box.clientWidth);
    if (!width || width === drawn) return;
    drawn = width;
    widths.set(name, width);
    replace(box, draw(width));
  };
  box.append(draw(drawn));
  drawers.set(box, redraw);
  sizes.observe(box);
  return box;
}

/** A table in a region that can be scrolled by keyboard if it is wider than the page. Cells may be nodes or texts. */
export function table(caption, heads, rows, { key = caption, hideCaption = false } = {}) {
  const cell = (value, index) => {
    const isNumber = heads[index].number;
    const tag = index === 0 ? "th" : "td";
    return el(tag, { class: isNumber ? "number" : heads[index].wide ? "wide" : null, scope: index === 0 ? "row" : null }, value);
  };
  const region = el(
    "div",
    { class: "scroll", "data-key": `scroll ${key}` },
    el(
      "table",
      {},
      el("caption", { class: hideCaption ? "unseen" : null }, caption),
      el(
        "thead",
        {},
        el("tr", {}, heads.map((head) =>
          el("th", { scope: "col", class: head.number ? "number" : null, title: head.title, "aria-sort": head.sorted },
            head.hidden ? el("span", { class: "unseen" }, head.text) : head.text))),
      ),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map(cell)))),
    ),
  );
  drawers.set(region, () => {
    const scrolls = region.scrollWidth > region.clientWidth + 1;
    for (const [name, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", `${caption}, can be scrolled`]]) {
      if (scrolls) region.setAttribute(name, value);
      else region.removeAttribute(name);
    }
  });
  sizes.observe(region);
  return region;
}

/** A headed part of a page. */
export const section = (title, ...children) => el("section", {}, el("h2", {}, title), ...children);
