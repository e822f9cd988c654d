// The list of requests, and the page of one.

import { sectionBars, sectionRows, smallBar } from "./charts.js";
import { ApiError, read } from "./api.js";
import { changes } from "./changes.js";
import { el, section, table } from "./dom.js";
import { change, count, duration, exact, money, NONE, plural, share, time, tokens } from "./format.js";

const PAGE = 50;
const MOST = 1000;
const OUTCOMES = [
  "compacted", "unchanged", "cache_help", "recall", "observe", "off", "passed", "undecodable", "too_large", "refused",
  "limited", "busy", "failed_open", "broken", "aborted",
];
const BAD = new Set(["refused", "limited", "failed_open", "broken"]);

export const shortId = (id) => (id.length > 12 ? `${id.slice(0, 10)}\u2026` : id);

export const emptyState = () => {
  const base = new URL("../v1", document.baseURI).href;
  return el(
    "div",
    { class: "empty" },
    el("p", {}, "No request yet: point ", el("code", {}, "OPENAI_BASE_URL"), " at trimtab and send one."),
    el("pre", {}, `export OPENAI_BASE_URL=${base}`),
    el("p", {}, "If this page has an address of its own (", el("code", {}, "metrics_listen"), "), use the host and port of ", el("code", {}, "listen"), " instead."),
  );
};

/** What was saved, net; a loss is negative and says so. */
export function saved({ cost_usd: cost, without_usd: without }) {
  const isKnown = typeof cost === "number" && typeof without === "number";
  const net = isKnown ? without - cost : null;
  return net < 0 ? el("span", { class: "loss" }, money(net), " loss") : money(net);
}

const outcomeOf = (one) =>
  el("span", { class: `outcome ${BAD.has(one.outcome) || one.status >= 400 ? "bad" : one.outcome === "compacted" ? "good" : ""}` },
    one.outcome, one.status >= 400 ? ` ${one.status}` : "");

const requestLink = (one) =>
  el("a", { href: `#/requests/${encodeURIComponent(one.request_id)}`, "data-key": `request ${one.request_id}`, title: one.request_id }, time(one.at));

const sessionCell = (one) =>
  one.session
    ? el("a", { href: `#/sessions/${encodeURIComponent(one.session)}`, "data-key": `session of ${one.request_id}`, title: one.session }, shortId(one.session))
    : NONE;

export function requestTable(caption, found) {
  const heads = [
    { text: "When" }, { text: "Session" }, { text: "Model" }, { text: "Client" }, { text: "Outcome" },
    { text: "Messages", number: true }, { text: "Original", number: true }, { text: "Sent", number: true }, { text: "Part sent", hidden: true },
    { text: "Prefix kept", number: true }, { text: "Cost", number: true },
    { text: "Saved", number: true, title: "what it would have cost without trimtab, minus its cost" },
    { text: "Took", number: true },
  ];
  const rows = found.map((one) => [
    requestLink(one), sessionCell(one), one.model || one.label || one.path,
    one.client || el("span", { class: "quiet" }, "no name"), outcomeOf(one),
    one.messages ? count(one.messages) : NONE, one.original_tokens ? tokens(one.original_tokens) : NONE,
    one.sent_tokens ? tokens(one.sent_tokens) : NONE, smallBar(one.original_tokens, one.sent_tokens),
    share(one.prefix_kept), money(one.cost_usd), saved(one), duration(one.seconds),
  ]);
  return table(caption, heads, rows, { key: "requests" });
}

const filter = { outcome: "", model: "", client: "" };

export const requests = (actions) => {
  let wanted = PAGE;
  let known = { model: [], client: [] };
  const choose = (name, values, text) =>
    el("label", {}, `${text} `, el(
      "select",
      { "data-key": `filter ${name}`, change: (event) => { filter[name] = event.target.value; wanted = PAGE; actions.reload(); } },
      el("option", { value: "" }, "all"),
      values.map((value) => el("option", { value, selected: filter[name] === value }, value)),
    ));
  return {
    title: "Requests",
    load: async (signal) => {
      const all = [];
      let more = true;
      while (more && all.length < wanted) {
        const before = all.at(-1)?.request_id;
        const part = await read("requests", { limit: Math.min(wanted - all.length, 200), before, ...filter }, signal);
        all.push(...part.requests);
        more = part.more && part.requests.length > 0;
      }
      if (!known.model.length) known = (await read("sessions", { limit: 1 }, signal)).choices;
      for (const name of ["model", "client"]) {
        known[name] = [...new Set([...known[name], filter[name], ...all.map((one) => one[name])])].filter(Boolean).sort();
      }
      return { all, more };
    },
    listens: (name) => (name === "request" ? "reload" : null),
    show: ({ all, more }) => {
      const isFiltered = filter.outcome || filter.model || filter.client;
      if (!all.length && !isFiltered) return [emptyState()];
      const older = el("button", { type: "button", "data-key": "older", click: () => { wanted = Math.min(wanted + PAGE * 2, MOST); actions.reload(); } }, "Show older requests");
      return [
        el("p", { class: "choices" }, choose("outcome", OUTCOMES, "Outcome"), " ", choose("model", known.model, "Model"), " ", choose("client", known.client, "Client")),
        all.length ? requestTable(`${plural(all.length, "request")}, newest first`, all) : el("p", { class: "empty" }, "No request of this kind is kept."),
        more && wanted < MOST ? el("p", {}, older) : null,
      ];
    },
  };
};

export const request = (id) => ({
  title: `Request ${shortId(id)}`,
  load: async (signal) => {
    const found = await read(`requests/${encodeURIComponent(id)}`, {}, signal);
    const isMissing = !found.text && found.event.decisions.length > 0;
    const keepsText = isMissing && (await read("overview", {}, signal)).keeps_text;
    return { ...found, keepsText, place: await findPlace(found.event, signal) };
  },
  missing: () => el("p", { class: "empty" }, "This request is not kept, or no longer: it was erased, newer ones took its place, or trimtab was started again. ", el("a", { href: "#/requests" }, "All requests")),
  show: ({ event, text, keepsText, place }) => [
    el("p", { class: "lead" }, ...tellRequest(event)),
    place ? steps(place) : null,
    event.error ? el("p", { class: "error" }, el("strong", {}, event.error), " ", event.reason) : null,
    facts(event),
    storyOf(event, text),
    sections(event),
    decisions(event),
    ...changes(event, text, keepsText),
  ],
});

/** The place of a request in its session: {number, total, previous, next}; null if it is not among those kept. */
async function findPlace(event, signal) {
  if (!event.session) return null;
  try {
    const { session, turns, more } = await read(`sessions/${encodeURIComponent(event.session)}`, {}, signal);
    const index = turns.findIndex((turn) => turn.request_id === event.request_id);
    if (index < 0) return null;
    const total = more ? Math.max(session.requests, turns.length) : turns.length;
    return { number: total - turns.length + index + 1, total, previous: turns[index - 1], next: turns[index + 1] };
  } catch (error) {
    if (error instanceof ApiError) return null;
    throw error;
  }
}

function steps({ number, total, previous, next }) {
  const step = (one, text) =>
    one
      ? el("a", { href: `#/requests/${encodeURIComponent(one.request_id)}`, "data-key": text }, text)
      : el("span", { class: "quiet" }, text === "Next request" ? "It is the newest." : "No earlier one is shown.");
  return el("nav", { class: "steps", "aria-label": "Requests of the session" },
    el("span", {}, `Request ${exact(number)} of ${exact(total)}`), step(previous, "Previous request"), step(next, "Next request"));
}

const tellRequest = (event) => [
  el("strong", {}, event.model || event.label || `${event.method} ${event.path}`),
  event.client ? `, client ${event.client}` : "", ", ", time(event.at), ". ",
  event.session ? el("a", { href: `#/sessions/${encodeURIComponent(event.session)}`, "data-key": "session" }, `Session ${shortId(event.session)}`) : "",
];

function facts(event) {
  const fact = (title, ...value) => el("div", {}, el("dt", {}, title), el("dd", {}, value));
  const list = [
    fact("Outcome", outcomeOf(event), ` (status ${event.status})`),
    fact("Prompt", tokens(event.original_tokens, "original_tokens"), " original, ", tokens(event.sent_tokens, "sent_tokens"), " sent, limit ", tokens(event.limit_tokens)),
    fact("The upstream reports", typeof event.prompt_tokens === "number" ? [tokens(event.prompt_tokens), " prompt, "] : "no prompt tokens, ",
      typeof event.cached_tokens === "number" ? [tokens(event.cached_tokens), " of them cached, "] : "",
      tokens(event.completion_tokens), event.is_estimated ? " completion (estimated)" : " completion"),
    fact("Prefix kept", share(event.prefix_kept), event.cache_miss ? `; cache miss: ${event.cache_miss}` : ""),
    fact("Money", "cost ", money(event.cost_usd), event.summary_id ? " (without that of the summary)" : "", "; without trimtab ", money(event.without_usd)),
    fact("Time", duration(event.seconds), `, of which trimtab ${duration(event.overhead_seconds)}`,
      typeof event.first_token_seconds === "number" ? `; first token after ${duration(event.first_token_seconds)}` : ""),
    fact("Request", el("code", {}, event.request_id), event.worker ? `, worker ${event.worker}` : "", event.upstream ? `, to ${event.upstream}` : ""),
    event.summary_id ? fact("Summary", el("code", {}, event.summary_id), `, ${event.summary_kind}, for ${plural(event.summary_messages, "message")}`,
      event.summary_instead ? `; instead of a summary: ${event.summary_instead}` : "") : null,
    event.cut_moved ? fact("The cut moved here", typeof event.cut_tokens === "number" ? [tokens(event.cut_tokens), " tokens read again, for ", money(event.cut_cost_usd)] : "what it cost is not known") : null,
    event.retry ? fact("Second attempt", event.retry) : null,
  ];
  return el("dl", { class: "facts" }, list);
}

function storyOf(event, text) {
  const sentences = text?.sentences?.length ? text.sentences : (event.story ?? []);
  if (!sentences.length) return null;
  return section("What was done", el("ol", { class: "story" }, sentences.map((one) => el("li", {}, typeof one === "string" ? one : one.text))));
}

function sections(event) {
  if (!event.original_tokens) return section("Sections", el("p", { class: "empty" }, "The prompt was not counted, because it was not decoded."));
  const [from, to] = [event.original_sections ?? {}, event.sent_sections ?? {}];
  const heads = [{ text: "Section" }, { text: "Original", number: true }, { text: "Sent", number: true }, { text: "Change", number: true }];
  return section(
    "Sections before and after",
    el("figure", {}, sectionBars([["original", from, event.original_tokens], ["sent", to, event.sent_tokens]], event.limit_tokens)),
    table("Prompt tokens by section", heads, sectionRows(from, to), { hideCaption: true }),
  );
}

function decisions(event) {
  if (!event.decisions.length) return section("Decisions", el("p", { class: "empty" }, "None: the prompt was forwarded unchanged."));
  const heads = [
    { text: "Rule" }, { text: "Reason" }, { text: "Before", number: true }, { text: "After", number: true },
    { text: "Change", number: true }, { text: "Messages", number: true }, { text: "First", number: true, title: "the first message that it changed; messages are numbered from 0" },
    { text: "Limit", number: true }, { text: "Attempt", number: true },
  ];
  const rows = event.decisions.map((one) => [
    one.rule, one.reason, tokens(one.tokens_before), tokens(one.tokens_after),
    one.tokens_after === one.tokens_before ? "0" : change(one.tokens_after - one.tokens_before), count(one.messages),
    exact(one.first_changed), tokens(one.limit_tokens), exact(one.attempt),
  ]);
  return section("Decisions", table("In the order in which they were made; messages are numbered from 0", heads, rows, { key: "decisions" }));
}
