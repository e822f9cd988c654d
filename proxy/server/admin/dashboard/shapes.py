"""The JSON of turns, sessions and minutes.

Law: figures and names that may be logged. Money is in US dollars.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import orjson

from proxy.state.history.event import Event, EventDecision
from proxy.state.history.sessions import SessionSums
from proxy.state.history.timeline import Bucket, Share
from proxy.state.history.turn import Turn
from proxy.state.statistics.costs import NANODOLLARS
from rules.tokens.sections import Sections

Json = dict[str, Any]
SPLIT_DEPTH = 2
"""Source: the changes of a request are the deepest long list: they stand in its text, and this in the answer."""


def write_json(value: Any, depth: int = SPLIT_DEPTH) -> bytes:
    """JSON, to be written in a thread. The keys of a dictionary may be numbers.

    The items of lists are written one by one, because orjson lets nothing else run meanwhile.
    """
    if isinstance(value, dict) and depth:
        pairs = (orjson.dumps(str(name)) + b":" + write_json(each, depth - 1) for name, each in value.items())
        return b"{" + b",".join(pairs) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(orjson.dumps, value)) + b"]"
    return orjson.dumps(value)


def to_dollars(nanodollars: int | None) -> float | None:
    """Money as the pages show it."""
    return None if nanodollars is None else nanodollars / NANODOLLARS


def shape_turn(turn: Turn, worker: int, story: Sequence[str] | None = None) -> Json:
    """A request. `story`: its sentences, if they are kept; else they are written from its decisions."""
    event = turn.event
    shaped: Json = msgspec.to_builtins(event)
    del shaped["cost"], shaped["without_cost"]
    shaped["original_sections"] = dict(zip(Sections._fields, event.original_sections, strict=False))
    shaped["sent_sections"] = dict(zip(Sections._fields, event.sent_sections, strict=False))
    shaped["cost_usd"], shaped["without_usd"] = to_dollars(event.cost), to_dollars(event.without_cost)
    shaped["cut_moved"], shaped["cut_tokens"] = turn.cut_moved, turn.cut_tokens
    shaped["cut_cost_usd"] = to_dollars(turn.cut_cost)
    shaped["worker"] = worker
    shaped["story"] = list(tell_briefly(event) if story is None else story)
    return shaped


def tell_briefly(event: Event) -> list[str]:
    """What was done, in sentences: from the decisions, so without the names of tools."""
    if not event.decisions:
        return []
    return [_tell(decision) for decision in event.decisions]


def _tell(one: EventDecision) -> str:
    again = " (second attempt)" if one.attempt > 1 else ""
    sentence = f"{one.rule}{again}: {one.reason}."
    if one.messages:
        noun = "message" if one.messages == 1 else "messages"
        sentence += f" {one.messages} {noun} changed, the first is message {one.first_changed}."
    saved_tokens = one.tokens_before - one.tokens_after
    if saved_tokens:
        done = "saved" if saved_tokens > 0 else "added"
        sentence += f" {abs(saved_tokens):,} tokens {done}."
    return sentence


def shape_session(name: str, session: SessionSums, *, has_text: bool) -> Json:
    """A session of one worker. `marks`: its cuts, for merging."""
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
        "last_outcome": last.outcome,
        "has_text": has_text,
        "marks": dict(session.marks),
    }


def shape_bucket(bucket: Bucket) -> Json:
    """The sums of a minute, in figures that can be added; money in nanodollars."""
    return {
        "figures": {name: getattr(bucket, name) for name in FIGURES},
        "models": {name: _shape_share(share) for name, share in bucket.models.copy().items()},
        "clients": {name: _shape_share(share) for name, share in bucket.clients.copy().items()},
    }


FIGURES = ("requests", "original_tokens", "sent_tokens", "cached_tokens", "saved", "cost", "fail_opens")


def _shape_share(share: Share) -> dict[str, int]:
    return {"requests": share.requests, "original_tokens": share.original_tokens, "sent_tokens": share.sent_tokens}


def add_buckets(at: float, parts: Sequence[Mapping[str, Any]]) -> Json:
    """The sums of several minutes or workers as one bucket of the timeline."""
    figures: Counter[str] = Counter(dict.fromkeys(FIGURES, 0))
    shares: dict[str, dict[str, Counter[str]]] = {"models": {}, "clients": {}}
    for part in parts:
        figures.update(part["figures"])
        for kind, named in shares.items():
            for name, share in part[kind].items():
                named.setdefault(name, Counter()).update(share)
    told: Json = {"at": at, **figures}
    told["saved_usd"], told["cost_usd"] = to_dollars(told.pop("saved")), to_dollars(told.pop("cost"))
    return told | {kind: {name: dict(share) for name, share in named.items()} for kind, named in shares.items()}
