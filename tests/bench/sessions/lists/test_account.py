"""Requests are entered again at other caches and times."""

from bench.sessions.caches.blocks import BlockLru
from bench.sessions.caches.longest import LongestPrefix
from bench.sessions.ledger import Request, SessionLedger
from bench.sessions.lists.account import Trace, account
from bench.sessions.marks import NO_MARKS
from bench.sessions.prompts import Part


def make_trace(name: str, moments: tuple[float, ...]) -> Trace:
    """A session that grows by a part each turn, with a summary after its second turn."""
    parts = [Part("user", f"{name} {number}", 2048) for number in range(len(moments))]
    requests = [Request(parts[: number + 1], NO_MARKS, number) for number in range(len(moments))]
    requests.insert(2, Request(parts[:1], NO_MARKS, 1, is_summary=True, completion_tokens=9))
    return Trace(name, requests, moments)


def test_entered_again_the_calls_are_those_of_the_recording() -> None:
    trace, ledger = make_trace("a", (0.0, 6.0, 12.0)), SessionLedger(LongestPrefix())
    for request in trace.requests:
        if request.is_summary:
            ledger.add_summary(request.parts, request.completion_tokens)
        else:
            ledger.add_turn(request.parts)
    assert account([trace], LongestPrefix()) == [tuple(ledger.calls)]


def test_sessions_with_caches_of_their_own_do_not_see_each_other() -> None:
    left, right = make_trace("a", (0.0, 6.0, 12.0)), make_trace("b", (0.0, 3.0, 12.0))
    apart = [account([trace], LongestPrefix())[0] for trace in (left, right)]
    assert account([left, right], LongestPrefix()) == apart


def test_a_gap_costs_what_has_expired() -> None:
    trace = make_trace("a", (0.0, 6.0, 1000.0))
    (calls,) = account([trace], LongestPrefix(lifetime_seconds=300.0))
    assert [call.lost_tokens for call in calls] == [0, 0, 0, 4096]


def test_sessions_that_share_a_small_cache_push_each_other_out() -> None:
    traces = [make_trace(name, (0.0, 6.0, 12.0)) for name in ("a", "b")]
    alone = [account([trace], BlockLru(8192)) for trace in traces]
    assert not any(call.lost_tokens for (calls,) in alone for call in calls)
    assert [sum(call.lost_tokens for call in calls) for calls in account(traces, BlockLru(8192))] == [0, 2048]
