// The picture of a session's window over its requests, and what it cost to move a cut.

import { path, legend, ticks, xAxis, yAxis } from "./charts.js";
import { responsive, svg } from "./dom.js";
import { axisTokens, dollars, exact, timeText } from "./format.js";

const MARGIN = { top: 40, right: 14, bottom: 26, left: 52 };
const HEIGHT = 340;
const MARK_SPACE = 15;

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

/** Every request at which a cut moved: {turn, number, kind, decision, cut}. Turns are oldest first. */
export function findCuts(turns) {
  return turns.flatMap((turn, index) => {
    if (!turn.cut_moved) return [];
    const before = turns[index - 1]?.window;
    const cuts = turn.window?.cuts ?? [];
    const isCut = before ? cuts.length > (before.cuts?.length ?? 0) : turn.decisions.some((one) => one.rule !== "prune" && one.rule in KINDS);
    const cut = isCut ? (cuts.at(-1) ?? null) : null;
    const kind = cut?.kind ?? "prune";
    const decision = turn.decisions.findLast((one) => one.rule === kind) ?? null;
    return [{ turn, number: index + 1, kind, decision, cut }];
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
 * open(id) is called when a request is clicked.
 */
export function drawWindow(turns, cuts, { zoomed, open }) {
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
    const bottom = HEIGHT - MARGIN.bottom;
    const slot = (right - MARGIN.left) / turns.length;
    const x = (index) => MARGIN.left + slot * (index + 0.5);
    const y = (value) => Math.max(bottom - (value / steps.at(-1)) * (bottom - MARGIN.top), MARGIN.top);
    return svg(
      "svg",
      { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "group", "aria-label": label },
      svg(
        "g",
        { "aria-hidden": "true" },
        yAxis(steps, y, MARGIN.left, right, axisTokens),
        svg("path", { class: "area-original", d: path(original, x, y, bottom) }),
        svg("path", { class: "area-sent", d: path(sent, x, y, bottom) }),
        svg("path", { class: "line-original", d: path(original, x, y) }),
        svg("path", { class: "line-sent", d: path(sent, x, y) }),
        svg("path", { class: "line-low", d: path(low, x, y) }),
        svg("path", { class: "line-high", d: path(high, x, y) }),
        svg("path", { class: "line-limit", d: path(limit, x, y) }),
        xAxis(turns.length, x, HEIGHT - 8, (index) => String(index + 1), 60),
        turns.map((turn, index) => drawSlot(turn, index, x(index) - slot / 2, slot, bottom, open)),
      ),
      placeMarks(cuts, (cut) => x(cut.number - 1)).map(([cut, left]) => drawMark(cut, left, x(cut.number - 1), bottom)),
    );
  });
}

/** Marks that would cover each other are moved to the right, as far as there is room. */
function placeMarks(cuts, x) {
  let before = -Infinity;
  return cuts.map((cut) => {
    before = Math.max(x(cut), before + MARK_SPACE);
    return [cut, before];
  });
}

function drawSlot(turn, index, left, width, bottom, open) {
  return svg(
    "rect",
    {
      class: "slot",
      x: left.toFixed(1),
      y: MARGIN.top,
      width: width.toFixed(2),
      height: bottom - MARGIN.top,
      click: () => open(turn.request_id),
    },
    svg(
      "title",
      {},
      `Request ${index + 1}, ${timeText(turn.at)}: ${exact(turn.original_tokens)} tokens, ${exact(turn.sent_tokens)} sent`,
    ),
  );
}

function drawMark(cut, left, x, bottom) {
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
    svg("path", { class: "line-cut", d: `M${left.toFixed(1)} 22L${x.toFixed(1)} ${MARGIN.top}V${bottom}` }),
    svg("circle", { class: "ring", cx: left.toFixed(1), cy: 14, r: 11 }),
    shape(cut.kind, { transform: `translate(${left.toFixed(1)} 14)` }),
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

