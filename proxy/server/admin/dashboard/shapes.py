"""The JSON of turns, sessions and minutes.

Law: figures and names that may be logged. Money is in US dollars.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO
from typing import Any

import orjson

from proxy.account.history.event import Event
from proxy.account.history.sessions import SessionSums
from proxy.account.history.timeline import Bucket, Share
from proxy.account.history.turn import Turn
from proxy.account.outcome import keep
from proxy.state.catalogue.costs import to_dollars
from rules.pipeline.story import tell_decision
from rules.tokens.sections import Sections

Json = dict[str, Any]
SPLIT_DEPTH = 2
"""Source: the changes of a request are the deepest long list: they stand in its text, and this in the answer."""


def write_json(value: Any, depth: int = SPLIT_DEPTH) -> bytes:
    """JSON, to be written in a thread. The keys of a dictionary may be numbers.

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


def write_pieces(value: Any) -> BytesIO:
    """A part for another worker, as lines: all but the items of its lists, then each item with its place."""
    written, items = BytesIO(), list[tuple[bytes, Any]]()
    written.write(orjson.dumps(_take_items(value, SPLIT_DEPTH, (), items), option=orjson.OPT_NON_STR_KEYS) + b"\n")
    for place, item in items:
        written.write(place + b"\t" + orjson.dumps(item) + b"\n")
    _ = written.seek(0)
    return written


def _take_items(value: Any, depth: int, place: tuple[str, ...], items: list[tuple[bytes, Any]]) -> Any:
    """The value with empty lists; their items are added to `items`."""
    if isinstance(value, dict) and depth:
        return {name: _take_items(each, depth - 1, (*place, str(name)), items) for name, each in value.items()}
    if isinstance(value, list):
        encoded = orjson.dumps(place)
        items += ((encoded, item) for item in value)
        return []
    return value


def read_pieces(written: BytesIO) -> Any:
    """The part of `write_pieces`, to be read in a thread. Raises ValueError if this is no JSON.

    Items of inner lists stay JSON: nobody looks into them, and to free their values would hold up the event loop.
    """
    value = orjson.loads(written.readline())
    for line in written:
        place, _, item = line.partition(b"\t")
        names, found = orjson.loads(place), value
        for name in names:
            found = found[name]
        found.append(orjson.Fragment(item.rstrip()) if len(names) == SPLIT_DEPTH else orjson.loads(item))
    return value


def shape_turn(turn: Turn, worker: int, story: Sequence[str] | None = None) -> Json:
    """A request. `story`: its sentences, if they are kept; else they are written from its decisions."""
    event = turn.event
    shaped = shape_event(event)
    shaped["cut_moved"], shaped["cut_tokens"] = turn.cut_moved, turn.cut_tokens
    shaped["cut_cost_usd"] = to_dollars(turn.cut_cost)
    shaped["worker"] = worker
    shaped["story"] = list(tell_briefly(event) if story is None else story)
    return shaped


def shape_event(event: Event) -> Json:
    """The figures of a request, with sections by name and money in dollars; no section if it was not counted."""
    shaped = keep(event)
    for name in ("original_sections", "sent_sections"):
        shaped[name] = dict(zip(Sections._fields, shaped[name], strict=False))
    return shaped | {"cost_usd": to_dollars(shaped.pop("cost")), "without_usd": to_dollars(shaped.pop("without_cost"))}


def tell_briefly(event: Event) -> list[str]:
    """What was done, in sentences: from the decisions, so without the names of tools and without places."""
    again = "In the second attempt: "
    return [f"{again if one.attempt > 1 else ''}{tell_decision(one)}" for one in event.decisions]


def shape_session(name: str, session: SessionSums, *, has_text: bool) -> Json:
    """A session of one worker. `marks`: its cuts, for merging. `cost_usd` leaves out summaries; merging adds them."""
    last = session.last
    return {
        "id": name,
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
        "cost_usd": to_dollars(session.cost),
        "without_usd": to_dollars(session.without_cost),
        "summary_usd": to_dollars(session.summary_cost),
        "last_outcome": last.outcome,
        "digest_instead": last.summary_instead,
        "has_text": has_text,
        "marks": dict(session.marks),
    }


SHARE_FIGURES = ("requests", "original_tokens", "sent_tokens", "priced", "cost", "without_cost")
FIGURES = (*SHARE_FIGURES, "cached_tokens", "fail_opens")
KINDS = ("models", "clients")


def shape_bucket(bucket: Bucket) -> Json:
    """The sums of a minute, in figures that can be added; money in nanodollars."""
    kinds = {kind: getattr(bucket, kind).copy() for kind in KINDS}
    return {
        "figures": {name: getattr(bucket, name) for name in FIGURES},
        **{kind: {name: _shape_share(share) for name, share in named.items()} for kind, named in kinds.items()},
    }


def _shape_share(share: Share) -> dict[str, int]:
    return {name: getattr(share, name) for name in SHARE_FIGURES}


def add_buckets(parts: Iterable[Mapping[str, Any]]) -> Json:
    """The sums of several minutes or workers, in the form of `shape_bucket`."""
    sums: Json = {"figures": dict.fromkeys(FIGURES, 0), **{kind: {} for kind in KINDS}}
    for part in parts:
        add_bucket(sums, part)
    return sums


def add_bucket(sums: Json, part: Mapping[str, Any]) -> None:
    """Add one more minute or worker to the sums of `add_buckets`."""
    _add(sums["figures"], part["figures"])
    for kind in KINDS:
        for name, share in part[kind].items():
            _add(sums[kind].setdefault(name, dict.fromkeys(SHARE_FIGURES, 0)), share)


def _add(sums: dict[str, int], more: Mapping[str, int]) -> None:
    for name in sums:
        sums[name] += more[name]


def show_bucket(at: float, part: Mapping[str, Any]) -> Json:
    """The sums of `add_buckets` as a bucket of the timeline."""
    kinds = {kind: {name: _show_money(share) for name, share in part[kind].items()} for kind in KINDS}
    return {"at": at, **_show_money(part["figures"]), **kinds}


def _show_money(figures: Mapping[str, int]) -> Json:
    """The figures with money in dollars. It is not known if there were requests, and none of them has a known price."""
    shown: Json = dict(figures)
    priced, cost, without = (shown.pop(name) for name in ("priced", "cost", "without_cost"))
    is_known = priced or not figures["requests"]
    amounts = {"cost_usd": cost, "without_usd": without, "saved_usd": without - cost}
    return shown | {name: to_dollars(amount) if is_known else None for name, amount in amounts.items()}
