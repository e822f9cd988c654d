"""The calls that requests become at an upstream: which tokens are read, written and lost.

Law: pure. The same requests can be entered again at another kind of cache, or with other times.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import merge

from bench.sessions.caches.cache import CacheKind
from bench.sessions.ledger import Call, Request, SessionLedger


@dataclass(frozen=True, slots=True)
class Trace:
    """What a contestant sent of a session, and the time of each turn."""

    session_id: str
    requests: Sequence[Request]
    moments: Sequence[float]


def account(traces: Sequence[Trace], kind: CacheKind) -> list[tuple[Call, ...]]:
    """The calls of each trace. If sessions share the cache, all of them begin at once and share one."""
    shared = kind.open() if kind.is_shared else None
    ledgers = [SessionLedger(kind, shared) for _ in traces]
    for moment, number, place in merge(*(_list_moments(number, trace) for number, trace in enumerate(traces))):
        _enter(ledgers[number], moment, traces[number].requests[place])
    return [tuple(ledger.calls) for ledger in ledgers]


def _list_moments(number: int, trace: Trace) -> list[tuple[float, int, int]]:
    """The time of each request, the number of its trace, and its place in it."""
    return [(trace.moments[request.turn], number, place) for place, request in enumerate(trace.requests)]


def _enter(ledger: SessionLedger, moment: float, request: Request) -> None:
    ledger.now_seconds = moment
    if request.is_summary:
        ledger.add_summary(request.parts, request.completion_tokens, request.marks)
    else:
        ledger.add_turn(request.parts, request.marks)
