// Draws pictures as SVG. Law: colours come from the style sheet; whatever a picture tells stands in a table, too.

import { el, responsive, svg } from "./dom.js";
import { change, exact, percent, short, tokens } from "./format.js";

const MARGIN = { top: 14, right: 12, bottom: 24, left: 52 };
const CHAR_WIDTH = 6.6; // of a text of the axes
const ALONE = 0.4; // of the place of a value, to both sides
const point = (value) => Math.round(value * 10) / 10;

/** Round steps from the least to the greatest value, 0 always among them. */
export function ticks(least, greatest, wanted = 4) {
  const span = greatest - least || 1;
  const raw = span / wanted;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = unit * [1, 2, 2.5, 5, 10].find((factor) => factor * unit >= raw * 0.999);
  const first = Math.floor(least / step + 1e-9);
  const last = Math.ceil(greatest / step - 1e-9);
  return Array.from({ length: last - first + 1 }, (_, index) => (first + index) * step);
}

/** The path of values along x; a null makes a gap. With `base` it is closed to an area above that y. A value that stands alone is a short line. */
export function path(values, x, y, base = null) {
  const runs = [[]];
  values.forEach((value, index) => {
    if (value === null || value === undefined) runs.push([]);
    else runs.at(-1).push([index, point(y(value))]);
  });
  return runs
    .filter((run) => run.length)
    .map((run) => (run.length === 1 ? [-ALONE, ALONE].map((aside) => [run[0][0] + aside, run[0][1]]) : run))
    .map((run) => run.map(([index, top]) => [point(x(index)), top]))
    .map((run) => {
      const line = run.map(([left, top]) => `${left} ${top}`).join("L");
      if (base !== null) return `M${run[0][0]} ${base}L${line}L${run.at(-1)[0]} ${base}Z`;
      return `M${line}`;
    })
    .join("");
}

/** Lines and numbers at the steps of the y axis. */
export const yAxis = (steps, y, left, right, write) =>
  steps.map((step) => [
    svg("path", { class: step === 0 ? "axis" : "grid", d: `M${left} ${point(y(step))}H${right}` }),
    svg("text", { x: left - 6, y: point(y(step)) + 4, class: "end" }, write(step)),
  ]);

/** Texts below the x axis, as many as have room. */
export function xAxis(number, x, y, write, least = 60) {
  // The first text begins at its place and the others are centred, so each needs half as much again.
  const room = Math.max(least, 1.5 * CHAR_WIDTH * Math.max(write(0).length, write(number - 1).length) + 8);
  const width = Math.abs(x(number - 1) - x(0)) || 1;
  const every = Math.max(1, Math.ceil(number / Math.max(1, Math.floor(width / room))));
  return Array.from({ length: Math.ceil(number / every) }, (_, index) => index * every).map((index) =>
    svg("text", { x: point(x(index)), y, class: index === 0 ? "start" : "middle" }, write(index)),
  );
}

/** A legend: pairs of a class of the style sheet and a text. */
export const legend = (items) =>
  el("ul", { class: "legend" }, items.map(([name, text, shape]) => el("li", {}, shape ?? swatch(name), text)));

const swatch = (name) =>
  svg(
    "svg",
    { viewBox: "0 0 14 10", width: 14, height: 10, "aria-hidden": "true" },
    name.startsWith("line")
      ? svg("path", { class: name, d: "M0 5H14" })
      : svg("rect", { class: name, width: 14, height: 10, rx: 2 }),
  );

/**
 * Values over time. series: [{name, text, kind: "area" | "line" | "bar", values}], in the order in which they are
 * drawn. at(index): the text of a moment. write: of a value. label: what the picture shows, in words.
 */
export function timeChart({ name, series, at, write, writeLong = write, label, height = 190 }) {
  const number = series[0].values.length;
  const readout = el("p", { class: "readout" }, "\u00a0");
  const all = series.flatMap((one) => one.values).filter((value) => value !== null);
  const steps = ticks(Math.min(0, ...all), Math.max(0, ...all) || 1);
  const read = (index) =>
    `${at(index)}: ${series.map((one) => `${one.text} ${writeLong(one.values[index])}`).join(", ")}`;
  const draw = (width) => {
    const right = width - MARGIN.right;
    const bottom = height - MARGIN.bottom;
    const slot = (right - MARGIN.left) / number;
    const x = (index) => MARGIN.left + slot * (index + 0.5);
    const y = (value) =>
      bottom - ((value - steps[0]) / (steps.at(-1) - steps[0])) * (bottom - MARGIN.top);
    const cursor = svg("path", { class: "cursor", d: "" });
    const follow = (event) => {
      const left = ((event.clientX - picture.getBoundingClientRect().left) * width) / picture.clientWidth;
      const index = Math.max(0, Math.min(number - 1, Math.floor((left - MARGIN.left) / slot)));
      cursor.setAttribute("d", `M${point(x(index))} ${MARGIN.top}V${bottom}`);
      readout.textContent = read(index);
    };
    const picture = svg(
      "svg",
      {
        viewBox: `0 0 ${width} ${height}`,
        width,
        height,
        role: "img",
        "aria-label": label,
        pointermove: follow,
        pointerleave: () => {
          cursor.setAttribute("d", "");
          readout.textContent = "\u00a0";
        },
      },
      yAxis(steps, y, MARGIN.left, right, write),
      series.map((one) => drawSeries(one, x, y, slot)),
      xAxis(number, x, height - 6, at),
      cursor,
    );
    return picture;
  };
  return el("div", {}, responsive(name, draw), readout);
}

function drawSeries({ name, kind, values }, x, y, slot) {
  const zero = point(y(0));
  if (kind === "line") return svg("path", { class: `line-${name}`, d: path(values, x, y) });
  if (kind === "area") return svg("path", { class: `area-${name}`, d: path(values, x, y, zero) });
  return values.map((value, index) => {
    if (!value) return null;
    const top = Math.min(y(value), zero);
    return svg("rect", {
      class: value < 0 ? "area-loss" : `area-${name}`,
      x: point(x(index) - slot * 0.4),
      y: point(top),
      width: point(Math.max(slot * 0.8, 1)),
      height: point(Math.max(Math.abs(y(value) - zero), 0.8)),
    });
  });
}

export const SECTIONS = ["system", "summary", "memory", "recent", "current"];
export const SECTION_WORDS = {
  system: "system messages and tools",
  summary: "summary of earlier messages",
  memory: "retrieved memory",
  recent: "recent messages",
  current: "last user message",
};

/** Stacked bars of sections, one for each row of [title, sections, total], with the limit as a line. */
export function sectionBars(rows, limit) {
  const height = 34;
  const most = Math.max(limit, ...rows.map(([, , total]) => total)) || 1;
  const label = `${rows.map(([title, , total]) => `${title}: ${exact(total)} tokens`).join("; ")}${
    limit ? `; limit: ${exact(limit)} tokens` : ""
  }. The table below has the sections.`;
  return responsive("sections", (width) => {
    const left = 74;
    const right = width - 14;
    const x = (value) => left + (value / most) * (right - left);
    const bottom = 20 + rows.length * height;
    const bars = rows.map(([title, sections, total], row) => {
      let sum = 0;
      const top = 20 + row * height;
      const parts = SECTIONS.map((name) => {
        const value = sections[name] ?? 0;
        const from = x(sum);
        sum += value;
        const wide = x(sum) - from;
        if (!value) return null;
        return [
          svg(
            "rect",
            { class: `section-${name}`, x: point(from), y: top, width: point(Math.max(wide, 0.6)), height: height - 10 },
            svg("title", {}, `${SECTION_WORDS[name]}: ${exact(value)} tokens`),
          ),
          wide > 46 ? svg("text", { class: `in-${name}`, x: point(from + 6), y: top + 16 }, short(value)) : null,
        ];
      });
      return [svg("text", { class: "end", x: left - 8, y: top + 16 }, title), parts, total ? null : svg("text", { x: left + 6, y: top + 16 }, "not counted")];
    });
    const line = limit
      ? [
          svg("path", { class: "line-limit", d: `M${point(x(limit))} 16V${bottom}` }),
          svg("text", { class: x(limit) > width / 2 ? "end" : "start", x: point(x(limit)), y: 11 }, `limit ${short(limit)}`),
        ]
      : null;
    const size = { viewBox: `0 0 ${width} ${bottom}`, width, height: bottom };
    return svg("svg", { ...size, role: "img", "aria-label": label }, bars, line);
  });
}

/** The cells of a table that says what the stacked bars show. */
export function sectionRows(before, after) {
  return SECTIONS.filter((name) => before[name] || after[name]).map((name) => {
    const [from, to] = [before[name] ?? 0, after[name] ?? 0];
    return [
      el(
        "span",
        { class: "with-swatch" },
        swatch(`section-${name}`),
        `${name}: ${SECTION_WORDS[name]}`,
      ),
      tokens(from),
      tokens(to),
      from === to ? "unchanged" : change(to - from),
    ];
  });
}

/** A small bar in a table: the sent part of the original prompt. It only repeats the numbers beside it. */
export function smallBar(original, sent) {
  if (!original) return null;
  const part = Math.min(sent / original, 1);
  return svg(
    "svg",
    { viewBox: "0 0 48 8", width: 48, height: 8, class: "small-bar", "aria-hidden": "true" },
    svg("title", {}, `${percent(part)} of the prompt was sent`),
    svg("rect", { class: "area-original", width: 48, height: 8, rx: 2 }),
    svg("rect", { class: "area-sent", width: point(48 * part), height: 8, rx: 2 }),
  );
}

