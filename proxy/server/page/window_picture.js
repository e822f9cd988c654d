// The picture of a session's window over its requests, and what it cost to move a cut.

import { path, legend, ticks, xAxis, yAxis } from "./charts.js";
import { responsive, svg } from "./dom.js";
import { axisTokens, dollars, exact, timeText } from "./format.js";

const MARGIN = { right: 14, bottom: 26, left: 52 };
const HEIGHT = 314; // without the marks
const MARK_SPACE = 15;
const ROW_HEIGHT = 16; // of marks
const MOST_ROWS = 6;
const CLIPPED_HEIGHT = 16; // of the hatched strip that says that the original prompts go on above the picture

const KINDS = {
  summarise: "summary by a model",
  digest: "digest, without a model",
  prune: "old tool results pruned",
};
const SHAPES = {
  summarise: "M0-5.5A5.5 5.5 0 1 1 0 5.5A5.5 5.5 0 1 1 0-5.5Z",
  digest: "M0-6.5L6.5 0L0 6.5L-6.5 0Z",
  prune: "M-6.5-5.5H6.5L0 6Z",
};

/** The name of a kind of cut, in words. */
export const nameKind = (kind) => KINDS[kind] ?? kind;

const isText = (one) => one.rule === "summarise" || one.rule === "digest";

/**
 * Every request at which a cut moved: {turn, number, kind, decision, cut}. Turns are oldest first; the first one has
 * the number `first`. The kind is what was forwarded: a digest may stand for a cut that was planned with a summary.
 */
export function findCuts(turns, first = 1) {
  let before = null;
  return turns.flatMap((turn, index) => {
    const last = before;
    before = turn.window ?? before;
    if (!turn.cut_moved) return [];
    const cut = turn.window?.cuts?.at(-1) ?? null;
    const isCut = cut !== null && (last ? cut.at !== last.cuts?.at(-1)?.at : turn.decisions.some(isText));
    const decision = turn.decisions.findLast(isCut ? isText : (one) => one.rule === "prune") ?? null;
    const kind = isCut ? (decision?.rule ?? (turn.summary_kind || cut.kind)) : "prune";
    return [{ turn, number: first + index, kind, decision, cut: isCut ? cut : null }];
  });
}

/** What the move of a cut cost, in words. */
export function tellCost({ turn }) {
  const read = turn.cut_tokens === null || turn.cut_tokens === undefined ? null : exact(turn.cut_tokens);
  const paid = turn.cut_cost_usd === null || turn.cut_cost_usd === undefined ? null : dollars(turn.cut_cost_usd);
  if (read === null && paid === null) return "what it cost is not known";
  if (paid === null) return `${read} tokens were read again, at an unknown price`;
  return `${read === null ? "some" : read} tokens were read again, for ${paid}`;
}

const shape = (kind, attributes) => svg("path", { class: `mark-${kind}`, d: SHAPES[kind] ?? SHAPES.digest, ...attributes });

/**
 * The picture. zoomed: the y axis ends a little above the limit, whatever the original prompts have.
 * first: the number of the first turn. open(id) is called when a request is clicked.
 */
export function drawWindow(turns, cuts, { zoomed, open, first = 1 }) {
  const of = (pick) => turns.map((turn) => (turn.sent_tokens ? (pick(turn) ?? null) : null));
  const original = of((turn) => turn.original_tokens);
  const sent = of((turn) => turn.sent_tokens);
  const limit = of((turn) => turn.limit_tokens || null);
  const high = of((turn) => turn.window?.high_tokens);
  const low = of((turn) => turn.window?.low_tokens);
  const inWindow = Math.max(1, ...sent, ...limit);
  const steps = ticks(0, zoomed ? inWindow * 1.1 : Math.max(inWindow, ...original), 5);
  const label = `The session's window over ${turns.length} requests, with ${cuts.length} moves of the cut. The tables below have all numbers.`;
  return responsive("window", (width) => {
    const right = width - MARGIN.right;
    const slot = (right - MARGIN.left) / turns.length;
    const x = (index) => MARGIN.left + slot * (index + 0.5);
    const [marks, rows] = placeMarks(cuts, (cut) => x(cut.number - first));
    const top = 10 + rows * ROW_HEIGHT;
    const height = HEIGHT + top;
    const bottom = height - MARGIN.bottom;
    const y = (value) => bottom - (value / steps.at(-1)) * (bottom - top);
    const ground = { x: MARGIN.left, y: top, width: right - MARGIN.left, height: bottom - top };
    return svg(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": label },
      svg(
        "g",
        { "aria-hidden": "true" },
        yAxis(steps, y, MARGIN.left, right, axisTokens),
        svg("clipPath", { id: "window-ground" }, svg("rect", ground)),
        svg("path", { class: "area-original", "clip-path": "url(#window-ground)", d: path(original, x, y, bottom) }),
        svg("path", { class: "area-sent", d: path(sent, x, y, bottom) }),
        svg("path", { class: "line-original", "clip-path": "url(#window-ground)", d: path(original, x, y) }),
        drawClipped(original, steps.at(-1), x, slot, top),
        svg("path", { class: "line-sent", d: path(sent, x, y) }),
        svg("path", { class: "line-low", d: path(low, x, y) }),
        svg("path", { class: "line-high", d: path(high, x, y) }),
        svg("path", { class: "line-limit", d: path(limit, x, y) }),
        xAxis(turns.length, x, height - 8, (index) => String(first + index), 60),
        turns.map((turn, index) => drawSlot(turn, first + index, { ...ground, x: x(index) - slot / 2, width: slot }, open)),
      ),
      marks.map(([cut, row]) => drawMark(cut, x(cut.number - first), top - 10 - row * ROW_HEIGHT, top, bottom)),
    );
  });
}

/** Each mark stands above its request. Those that would cover each other stand in rows: [[cut, row]...] and the rows. */
function placeMarks(cuts, x) {
  const ends = [-Infinity];
  const placed = cuts.map((cut) => {
    let row = ends.findIndex((end) => x(cut) - end >= MARK_SPACE);
    if (row < 0) row = ends.length < MOST_ROWS ? ends.length : ends.indexOf(Math.min(...ends));
    ends[row] = x(cut);
    return [cut, row];
  });
  return [placed, ends.length];
}

/** A hatched strip at the top of the picture, over the requests whose original prompt does not fit into it. */
function drawClipped(original, most, x, slot, top) {
  if (!original.some((value) => value > most)) return null;
  const hatch = svg(
    "pattern",
    { id: "window-hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("rect", { class: "hatch-ground", width: 6, height: 6 }),
    svg("rect", { class: "hatch", width: 2.5, height: 6 }),
  );
  const strips = original.map((value, index) =>
    value > most
      ? svg("rect", { x: (x(index) - slot / 2).toFixed(1), y: top, width: (slot + 0.2).toFixed(2), height: CLIPPED_HEIGHT, fill: "url(#window-hatch)" })
      : null);
  return [hatch, strips];
}

function drawSlot(turn, number, place, open) {
  return svg(
    "rect",
    {
      class: "slot",
      ...place,
      click: () => open(turn.request_id),
    },
    svg(
      "title",
      {},
      `Request ${number}, ${timeText(turn.at)}: ${exact(turn.original_tokens)} tokens, ${exact(turn.sent_tokens)} sent`,
    ),
  );
}

function drawMark(cut, x, y, top, bottom) {
  const text = `Request ${cut.number}: ${nameKind(cut.kind)}; ${tellCost(cut)}`;
  return svg(
    "a",
    {
      href: `#/requests/${encodeURIComponent(cut.turn.request_id)}`,
      class: "mark",
      "aria-label": text,
      "data-key": `mark ${cut.turn.request_id}`,
    },
    svg("title", {}, text),
    svg("path", { class: "line-cut", d: `M${x.toFixed(1)} ${Math.min(y + 8, top)}V${bottom}` }),
    svg("circle", { class: "ring", cx: x.toFixed(1), cy: y, r: 11 }),
    shape(cut.kind, { transform: `translate(${x.toFixed(1)} ${y})` }),
  );
}

/** The legend of the picture. */
export function windowLegend(cuts) {
  const kinds = Object.keys(KINDS).filter((kind) => cuts.some((cut) => cut.kind === kind));
  return legend([
    ["area-original", "original prompt"],
    ["area-sent", "forwarded prompt"],
    ["line-limit", "limit"],
    ["line-high", "high water"],
    ["line-low", "low water"],
    ...kinds.map((kind) => [
      "",
      `cut: ${nameKind(kind)}`,
      svg("svg", { viewBox: "-8 -8 16 16", width: 14, height: 14, "aria-hidden": "true" }, shape(kind, {})),
    ]),
  ]);
}

/** Whether the original prompts are so long that the window is small in the picture. */
export const isSquashed = (turns) => {
  const original = Math.max(1, ...turns.map((turn) => turn.original_tokens));
  const window = Math.max(1, ...turns.map((turn) => Math.max(turn.limit_tokens, turn.sent_tokens)));
  return original > window * 1.6;
};

