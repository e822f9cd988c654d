// The changed messages of a request, each with its text before and after, and the summary that the model sees.

import { el, section } from "./dom.js";
import { exact, plural } from "./format.js";

const NEAR = 3; // lines of context around a change
const MOST_LINES = 2000;
const MOST_ROWS = 200; // before a button for more
const LONG_RUN = 4; // removed messages in a row that are shown as one row

/** The sections with the texts of a request. */
export function changes(event, text, keepsText) {
  if (!event.sent_tokens || !event.decisions.length) return [];
  if (!text && keepsText) {
    return [section("Changed messages", el("p", { class: "empty" }, "The texts of this request are not kept, or no longer: there is room for those of the newest requests only."))];
  }
  if (!text) {
    return [section("Changed messages", el("p", { class: "empty" },
      "The texts of this request are not kept. To keep those of coming requests, set ", el("code", {}, "dashboard.keep_text: true"),
      " in the configuration. They are kept in memory, and everyone who may open this page can read them."))];
  }
  const list = text.changes ?? [];
  return [
    text.summary
      ? section("The summary that the model sees", el("p", {}, `It stands for ${plural(event.summary_messages, "message")} of the client\u2019s transcript.`), el("pre", { class: "text", tabindex: "0", role: "region", "aria-label": "The summary" }, text.summary))
      : null,
    section("Changed messages", list.length ? filtered(event.request_id, list) : el("p", { class: "empty" }, "No message was changed.")),
  ];
}

const FATES = { shortened: "shortened", pruned: "pruned", removed: "removed", added: "added by trimtab", moved: "moved" };

const sought = { id: "", words: "" }; // stays if the page is drawn again

/** A box that filters the rows by tool, role, index and text. Without a filter, long runs of removed messages are one row. */
function filtered(id, list) {
  if (sought.id !== id) Object.assign(sought, { id, words: "" });
  const rows = list.map((one, index) => ({ one, index }));
  const told = el("p", { class: "quiet", "aria-live": "polite" });
  const shown = el("div", {});
  const draw = () => {
    const words = sought.words.trim().toLowerCase();
    const found = words ? rows.filter(({ one }) => matches(one, words)) : rows;
    told.textContent = words
      ? `${exact(found.length)} of ${plural(list.length, "changed message")}`
      : plural(list.length, "changed message");
    fillRows(shown, words ? found.map((row) => [row]) : groupRuns(rows));
  };
  const box = el("input", {
    type: "search",
    value: sought.words,
    "data-key": "filter changes",
    input: (event) => { sought.words = event.target.value; draw(); },
  });
  draw();
  return [
    el("p", { class: "choices" }, el("label", {}, "Filter by tool, role, number or text ", box)),
    told,
    shown,
  ];
}

/** A number finds the message of that index too; "message 12" and "#12" only that. */
function matches(one, words) {
  const index = /^(?:#|message )?(\d+)$/.exec(words)?.[1];
  if (index !== undefined && Number(index) === one.at) return true;
  if (index !== undefined && index !== words) return false;
  return [one.tool, one.role, FATES[one.fate] ?? one.fate, one.rules.join(" "), one.before, one.after]
    .some((text) => text?.toLowerCase().includes(words));
}

/** Rows in groups: a long run of removed messages without a gap, or one row. */
function groupRuns(rows) {
  const groups = [];
  let run = [];
  const end = () => {
    if (run.length >= LONG_RUN) groups.push(run);
    else groups.push(...run.map((row) => [row]));
    run = [];
  };
  for (const row of rows) {
    const last = run.at(-1)?.one;
    if (row.one.fate !== "removed" || (last && row.one.at - last.at > 1)) end();
    if (row.one.fate === "removed") run.push(row);
    else groups.push([row]);
  }
  end();
  return groups;
}

function fillRows(box, groups) {
  const make = (group) => (group.length > 1 ? runOf(group) : changeOf(group[0].one, group[0].index));
  box.replaceChildren(...groups.slice(0, MOST_ROWS).map(make));
  if (groups.length <= MOST_ROWS) return;
  const rest = el("button", { type: "button", click: () => rest.replaceWith(...groups.slice(MOST_ROWS).map(make)) },
    `Show ${exact(groups.length - MOST_ROWS)} more`);
  box.append(rest);
}

/** A row for a run of removed messages. Its rows are made when it is opened. */
function runOf(group) {
  const [from, to] = [group[0].one.at, group.at(-1).one.at];
  const number = new Set(group.map(({ one }) => one.at)).size;
  const rules = [...new Set(group.flatMap(({ one }) => one.rules))];
  const size = plural(group.reduce((total, { one }) => total + one.tokens_before, 0), "token");
  const body = el("div", { class: "change-body" });
  return lazy(
    el(
      "details",
      { class: "change removed", "data-key": `run ${group[0].index}` },
      el("summary", {}, el("span", { class: "fate" }, "removed"),
        ` Messages ${exact(from)}\u2013${exact(to)}: ${plural(number, "message")} removed${rules.length ? ` by ${rules.join(", ")}` : ""}, ${size}`),
      body,
    ),
    body,
    () => fillRows(body, group.map((row) => [row])),
  );
}

function lazy(details, body, fill) {
  details.addEventListener("toggle", () => {
    if (details.open && !body.firstChild) fill();
  });
  return details;
}

function placeOf(one) {
  if (one.at < 0) return "The system instructions";
  return one.fate === "added" ? `Before message ${exact(one.at)}` : `Message ${exact(one.at)}`;
}

function changeOf(one, index) {
  const what = [one.tool ? `result of ${one.tool}` : one.role, ...(one.rules.length ? [`by ${one.rules.join(", ")}`] : [])];
  const size = one.tokens_before && one.tokens_after
    ? `${exact(one.tokens_before)} \u2192 ${exact(one.tokens_after)} tokens`
    : plural(one.tokens_before || one.tokens_after, "token");
  const body = el("div", { class: "change-body" });
  return lazy(
    el(
      "details",
      { class: `change ${FATES[one.fate] ? one.fate : ""}`, "data-key": `change ${index}` },
      el("summary", {}, el("span", { class: "fate" }, FATES[one.fate] ?? one.fate), ` ${placeOf(one)}, ${what.join(", ")}: ${size}`),
      body,
    ),
    body,
    () => showChange(body, one, index),
  );
}

/** A choice of the difference, the text before and the text after. */
function showChange(body, one, index) {
  const shown = el("div", {});
  const views = [
    ["Difference", one.before && one.after && one.lines?.length, (name) => diff(one.lines, name)],
    ["As the client sent it", one.before, (name) => plain(one.before, name)],
    ["As the model sees it", one.after, (name) => plain(one.after, name)],
  ].filter(([, isThere]) => isThere);
  if (!views.length) {
    body.append(el("p", { class: "empty" }, "It has no text."));
    return;
  }
  const buttons = views.map(([name], view) =>
    el("button", { type: "button", "aria-pressed": "false", click: () => choose(view) }, name));
  const choose = (chosen) => {
    buttons.forEach((button, view) => button.setAttribute("aria-pressed", String(view === chosen)));
    const [name, , show] = views[chosen];
    shown.replaceChildren(show(`${name}, change ${index + 1}`));
  };
  body.append(el("p", { class: "buttons" }, buttons), shown);
  choose(0);
}

const plain = (text, name) => el("pre", { class: "text", tabindex: "0", role: "region", "aria-label": name }, text);

const SIGNS = { same: ["span", "  "], removed: ["del", "\u2212 "], added: ["ins", "+ "] };

/** Lines of a difference. Long runs of equal lines are left out; very long differences end with a button. */
function diff(lines, name) {
  const near = new Uint8Array(lines.length);
  lines.forEach((line, index) => {
    if (line.kind !== "same") near.fill(1, Math.max(0, index - NEAR), index + NEAR + 1);
  });
  const shown = [];
  for (let index = 0; index < lines.length; index += 1) {
    if (near[index]) {
      const [tag, sign] = SIGNS[lines[index].kind] ?? SIGNS.same;
      shown.push(el(tag, {}, sign, lines[index].text, "\n"));
      continue;
    }
    let stop = index;
    while (stop < lines.length && !near[stop]) stop += 1;
    shown.push(el("span", { class: "skipped" }, `${plural(stop - index, "unchanged line")}\n`));
    index = stop - 1;
  }
  const box = el("pre", { class: "diff", tabindex: "0", role: "region", "aria-label": name }, shown.slice(0, MOST_LINES));
  if (shown.length <= MOST_LINES) return box;
  const rest = el("button", { type: "button", click: () => {
    box.append(...shown.slice(MOST_LINES));
    rest.remove();
  } }, `Show ${exact(shown.length - MOST_LINES)} more lines`);
  return el("div", {}, box, rest);
}

