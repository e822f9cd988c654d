"""The JSON of requests, sessions, minutes and texts.

Law: figures and names that may be logged, and texts that are kept. Money is in US dollars. Bounded time.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from difflib import SequenceMatcher
from io import BytesIO
from typing import Any

import orjson

from trimtab.proxy.account.history.sessions import Session
from trimtab.proxy.account.history.table import FIGURES, STEP_SECONDS, Turn
from trimtab.proxy.account.history.texts import unpack_text
from trimtab.proxy.account.outcome import Outcome, keep
from trimtab.proxy.account.statistics.books import DAY_SECONDS, NO_CLIENT, Place, Sums
from trimtab.proxy.catalogue.prices import to_dollars
from trimtab.proxy.telemetry.ledger import COLD_CACHE, COMPACT_NOW, TOO_SHORT
from trimtab.rules.pipeline.changes import Change
from trimtab.rules.pipeline.story import tell_decision
from trimtab.rules.tokens.sections import Sections

Json = dict[str, Any]
Line = dict[str, str]
StepSums = tuple[int, str, str, list[int]]
"""The time of a step, `models`, `clients` or nothing for all, the name of one, and its FIGURES."""
SPLIT_DEPTH = 2
"""Source: the changes of a request are the deepest long list: they stand in its text, and this in the answer."""
MAX_PAIRS = 50_000
"""Pairs of equal lines that are compared. Chosen: such a diff takes some tenths of a second in the worst case."""
NEAR_HIGH = 0.9
"""Sizes are estimated, so high water is reached at this share of it. Chosen: the estimate lacks what was shortened."""
MAX_BUCKETS = 120
"""Buckets of a timeline. Chosen: as many as a picture can show."""


def write_json(value: Any, depth: int = SPLIT_DEPTH) -> bytes:
    """JSON, to be written in a thread.

    The items of lists are written one by one, because orjson lets nothing else run meanwhile.
    """
    written = BytesIO()
    _write(value, depth, written.write)
    return written.getvalue()


def _write(value: Any, depth: int, write: Callable[[bytes], object]) -> None:
    if isinstance(value, dict) and value and depth:
        before = b"{"
        for name, each in value.items():
            write(before + orjson.dumps(str(name)) + b":")
            _write(each, depth - 1, write)
            before = b","
        write(b"}")
    elif isinstance(value, list) and value:
        before = b"["
        for each in value:
            write(before)
            write(orjson.dumps(each))
            before = b","
        write(b"]")
    else:
        write(orjson.dumps(value))


def shape_request(turn: Turn) -> Json:
    """A request. Without kept sentences, its story is written from its decisions."""
    event = turn.event
    shaped = shape_event(event)
    shaped["cut_moved"], shaped["cut_tokens"] = turn.cut_moved, turn.cut_tokens
    shaped["cut_cost_usd"] = to_dollars(turn.cut_cost)
    shaped["worker"] = turn.worker
    why = shaped["cut_why"] = tell_why(event, turn.cut_from_tokens) if turn.cut_moved else ""
    brief = [*([f"The cut moved: {why}."] if why else []), *tell_briefly(event)]
    shaped["story"] = brief if turn.sentences is None else list(turn.sentences)
    return shaped


def tell_why(event: Outcome, uncut_tokens: int | None) -> str:
    """Why the cut has moved at a request, in words. `uncut_tokens`: about what would have been forwarded else."""
    rules = {one.rule: one.reason for one in event.decisions}
    if (asked := rules.get(COMPACT_NOW)) is not None and asked != TOO_SHORT:
        return "somebody asked for it"
    if (cold := rules.get(COLD_CACHE)) is not None:
        return f"{cold}, so a cut broke no cache"
    if event.retry:
        return "the upstream refused the prompt as too long"
    size, high = uncut_tokens or 0, 0 if event.window is None else event.window.high_tokens
    if size > event.limit_tokens:
        return f"about {size:,} tokens did not fit the limit of {event.limit_tokens:,}"
    if size >= high * NEAR_HIGH:
        return f"with about {size:,} tokens it had reached high water ({high:,}), and a cut paid"
    return "a limit of the configuration was reached" if size else ""


def shape_event(event: Outcome) -> Json:
    """The figures of a request, with sections by name and money in dollars; no section if it was not counted."""
    shaped = keep(event)
    for name in ("original_sections", "sent_sections"):
        shaped[name] = dict(zip(Sections._fields, shaped[name], strict=False))
    return shaped | {"cost_usd": to_dollars(shaped.pop("cost")), "without_usd": to_dollars(shaped.pop("without_cost"))}


def tell_briefly(event: Outcome) -> list[str]:
    """What was done, in sentences: from the decisions, so without the names of tools and without places."""
    again = "In the second attempt: "
    return [f"{again if one.attempt > 1 else ''}{tell_decision(one)}" for one in event.decisions]


def shape_session(session: Session) -> Json:
    """A session. `cost_usd` includes its summaries, if the price of a request is known."""
    last, cost = session.last, session.cost
    has_summaries = cost is not None or session.summary_cost
    return {
        "id": session.name,
        "title": session.title,
        "header": session.header,
        "first_at": session.first_at,
        "last_at": last.at,
        "requests": session.requests,
        "model": last.model,
        "client": last.client,
        "messages": last.messages,
        "original_tokens": last.original_tokens,
        "sent_tokens": last.sent_tokens,
        "limit_tokens": last.limit_tokens,
        "saved_tokens": session.saved_tokens,
        "cost_usd": None if cost is None else to_dollars(cost + session.summary_cost),
        "without_usd": to_dollars(session.without_cost),
        "summary_usd": to_dollars(session.summary_cost) if has_summaries else None,
        "last_outcome": last.outcome,
        "digest_instead": last.summary_instead,
        "has_text": bool(session.has_text),
        "cuts": session.cuts,
    }


def choose_step(minutes: int) -> int:
    """The length of a bucket in seconds, for a timeline of so many minutes."""
    return STEP_SECONDS * max(1, -(-minutes // MAX_BUCKETS))


def shape_timeline(sums: Iterable[StepSums], start: int, stop: int, step_seconds: int) -> Json:
    """The timeline from one time to another, without holes."""
    nothing = dict.fromkeys(FIGURES, 0)
    buckets = {
        at: {"at": float(at), **_show_money(nothing), **dict[str, Any](models={}, clients={})}
        for at in range(start, stop, step_seconds)
    }
    for at, kind, name, figures in sums:
        shown = _show_money(dict(zip(FIGURES, figures, strict=True)))
        if not kind:
            buckets[at].update(shown)
        else:
            del shown["cached_tokens"], shown["fail_opens"]
            buckets[at][kind][name] = shown
    return {"step_seconds": step_seconds, "buckets": list(buckets.values())}


def shape_days(rows: Iterable[tuple[Place, Sums]], first_day: str, last_day: str) -> Json:
    """The timeline of some days in UTC, as the books have them. They know no requests that failed."""
    kept: dict[tuple[int, str, str], Sums] = {}
    for (day, model, client), sums in rows:
        for kind, name in (("", ""), ("models", model), ("clients", client)):
            if name != NO_CLIENT:
                place = _find_start(day), kind, name
                kept[place] = kept.get(place, Sums()) + sums
    steps = [(*place, _pick_figures(sums)) for place, sums in kept.items()]
    return shape_timeline(steps, _find_start(first_day), _find_start(last_day) + DAY_SECONDS, DAY_SECONDS)


def _find_start(day: str) -> int:
    """When a day begins, in seconds since 1970."""
    return (date.fromisoformat(day) - date(1970, 1, 1)).days * DAY_SECONDS


def _pick_figures(sums: Sums) -> list[int]:
    priced = sums.requests - sums.unpriced_requests + sums.summaries - sums.unpriced_summaries
    tokens = sums.original_tokens, sums.sent_tokens, sums.cached_tokens
    return [sums.requests, *tokens, 0, 0, priced, sums.cost_nanodollars, sums.without_nanodollars]


def _show_money(figures: Json) -> Json:
    """The figures with money in dollars. It is not known if there were requests, and none of them has a known price."""
    shown = dict(figures)
    priced, cost, without = (shown.pop(name) for name in ("priced", "cost", "without_cost"))
    is_known = priced or not figures["requests"]
    amounts = {"cost_usd": cost, "without_usd": without, "saved_usd": without - cost}
    return shown | {name: to_dollars(amount) if is_known else None for name, amount in amounts.items()}


def shape_text(pack: bytes) -> Json:
    text = unpack_text(pack)
    # The changes are written at once: a dictionary for each line of all texts would be freed on the event loop.
    changes = [orjson.Fragment(orjson.dumps(_shape_change(change))) for change in text.changes]
    return {"sentences": text.sentences, "changes": changes, "summary": text.summary}


def _shape_change(change: Change) -> Json:
    return {**change.describe(with_texts=True), "lines": diff_lines(change.before, change.after)}


def diff_lines(before: str, after: str) -> list[Line]:
    """The lines of both texts: same, removed or added. What would take long is shown as removed and added."""
    old, new = before.splitlines(), after.splitlines()
    counts = Counter(new)
    if not old or not new or sum(counts[line] for line in old) > MAX_PAIRS:
        return [*_mark("removed", old), *_mark("added", new)]
    lines: list[Line] = []
    for kind, old_start, old_stop, new_start, new_stop in SequenceMatcher(None, old, new).get_opcodes():
        if kind == "equal":
            lines += _mark("same", old[old_start:old_stop])
        else:
            lines += _mark("removed", old[old_start:old_stop])
            lines += _mark("added", new[new_start:new_stop])
    return lines


def _mark(kind: str, lines: list[str]) -> Iterator[Line]:
    return ({"kind": kind, "text": line} for line in lines)
