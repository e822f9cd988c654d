// What each economy and a few thresholds would have cost and kept, from the recordings of this proxy.

import { ticks, xAxis, yAxis } from "./charts.js";
import { read } from "./api.js";
import { el, responsive, section, svg, table } from "./dom.js";
import { count, NONE, percent, time } from "./format.js";

const MARGIN = { top: 16, right: 90, bottom: 40, left: 60 };
const HEIGHT = 320;
const ECONOMIES = ["careful", "balanced", "frugal"];
const CHAR = 6.6;
const LINE = 13;
const place = (value) => Math.round(value * 10) / 10;

export const curve = () => ({
  title: "Economies",
  drifts: true,
  load: (signal) => read("curve", {}, signal),
  show: (data) => [el("p", { class: "lead" }, tell(data)), ...(data.state === "ready" ? showPoints(data) : [])],
});

function tell(data) {
  if (data.state === "off") return "Nothing is recorded. With the key record, this page shows what other settings would cost and keep.";
  if (data.state === "running") return "The newest recordings are replayed with other settings. This takes a minute or two.";
  if (data.state === "failed") return "The recordings could not be replayed. Try trimtab replay --curve with their folder.";
  return [`The newest ${data.requests.toLocaleString("en")} recordings, replayed `, time(data.at),
    ": what each setting costs, as a share of sending everything, and how many of the identifiers that the next answer needed were still forwarded."];
}

function showPoints(data) {
  const known = data.points.filter((one) => one.cost !== null && one.needed_kept !== null);
  const share = (value) => (value === null ? NONE : percent(value));
  const rows = data.points.map((one) => [
    one.name, share(one.cost), share(one.needed_kept), count(one.needed), count(one.moved_cuts), count(one.summaries),
  ]);
  const heads = [{ text: "setting" }, ...["cost", "kept", "needed", "cuts", "summaries"].map((text) => ({ text, number: true }))];
  return [
    section("Cost and memory", known.length ? el("figure", {}, responsive("curve", (width) => draw(known, width))) : null,
      table("Cost and memory of each setting", heads, rows, { hideCaption: true })),
    el("ul", { class: "notes" }, data.notes.map((note) => el("li", {}, note))),
  ];
}

function draw(points, width) {
  const across = ticks(0, Math.max(...points.map((one) => one.cost)), 6);
  const up = ticks(0, 1 - Math.min(...points.map((one) => one.needed_kept)) || 0.01).reverse();
  const right = width - MARGIN.right;
  const bottom = HEIGHT - MARGIN.bottom;
  const x = (cost) => MARGIN.left + (cost / across.at(-1)) * (right - MARGIN.left);
  const y = (kept) => MARGIN.top + ((1 - kept) / up[0]) * (bottom - MARGIN.top);
  const ours = ECONOMIES.map((name) => points.find((one) => one.name === name)).filter(Boolean);
  const names = placeNames(points.map((one) => ({ x: x(one.cost), y: y(one.needed_kept), width: CHAR * one.name.length })), width);
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": "Needed identifiers kept, over cost" },
    yAxis(up.map((lost) => 1 - lost), y, MARGIN.left, right, (value) => percent(value)),
    xAxis(across.length, (index) => x(across[index]), bottom + 18, (index) => percent(across[index])),
    svg("text", { x: (MARGIN.left + right) / 2, y: HEIGHT - 6, class: "middle" }, "cost, as a share of sending everything"),
    svg("path", { class: "line-sent", fill: "none", d: ours.length ? `M${ours.map((one) => `${place(x(one.cost))} ${place(y(one.needed_kept))}`).join("L")}` : "" }),
    points.map((one, index) => [
      svg("circle", { class: ECONOMIES.includes(one.name) ? "area-sent" : "area-original", cx: place(x(one.cost)), cy: place(y(one.needed_kept)), r: 4 }),
      svg("text", names[index], one.name),
    ]),
  );
}

/** A place for each name beside its point, the first that covers no other point or name. */
function placeNames(marks, width) {
  const taken = marks.map((one) => ({ left: one.x - 5, right: one.x + 5, top: one.y - 5, bottom: one.y + 5 }));
  const covers = (one, two) => one.left < two.right && two.left < one.right && one.top < two.bottom && two.top < one.bottom;
  return marks.map((mark) => {
    const sides = [mark.x + 8, mark.x - 8 - mark.width, mark.x - mark.width / 2];
    const boxes = [0, -LINE, LINE, -2 * LINE, 2 * LINE].flatMap((down) =>
      sides.map((left) => ({ left, right: left + mark.width, top: mark.y + down - LINE / 2, bottom: mark.y + down + LINE / 2 })));
    const box = boxes.find((one) => one.left > 0 && one.right < width && !taken.some((other) => covers(one, other))) ?? boxes[0];
    taken.push(box);
    return { x: place(box.left), y: place(box.bottom - 3) };
  });
}
