// The list of sessions, and the page of one.

import { sectionBars, sectionRows } from "./charts.js";
import { ApiError, compact, erase, read } from "./api.js";
import { el, replace, section, table } from "./dom.js";
import { count, exact, money, NONE, plural, share, time, tokens } from "./format.js";
import { emptyState, saved, shortId } from "./requests.js";
import { drawWindow, findCuts, isSquashed, nameKind, windowLegend } from "./window_picture.js";

const PAGE = 50;
const TYPING = 250; // milliseconds without a key until a search begins

export const sessionLink = (id, text = shortId(id)) =>
  el("a", { href: `#/sessions/${encodeURIComponent(id)}`, "data-key": `session ${id}`, title: id }, text);

/** What people call a session: its first words, if they are kept, else what the client calls it, else its hash. */
const nameOf = (one) => one.title || (one.header ? `${one.client || one.model} ${one.header}` : shortId(one.id));

/** The columns: [key, head, the cell]. */
const COLUMNS = [
  ["session", { text: "Session", wide: true }, (one) => sessionLink(one.id, nameOf(one))],
  ["last", { text: "Last request" }, (one) => time(one.last_at, { seconds: false })],
  ["model", { text: "Model" }, (one) => one.model],
  ["client", { text: "Client" }, (one) => one.client || el("span", { class: "quiet" }, "no name")],
  ["outcome", { text: "Outcome", title: "of the newest request" }, (one) => one.last_outcome],
  ["requests", { text: "Requests", number: true }, (one) => count(one.requests)],
  ["original", { text: "Original", number: true, title: "prompt tokens of the newest request as the client sent it" }, (one) => tokens(one.original_tokens)],
  ["sent", { text: "Sent", number: true, title: "prompt tokens of the newest request as forwarded" }, (one) => tokens(one.sent_tokens)],
  ["moves", { text: "Moves", number: true, title: "how often the cut has moved" }, (one) => count(one.cuts)],
  ["cost", { text: "Cost", number: true }, (one) => money(one.cost_usd)],
  ["saved", { text: "Saved", number: true, title: "what it would have cost without trimtab, minus its cost and that of its summaries" }, saved],
];
const FILTERS = [["model", "Model"], ["client", "Client"], ["outcome", "Outcome"]];
const sought = { words: "", model: "", client: "", outcome: "", sort: "last", order: "desc", page: 1 }; // stays if the page is drawn again
let typing = 0;

function listSessions({ sessions: found, total }, again) {
  const pages = Math.max(1, Math.ceil(total / PAGE));
  const heads = COLUMNS.map(([key, head]) => {
    const isHere = sought.sort === key;
    const isUp = sought.order === "asc";
    const first = head.number || key === "last" ? "desc" : "asc";
    const sort = () => again({ sort: key, order: isHere ? (isUp ? "desc" : "asc") : first });
    return { ...head, sorted: isHere ? (isUp ? "ascending" : "descending") : null,
      text: el("button", { type: "button", class: "sort", "data-key": `sort ${key}`, click: sort }, head.text, isHere ? (isUp ? " \u2191" : " \u2193") : "") };
  });
  const step = (text, page) =>
    el("button", { type: "button", "data-key": `page ${text}`, disabled: page < 1 || page > pages, click: () => again({ page }) }, text);
  return [
    found.length
      ? table(`${plural(total, "session")}; tokens are those of the newest request`, heads, found.map((one) => COLUMNS.map(([, , cell]) => cell(one))), { key: "sessions" })
      : el("p", { class: "empty" }, "No session is like that."),
    pages > 1
      ? el("p", { class: "buttons" }, step("Previous page", sought.page - 1), el("span", { class: "quiet" }, `Page ${exact(sought.page)} of ${exact(pages)}`), step("Next page", sought.page + 1))
      : null,
  ];
}

function choices(found, again) {
  const type = (event) => {
    clearTimeout(typing);
    Object.assign(sought, { words: event.target.value, page: 1 });
    typing = setTimeout(again, TYPING, {});
  };
  return el(
    "p",
    { class: "choices" },
    el("label", {}, "Search ", el("input", { type: "search", value: sought.words, "data-key": "search sessions", input: type })),
    FILTERS.map(([key, title]) => el("label", {}, `${title} `, el(
      "select",
      { "data-key": `filter ${key}`, change: (event) => again({ [key]: event.target.value }) },
      el("option", { value: "" }, "all"),
      [...new Set([...found[key], sought[key]])].filter(Boolean).sort().map((value) => el("option", { value, selected: sought[key] === value }, value)),
    ))),
  );
}

export const sessions = (actions) => ({
  title: "Sessions",
  load: async (signal) => {
    const found = await read("sessions", { limit: PAGE, ...sought }, signal);
    sought.page = Math.min(sought.page, Math.max(1, Math.ceil(found.total / PAGE)));
    return found;
  },
  listens: (name) => (name === "request" ? "reload" : null),
  show: (found) => {
    const again = (change) => { Object.assign(sought, { page: 1 }, change); actions.reload(); };
    if (!found.total && !sought.words && FILTERS.every(([key]) => !sought[key])) return [emptyState()];
    return [
      el("p", { class: "lead" }, "A session is one conversation. It is called by its first words if texts are kept, else by what its client calls it, else by a hash of its beginning."),
      choices(found.choices, again),
      ...listSessions(found, again),
    ];
  },
});

const zoomed = new Map();

export const session = (id, actions) => ({
  title: `Session ${shortId(id)}`,
  load: async (signal, before) => {
    const found = await read(`sessions/${encodeURIComponent(id)}`, {}, signal);
    return { ...found, summary: await readSummary(found, before, signal) };
  },
  heading: (found) => found.session.title || null,
  listens: (name, event) => (name === "request" && event.session === id ? "reload" : null),
  missing: () => el("p", { class: "empty" }, "This session is not kept, or no longer: it was erased, newer ones took its place, or trimtab was started again. ", el("a", { href: "#/sessions" }, "All sessions")),
  show: ({ session: one, turns, more, summary }) => {
    const first = more ? Math.max(one.requests - turns.length, 0) + 1 : 1;
    const cuts = findCuts(turns, first);
    const last = turns.at(-1);
    return [
      el("p", { class: "lead" }, ...tellSession(one)),
      last && (last.status >= 400 || last.error) ? el("p", { class: "loss" }, `The newest request failed: ${last.outcome}, status ${last.status}${last.reason ? `; ${last.reason}` : ""}.`) : null,
      more ? el("p", {}, `This page shows and counts only the newest ${exact(turns.length)} of the session\u2019s ${exact(one.requests)} requests.`) : null,
      sessionFigures(one, cuts),
      turns.length ? pictureOf(id, { turns, cuts, first }, actions) : null,
      last ? seenNow(last, summary) : null,
      turns.length ? cutTable(cuts, turns) : null,
      turns.length ? turnTable(turns, cuts, first) : null,
      compacting(one),
      erasing(one, actions),
    ];
  },
});

/** The newest summary: {name, text}. It is asked for only once, because the whole text of a request comes with it. */
async function readSummary({ session: one, turns }, before, signal) {
  const last = turns.at(-1);
  if (!last?.summary_id || !one.has_text) return null;
  const name = `${last.summary_id} ${last.summary_kind} ${last.summary_messages}`;
  if (before?.summary?.name === name) return before.summary;
  try {
    const { text } = await read(`requests/${encodeURIComponent(last.request_id)}`, {}, signal);
    return text?.summary ? { name, text: text.summary } : null;
  } catch (error) {
    if (error instanceof ApiError) return null;
    throw error;
  }
}

function tellSession(one) {
  return [
    el("strong", {}, one.model), one.client ? `, client ${one.client}` : "", ", from ", time(one.first_at), " to ", time(one.last_at), one.header ? `, which the client calls ${one.header}` : "", ".",
    one.digest_instead ? el("strong", {}, ` Digests instead of summaries: ${one.digest_instead}.`) : "",
  ];
}

const figure = (title, value, note) =>
  el("div", {}, el("dt", {}, title), el("dd", { class: "value" }, value), el("dd", { class: "note" }, note));

function sessionFigures(one, cuts) {
  const moves = cuts.filter((cut) => typeof cut.turn.cut_cost_usd === "number");
  const paid = moves.reduce((total, cut) => total + cut.turn.cut_cost_usd, 0);
  return el(
    "dl",
    { class: "figures" },
    figure("Requests", count(one.requests, "requests"), [count(one.messages), " messages in the newest"]),
    figure("Newest prompt", [tokens(one.sent_tokens, "sent_tokens")], [
      "of ", tokens(one.original_tokens, "original_tokens"), "; the limit is ", tokens(one.limit_tokens, "limit_tokens"),
    ]),
    figure("Saved", saved(one), [
      "cost ", money(one.cost_usd, "cost_usd"), ", of which summaries ", money(one.summary_usd, "summary_usd"), "; without trimtab ",
      money(one.without_usd, "without_usd"),
    ]),
    figure("Moves of the cut", count(cuts.length), !cuts.length ? "none so far" : moves.length ? ["which cost ", money(paid), " in broken cache"] : "what they cost is not known"),
  );
}

function pictureOf(id, { turns, cuts, first }, actions) {
  const isZoomed = zoomed.get(id) ?? false;
  const button = el(
    "button",
    {
      type: "button",
      "data-key": "zoom",
      click: () => {
        zoomed.set(id, !isZoomed);
        actions.redraw();
      },
    },
    isZoomed ? "Show all" : "Zoom to the window",
  );
  const clipped = isZoomed && isSquashed(turns)
    ? el("figcaption", { class: "note" }, `Zoomed to the window: the original prompts go on above the hatched strip, up to ${exact(Math.max(...turns.map((turn) => turn.original_tokens)))} tokens.`)
    : null;
  const open = (request) => {
    location.hash = `#/requests/${encodeURIComponent(request)}`;
  };
  return section(
    "The window over the session\u2019s requests",
    el("div", { class: "picture-head" }, windowLegend(cuts), isSquashed(turns) || isZoomed ? button : null),
    el("figure", {}, drawWindow(turns, cuts, { zoomed: isZoomed, open, first }), clipped),
  );
}

const were = (value) => (value === 1 ? "was" : "were");

const SHORTENED = {
  drop_tools: () => "Definitions of tools are left out.",
  truncate_system: (one) => `${plural(one, "system message")} ${were(one)} shortened.`,
  tidy: (one) => `${plural(one, "message")} ${were(one)} tidied.`,
  truncate: (one) => `${plural(one, "tool result")} ${were(one)} shortened.`,
  shorten: (one) => `${plural(one, "message")} over the limit for one message ${were(one)} shortened.`,
  truncate_users: (one) => `${plural(one, "earlier user message")} over the limit for one message ${were(one)} shortened.`,
  memory: (one) => `Retrieved memory in ${plural(one, "message")} was reduced.`,
  dedupe: (one) => `${plural(one, "repeated text")} ${were(one)} replaced by references.`,
  arguments: (one) => `Long arguments of calls in ${plural(one, "message")} ${were(one)} shortened.`,
  images: (one) => `Images in ${plural(one, "message")} were left out.`,
  pairing: (one) => `${plural(one, "call or result", "calls or results")} ${were(one)} dropped, moved, completed or written as text, so that each call has its result.`,
};

/** What was done besides cuts and pruning, in the attempt that was forwarded. */
function tellShortened(turn) {
  const last = Math.max(0, ...turn.decisions.map((one) => one.attempt));
  return turn.decisions.flatMap((one) =>
    one.attempt === last && SHORTENED[one.rule] ? [SHORTENED[one.rule](one.messages)] : []);
}

const isShortened = (turn) => tellShortened(turn).length > 0;

function summaryOf(last, summary) {
  if (!last.summary_messages) return null;
  const kind = last.summary_kind === "digest" ? "digest" : "summary";
  if (!summary) {
    return el("p", { class: "empty" }, `The text of the ${kind} is not kept, or no longer: `, el("code", {}, "dashboard.keep_text"), " in the configuration keeps texts.");
  }
  return el(
    "details",
    { "data-key": "summary text" },
    el("summary", {}, `The text of the ${kind}`),
    el("pre", { class: "text", tabindex: "0", role: "region", "aria-label": `The ${kind}` }, summary.text),
  );
}

function seenNow(last, summary) {
  if (!last.sent_tokens) return null;
  const cut = last.window?.cuts?.at(-1);
  const [from, to] = [last.original_sections ?? {}, last.sent_sections ?? {}];
  const told = [];
  if (last.summary_messages) {
    told.push(`A ${last.summary_kind === "digest" ? "digest" : "summary"} stands for ${plural(last.summary_messages, "message")}.`);
    if (last.summary_instead) told.push(`No model wrote a summary (${last.summary_instead}).`);
  }
  if (cut) told.push(`Messages from ${exact(cut.at)} on are forwarded one by one.`);
  if (last.window?.prune_stop > (cut?.at ?? 0)) {
    told.push(`Tool results before message ${exact(last.window.prune_stop)} are placeholders.`);
  }
  const shortened = tellShortened(last);
  if (told.length && !cut) told.push("All other messages are forwarded.");
  if (!told.length) {
    told.push(shortened.length ? "No cut has been made, but some of the text is not forwarded." : "No cut has been made: every message is forwarded.");
  }
  told.push(...shortened);
  const heads = [{ text: "Section" }, { text: "Original", number: true }, { text: "Sent", number: true }, { text: "Change", number: true }];
  return section(
    "What the model sees now",
    el("p", {}, told.join(" "), " ", el("a", { href: requestAddress(last), "data-key": "newest request" }, "The newest request in detail")),
    summaryOf(last, summary),
    el("figure", {}, sectionBars([["original", from, last.original_tokens], ["sent", to, last.sent_tokens]], last.limit_tokens)),
    table("Tokens of the newest prompt by section", heads, sectionRows(from, to), { hideCaption: true }),
  );
}

const requestAddress = (turn) => `#/requests/${encodeURIComponent(turn.request_id)}`;

function cutTable(cuts, turns) {
  if (!cuts.length && turns.at(-1)?.window?.cuts?.length) {
    return section("Cuts", el("p", { class: "empty" }, "The cut has not moved in the requests that are shown here. It was made before them."));
  }
  if (!cuts.length) {
    const number = turns.filter(isShortened).length;
    const told = number
      ? `no message was cut, but messages were shortened or changed in ${plural(number, "request")} (see the decisions of each).`
      : "nothing was forgotten so far.";
    return section("Cuts", el("p", { class: "empty" }, `The cut has not moved in this session: ${told}`));
  }
  const heads = [
    { text: "Request" }, { text: "When" }, { text: "Kind" }, { text: "Why" }, { text: "Messages cut", number: true },
    { text: "Tokens removed", number: true, title: "everything that the cut stands for, also what earlier cuts had removed" },
    { text: "Read again", number: true, title: "forwarded tokens that were in the previous prompt too, but at another place, so that the upstream\u2019s cache did not help" },
    { text: "Which cost", number: true },
  ];
  const rows = cuts.map((cut) => [
    el("a", { href: requestAddress(cut.turn), "data-key": `cut ${cut.turn.request_id}` }, exact(cut.number)),
    time(cut.turn.at), nameKind(cut.kind), cut.turn.cut_why || NONE, cut.cut ? exact(cut.cut.at) : "",
    tokens(cut.decision ? cut.decision.tokens_before - cut.decision.tokens_after : null),
    tokens(cut.turn.cut_tokens), money(cut.turn.cut_cost_usd),
  ]);
  return section("Cuts", table("Every move of the cut, and what it cost. \u201cTokens removed\u201d is the whole of what the cut stands for, also what earlier cuts had removed", heads, rows, { key: "cuts" }));
}

function turnTable(turns, cuts, first) {
  const moved = new Map(cuts.map((cut) => [cut.turn.request_id, cut]));
  const heads = [
    { text: "Request" }, { text: "When" }, { text: "Outcome" }, { text: "Messages", number: true },
    { text: "Original", number: true }, { text: "Sent", number: true }, { text: "Limit", number: true },
    { text: "High water", number: true }, { text: "Low water", number: true }, { text: "Prefix kept", number: true },
    { text: "Cost", number: true }, { text: "Cut" },
  ];
  const rows = turns.map((turn, index) => [
    el("a", { href: requestAddress(turn), "data-key": `turn ${turn.request_id}` }, exact(first + index)),
    time(turn.at), turn.outcome, count(turn.messages), tokens(turn.original_tokens), tokens(turn.sent_tokens),
    tokens(turn.limit_tokens), tokens(turn.window?.high_tokens), tokens(turn.window?.low_tokens), share(turn.prefix_kept),
    money(turn.cost_usd), moved.has(turn.request_id) ? nameKind(moved.get(turn.request_id).kind) : "",
  ]);
  return section(
    "All requests of the session",
    el("details", { "data-key": "turns" }, el("summary", {}, `${plural(turns.length, "request")} as a table`), table("The window at each request, oldest first", heads, rows, { key: "turns" })),
  );
}

function compacting(one) {
  const told = el("p", { role: "status" });
  const ask = async () => {
    try {
      await compact(one.id);
      told.textContent = "Its next request is cut.";
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      told.textContent = `Not asked: ${error.message}`;
    }
  };
  return section(
    "Compact now",
    el("p", {}, "The next request of this session is cut to low water, once, whether that pays or not."),
    el("p", { class: "buttons" }, el("button", { type: "button", "data-key": "Compact now", click: ask }, "Compact now")),
    told,
  );
}

function erasing(one, actions) {
  const button = (text, question, done, textOnly) =>
    el("button", { type: "button", class: "danger", "data-key": text, click: async () => {
      if (!(await confirmErasing(text, question))) return;
      try {
        await erase(one.id, { textOnly });
        done();
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        document.getElementById("alert").replaceChildren(el("p", { class: "error" }, `Not erased: ${error.message}`));
      }
    } }, text);
  return section(
    "Erase",
    el("p", {}, "Erasing changes no count, no stored summary and no log. It needs admin_token, if one is set."),
    el(
      "p",
      { class: "buttons" },
      one.has_text
        ? [button("Erase the text", "The texts of its messages and summaries are erased here. Its numbers stay.", actions.reload, true), " "]
        : null,
      button("Erase the session", "All requests of this session are erased from the dashboard.", () => { location.hash = "#/sessions"; }, false),
    ),
  );
}

/** Ask in a dialog. The focus returns to where it was. */
function confirmErasing(title, question) {
  const dialog = document.getElementById("dialog");
  document.getElementById("dialog-title").textContent = `${title}?`;
  document.getElementById("dialog-text").textContent = question;
  const [yes, no] = [document.getElementById("dialog-yes"), document.getElementById("dialog-no")];
  yes.onclick = () => dialog.close("yes");
  no.onclick = () => dialog.close("");
  dialog.returnValue = "";
  dialog.showModal();
  no.focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

