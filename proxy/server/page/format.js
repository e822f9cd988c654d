// Writes numbers and times. Law: what is shortened has its exact value in a title.

import { el } from "./dom.js";

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const exactMoney = new Intl.NumberFormat("en-US", { style: "currency", currency: "USD", maximumFractionDigits: 9 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const shortClock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const utcDay = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
const full = new Intl.DateTimeFormat("en-GB", { dateStyle: "full", timeStyle: "long" });

export const NONE = "\u2013";

const minus = (text) => text.replace("-", "\u2212");
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

/** All digits, with thousands separators. */
export const exact = (value) => (known(value) ? minus(whole.format(value)) : NONE);

/** At most four digits: 9,876, 12.3k, 4.56M. */
export function short(value) {
  if (!known(value)) return NONE;
  const size = Math.abs(value);
  if (size < 9999.5) return exact(value);
  const [unit, sign] = size < 999_500 ? [1e3, "k"] : size < 999_500_000 ? [1e6, "M"] : [1e9, "G"];
  const shown = size / unit;
  return minus((Math.sign(value) * shown).toFixed(shown < 9.995 ? 2 : shown < 99.95 ? 1 : 0) + sign);
}

/** Numbers of an axis, without needless zeros. */
export const axisTokens = (value) => short(value).replace(/(\.\d*?)0+(?=[kMG])/, "$1").replace(/\.(?=[kMG])/, "");
export const axisDollars = (value) => `${value < 0 ? "\u2212" : ""}$${Number(Math.abs(value).toPrecision(6))}`;

/** US dollars: two decimals from a dollar on, else four. */
export function dollars(value) {
  if (!known(value)) return NONE;
  const size = Math.abs(value);
  if (size === 0) return "$0";
  if (size < 0.0001) return value < 0 ? "\u2212<$0.0001" : "<$0.0001";
  const text = size.toFixed(size >= 0.9995 ? 2 : 4);
  const grouped = size >= 1000 ? exactMoney.format(Number(text)).slice(1) : text;
  return `${value < 0 ? "\u2212" : ""}$${grouped}`;
}

/** Per cent of a share of 1. */
export function percent(value) {
  if (!known(value)) return NONE;
  const size = Math.abs(value * 100);
  return minus(`${(value * 100).toFixed(size >= 99.95 || size === 0 ? 0 : 1)}\u00a0%`);
}

const data = (value, title, text, name) =>
  el("data", { value: known(value) ? value : "", title, "data-name": name }, text);

/** Elements with a short text and the exact value. `name` says which number it is. */
export const count = (value, name) =>
  data(value, known(value) && short(value) !== exact(value) ? exact(value) : null, short(value), name);
export const tokens = (value, name) =>
  data(value, known(value) ? `${exact(value)} tokens` : "not known", short(value), name);
/** A difference, with its sign. */
export const change = (value) =>
  known(value) && value > 0 ? data(value, `+${exact(value)} tokens`, `+${short(value)}`) : tokens(value);
export const money = (value, name) =>
  data(
    value,
    known(value) ? minus(exactMoney.format(value)) : "No price in US dollars is known for this model",
    dollars(value),
    name,
  );
export const share = (value, name) =>
  data(value, known(value) ? `${value.toFixed(5)} of 1` : "not known", percent(value), name);

/** The share of prompt tokens that was saved. */
export const savedShare = (original, sent) => (original ? (original - sent) / original : null);

/** 0.84 s, 12.3 s, 2 min 5 s. */
export function duration(seconds) {
  if (!known(seconds)) return NONE;
  if (seconds < 0.9995) return `${exact(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(seconds < 9.995 ? 2 : 1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

const date = (at) => new Date(at * 1000);

/** The time of day, with the date if that is not today. */
export function timeText(at, { seconds = true } = {}) {
  const text = (seconds ? clock : shortClock).format(date(at));
  return date(at).toDateString() === new Date().toDateString() ? text : `${day.format(date(at))}, ${text}`;
}

/** The day of a time, in UTC, as the books count days. */
export const dayText = (at) => utcDay.format(date(at));

export const time = (at, options) =>
  el("time", { datetime: date(at).toISOString(), title: full.format(date(at)) }, timeText(at, options));

export const plural = (value, one, many = `${one}s`) => `${exact(value)} ${value === 1 ? one : many}`;
