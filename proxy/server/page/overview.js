// The overview: what all requests since the start add up to.

import { legend, timeChart } from "./charts.js";
import { read } from "./api.js";
import { el, section, table } from "./dom.js";
import {
  axisDollars, axisTokens, count, dayText, dollars, exact, money, NONE, percent, plural, savedShare, share, time, timeText, tokens,
} from "./format.js";
import { emptyState, requestTable } from "./requests.js";

const NEWEST = 10;
const PERIODS = [[15, "15 minutes"], [60, "1 hour"], [360, "6 hours"], [1440, "24 hours"], [10_080, "7 days"], [43_200, "30 days"]];
const DAY = 1440; // longer periods are sums of days in UTC, from the store
const chosen = { minutes: 60, of: "" };

export const overview = (actions) => ({
  title: "Overview",
  isOverview: true,
  drifts: true,
  load: async (signal) => {
    const [all, timeline, newest] = await Promise.all([
      read("overview", {}, signal),
      read("timeline", chosen.minutes > DAY ? { days: chosen.minutes / DAY } : { minutes: chosen.minutes }, signal),
      read("requests", { limit: NEWEST }, signal),
    ]);
    return { all, timeline, newest: newest.requests };
  },
  listens: (name, event, data) => (name === "totals" ? { ...data, all: { ...data.all, totals: event } } : "reload"),
  show: (data) => {
    showVersion(data.all);
    const told = [...alarms(data.all), ...notes(data.all)];
    if (!data.all.totals.requests && !data.newest.length) return [...told, emptyState()];
    return [
      ...told,
      el("p", { class: "lead" }, ...lead(data.all)),
      figures(data.all.totals),
      ...thisWeek(data.all.week),
      overTime(data, actions),
      ...byModel(data.all.by_model),
      ...byClient(data.all.by_client),
      section("Newest requests", requestTable("The newest requests", data.newest), el("p", {}, el("a", { href: "#/requests", "data-key": "all requests" }, "All requests"))),
    ];
  },
});

function showVersion(all) {
  document.getElementById("version").textContent = all.version;
}

function lead(all) {
  const mode = {
    observe: "Mode observe: decisions are made and counted, but the original prompts are forwarded.",
    off: "Mode off: nothing is compacted.",
  }[all.mode];
  const upstreams = (all.upstreams ?? []).join(", ");
  return [
    "Since ", time(all.started_at), all.workers > 1 ? `, ${all.workers} worker processes` : "",
    upstreams ? `, in front of ${upstreams}` : "", ". ", mode ?? "",
  ];
}

/** What is wrong now, each with its reason and its remedy. */
const alarms = (all) =>
  (all.alarms ?? []).length
    ? [el("ul", { class: "notes alarms", "aria-label": "What is wrong now" }, all.alarms.map((one) =>
      el("li", {}, el("strong", {}, one.reason), `: ${one.remedy}`)))]
    : [];

const notes = (all) =>
  (all.notes ?? []).length
    ? [el("ul", { class: "notes", "aria-label": "Notes" }, all.notes.map((note) => el("li", {}, note.text)))]
    : [];

const figure = (title, value, note, kind = null) =>
  el("div", { class: kind }, el("dt", {}, title), el("dd", { class: "value" }, value), el("dd", { class: "note" }, note));

function figures(all) {
  const saved = savedShare(all.original_tokens, all.sent_tokens);
  const isLoss = all.net_usd < 0;
  const drift = all.estimate_error === null ? null : all.estimate_error - 1;
  return el(
    "dl",
    { class: "figures" },
    figure("Prompt tokens saved", share(saved, "saved_share"), [
      tokens(all.original_tokens, "original_tokens"), " original, ", tokens(all.sent_tokens, "sent_tokens"), " sent",
    ]),
    figure(
      isLoss ? "Net loss" : "Net money saved",
      money(all.net_usd, "net_usd"),
      all.net_usd === null || all.net_usd === undefined ? "no price in US dollars is known" : [
        "cost ", money(all.cost_usd, "cost_usd"), ", of which summaries ", money(all.summary_usd, "summary_usd"),
        "; without trimtab ", money(all.without_usd, "without_usd"),
      ],
      isLoss ? "bad" : "good",
    ),
    figure("Prefix kept", share(all.prefix_kept, "prefix_kept"), [
      "the upstream read ", share(all.cached_share, "cached_share"), " from its prompt cache: ",
      tokens(all.cached_tokens, "cached_tokens"), " tokens; written: ", tokens(all.written_tokens, "written_tokens"),
    ]),
    figure(
      "Estimate error",
      el("data", { value: all.estimate_error ?? "", "data-name": "estimate_error", title: "the upstream\u2019s prompt tokens, divided by trimtab\u2019s estimate" },
        drift === null ? NONE : `${drift > 0 ? "+" : ""}${percent(drift)}`),
      "what upstreams count beyond trimtab\u2019s estimate",
    ),
    figure("Requests", count(all.requests, "requests"), [
      count(all.answered, "answered"), " answered, ", el("span", { class: all.failed ? "loss" : null }, count(all.failed, "failed"), " failed",
        all.failed ? ` (${percent(all.failed / all.requests)})` : ""), ", ", count(all.in_flight, "in_flight"), " in flight; ",
      tokens(all.completion_tokens, "completion_tokens"), " completion tokens",
    ], all.failed > all.requests / 20 ? "bad" : null),
    figure("Summaries", count(all.summaries, "summaries"), [
      "in ", count(all.summary_calls, "summary_calls"), " calls, of which ", count(all.summaries_failed, "summaries_failed"),
      " failed or were rejected; reused ", count(all.summaries_reused, "summaries_reused"), "; they took ",
      tokens(all.summary_prompt_tokens, "summary_prompt_tokens"), " prompt and ",
      tokens(all.summary_completion_tokens, "summary_completion_tokens"), " completion tokens",
    ]),
    figure("Requests with a cut", [
      count(all.cuts_summarised, "cuts_summarised"), " + ", count(all.cuts_digested, "cuts_digested"), " + ", count(all.cuts_pruned, "cuts_pruned"),
    ], [
      "with a summary, with a digest, with pruned tool results; one may have two kinds. Sessions with digests instead of summaries: ",
      count(all.sessions_without_summaries, "sessions_without_summaries"),
    ]),
    figure("Recoveries", count(all.recoveries, "recoveries"), [
      "prompts that the upstream refused as too long: ", count(all.overflow_refusals, "overflow_refusals"),
    ]),
    figure(
      "Fail-opens",
      count(all.fail_opens, "fail_opens"),
      all.fail_opens ? "faults inside trimtab; the log has each" : "no fault inside trimtab",
      all.fail_opens ? "bad" : null,
    ),
  );
}

/** The sums of the last seven days, which survive restarts; nothing if the store cannot tell. */
function thisWeek(week) {
  if (!week) return [];
  const isLoss = week.net_usd < 0;
  const heads = [
    { text: "Days" }, { text: "Answered", number: true }, { text: "Original", number: true }, { text: "Sent", number: true },
    { text: "Tokens saved", number: true }, { text: "Cost", number: true }, { text: "Without", number: true },
    { text: isLoss ? "Net loss" : "Net saved", number: true, title: "what summaries have cost is subtracted" },
  ];
  const row = [
    `the last ${week.days}`, count(week.requests), tokens(week.original_tokens), tokens(week.sent_tokens),
    share(savedShare(week.original_tokens, week.sent_tokens)), money(week.cost_usd), money(week.without_usd),
    money(week.net_usd),
  ];
  const gap = week.unpriced_requests && week.net_usd !== null
    ? [el("p", {}, `The money lacks ${plural(week.unpriced_requests, "request")} without a known price.`)] : [];
  return [section("This week", table("The last seven days in UTC, across restarts", heads, [row], { key: "week" }), ...gap)];
}

function overTime(data, actions) {
  const { buckets, step_seconds: step } = data.timeline;
  const pick = picker(chosen.of);
  const names = (part) => [...new Set(buckets.flatMap((bucket) => Object.keys(bucket[part] ?? {})))].sort();
  const groups = [["models", "Model"], ["clients", "Client"]].map(([part, title]) => [part, title, names(part)]);
  const choice = el(
    "select",
    { "data-key": "time of", change: (event) => { chosen.of = event.target.value; actions.redraw(); } },
    el("option", { value: "" }, "all requests"),
    groups.filter(([, , found]) => found.length).map(([part, title, found]) =>
      el("optgroup", { label: title }, found.map((name) =>
        el("option", { value: `${part} ${name}`, selected: chosen.of === `${part} ${name}` }, name)))),
  );
  const period = el(
    "select",
    { "data-key": "time period", change: (event) => { chosen.minutes = Number(event.target.value); actions.reload(); } },
    PERIODS.map(([minutes, text]) => el("option", { value: minutes, selected: chosen.minutes === minutes }, text)),
  );
  return section(
    "Over time",
    el("p", { class: "choices" }, el("label", {}, "Last ", period), " ", el("label", {}, "of ", choice)),
    el("div", { class: "pair" }, tokenChart(buckets, pick, step), moneyChart(buckets, pick, step)),
    el("details", { "data-key": "time table" }, el("summary", {}, "The same as a table"), timeTable(buckets, pick, step)),
  );
}

/** A function that takes from a bucket the part that was chosen: all, or one model or client. */
function picker(of) {
  if (!of) return (bucket) => bucket;
  const [part, name] = [of.slice(0, of.indexOf(" ")), of.slice(of.indexOf(" ") + 1)];
  return (bucket) => {
    const found = (bucket[part] ?? {})[name];
    return { requests: 0, original_tokens: 0, sent_tokens: 0, cost_usd: 0, saved_usd: 0, ...found };
  };
}

const isDays = (step) => step >= DAY * 60;
const atOf = (buckets, step) => (index) => (isDays(step) ? dayText(buckets[index].at) : timeText(buckets[index].at, { seconds: false }));

function tokenChart(buckets, pick, step) {
  const original = buckets.map((bucket) => pick(bucket).original_tokens);
  const sent = buckets.map((bucket) => pick(bucket).sent_tokens);
  const sum = (values) => exact(values.reduce((total, value) => total + value, 0));
  return el(
    "figure",
    {},
    el("figcaption", {}, "Prompt tokens"),
    legend([["area-original", "original"], ["area-sent", "sent"]]),
    timeChart({
      name: "over-time",
      series: [
        { name: "original", text: "original", kind: "bar", values: original },
        { name: "sent", text: "sent", kind: "bar", values: sent },
      ],
      at: atOf(buckets, step),
      write: axisTokens,
      writeLong: exact,
      label: `Prompt tokens over time: ${sum(original)} original, ${sum(sent)} sent`,
    }),
  );
}

function moneyChart(buckets, pick, step) {
  const cost = buckets.map((bucket) => pick(bucket).cost_usd);
  const saved = buckets.map((bucket) => pick(bucket).saved_usd);
  const caption = el("figcaption", {}, "Money, in US dollars");
  if (![...cost, ...saved].some((value) => value !== null && value !== undefined && value !== 0)) {
    return el("figure", {}, caption, el("p", { class: "empty" }, "No cost is known in this period."));
  }
  const add = (values) => dollars(values.reduce((total, value) => total + (value ?? 0), 0));
  return el(
    "figure",
    {},
    caption,
    legend([["area-saved", "saved, net"], ["area-loss", "loss"], ["line-cost", "cost"]]),
    timeChart({
      name: "over-time",
      series: [
        { name: "saved", text: "saved", kind: "bar", values: saved.map((value) => value ?? null) },
        { name: "cost", text: "cost", kind: "line", values: cost.map((value) => value ?? null) },
      ],
      at: atOf(buckets, step),
      write: axisDollars,
      writeLong: dollars,
      label: `Money over time: cost ${add(cost)}, saved ${add(saved)}`,
    }),
  );
}

function timeTable(buckets, pick, step) {
  const heads = [
    { text: "From" }, { text: "Requests", number: true }, { text: "Original", number: true },
    { text: "Sent", number: true }, { text: "Cost", number: true }, { text: "Saved", number: true },
  ];
  const rows = buckets
    .map((bucket) => [bucket.at, pick(bucket)])
    .filter(([, one]) => one.requests || one.cost_usd)
    .map(([at, one]) => [
      isDays(step) ? dayText(at) : time(at), count(one.requests), tokens(one.original_tokens), tokens(one.sent_tokens), money(one.cost_usd),
      money(one.saved_usd),
    ])
    .reverse();
  if (!rows.length) return el("p", { class: "empty" }, "No request in this period.");
  return table(`In steps of ${isDays(step) ? "one day in UTC, answered requests only" : plural(step, "second")}, without empty ones`, heads, rows, { key: "time" });
}

function byModel(models) {
  if (!models?.length) return [];
  const heads = [
    { text: "Model" }, { text: "Requests", number: true }, { text: "Failed", number: true }, { text: "Original", number: true },
    { text: "Sent", number: true }, { text: "Saved", number: true }, { text: "Prefix kept", number: true },
    { text: "Cached", number: true, title: "read from the upstream\u2019s prompt cache" },
    { text: "Estimate", number: true, title: "what the upstream counts, divided by trimtab\u2019s estimate" },
    { text: "Cost", number: true }, { text: "Without", number: true, title: "what it would have cost without trimtab" },
    { text: "Net", number: true }, { text: "Summaries", number: true }, { text: "Recoveries", number: true },
  ];
  const rows = models.map((one) => [
    one.name, count(one.requests), el("span", { class: one.failed ? "loss" : null }, count(one.failed)), tokens(one.original_tokens), tokens(one.sent_tokens),
    share(savedShare(one.original_tokens, one.sent_tokens)), share(one.prefix_kept), share(one.cached_share),
    one.estimate_error === null || one.estimate_error === undefined ? NONE : `\u00d7${one.estimate_error.toFixed(3)}`,
    money(one.cost_usd), money(one.without_usd), money(one.net_usd), count(one.summaries), count(one.recoveries),
  ]);
  return [section("By model", table("Models, by their label in the metrics", heads, rows, { key: "models", hideCaption: true }))];
}

function byClient(clients) {
  if (!clients?.length) return [];
  const heads = [
    { text: "Client" }, { text: "Requests", number: true }, { text: "Original", number: true },
    { text: "Sent", number: true }, { text: "Saved", number: true }, { text: "Completion", number: true },
  ];
  const rows = clients.map((one) => [
    one.name, count(one.requests), tokens(one.original_tokens), tokens(one.sent_tokens),
    share(savedShare(one.original_tokens, one.sent_tokens)), tokens(one.completion_tokens),
  ]);
  return [section("By client", table("Clients with a name in client_keys", heads, rows, { key: "clients", hideCaption: true }))];
}
