"""Every request that is over is told to the history."""

from typing import Any
from unittest.mock import Mock

import pytest
from msgspec import structs
from msgspec.structs import replace
from support.client import ask_raw
from support.events import ANSWERED, read_events
from support.journeys import ARRIVAL, DECISIONS, TARGET, MakeStages, read, read_session

from trimtab.proxy.account.outcome import Answered, Outcome
from trimtab.proxy.account.recorder import Recorder
from trimtab.proxy.compaction.compactor import Compacted, Compactor
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.exchange.answer import Learned
from trimtab.proxy.exchange.attempt import Attempt, Chosen, Passed, Prepared, Refused
from trimtab.proxy.exchange.early_answer import Opening
from trimtab.proxy.exchange.tell import (
    MAX_TOLD_ENTRIES,
    Finished,
    _price_cache,
    make_outcome,
    write_headers,
    write_ledger_headers,
)
from trimtab.proxy.http.errors import ContextExceededError, ProxyError, UpstreamUnreachableError
from trimtab.proxy.http.relay import Pace, Reply
from trimtab.proxy.telemetry.ledger import Ledger, UsedSummary
from trimtab.proxy.telemetry.metrics import Metrics
from trimtab.proxy.wire.overflow import Kind, Overflow
from trimtab.rules.conversation import Conversation, Decision
from trimtab.rules.policy import Policy
from trimtab.rules.tokens.sections import Sections


@pytest.mark.parametrize("target", [b"/v1/chat/completions?x=%ff", b"/v1/%ff%ed%a0%80/chat/completions"])
async def test_a_path_or_a_model_that_is_no_text_is_told_too(target, client, start_proxy, log):
    """JSON cannot hold its bytes, but the dashboard shows the request."""
    proxy = await start_proxy()
    body = b'{"model": "a\\ud800", "messages": [{"role": "user", "content": "\\ud800"}]}'
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    assert await ask_raw(proxy.url, head % (target, len(body)) + body)
    await proxy.services.lifecycle.idle.wait()
    assert len(await read_events(proxy.services.past)) == 1
    assert not [line for line in log.lines if line["event"] == "fail_open"]
    async with client.get(f"{proxy.url}/trimtab/api/requests") as response:
        assert response.status == 200


@pytest.mark.parametrize(
    ("written", "unit", "price"), [(5, "usd", 1150), (0, "usd", 900), (None, "usd", 900), (5, "ratio", None)]
)
async def test_what_a_miss_costs_is_priced_as_the_upstream_charges_it(
    written: int | None, unit: str, price: float | None, make_stages: MakeStages
) -> None:
    prices = f"prices={{unit: {unit}, input: 1, cached_input: 0.1, cache_write: 1.25, output: 4}}"
    stages = await make_stages(prices)
    attempt = await stages.attempt(read_session(2))
    assert _price_cache(attempt.call, 100, written) == (None if price is None else pytest.approx(price))


# The headers of an answer.

BEFORE, AFTER = Sections(100, 0, 50, 800, 50), Sections(100, 30, 0, 328, 50)
SECTIONS_TOLD = (
    "system;original=100;sent=100",
    "summary;original=0;sent=30",
    "memory;original=50;sent=0",
    "recent;original=800;sent=328",
    "current;original=50;sent=50",
)
DECISIONS_TOLD = (
    "truncate;saved=500;before=900;after=400;limit=4000;attempt=1",
    "truncate;saved=500;before=900;after=400;limit=2000;attempt=2",
    "pairing;saved=-8;before=400;after=408;limit=2000;attempt=2",
)
COMPACTED = Compacted(
    (b'{"messages":["PLANTED TEXT"]}',), Conversation((), 0, ()), DECISIONS, 1000, 508, 2000, BEFORE, AFTER
)
PLANNED = Compactor(count_by_heuristic).plan(read([{"role": "user", "content": "hi"}]), Policy())


def make_attempt(mode: str = "enforce", number: int = 1, ledger: Ledger | None = None) -> Prepared:
    """The first or second attempt of a request whose plan was carried out."""
    route = Mock(target=replace(TARGET, mode=mode))
    call = Mock(idle_seconds=None, attempt=number, ledger=ledger or Ledger(), route=route)
    return Prepared("compacted", call, Chosen(PLANNED), COMPACTED, seconds=(("plan", 0.1),))


def _write(attempt: Attempt) -> list[tuple[str, str]]:
    """The headers of a request that arrived at 100 s and left at 100.5 s."""
    return list(write_headers(ARRIVAL, attempt, 100.5))


def test_the_answers_headers_say_what_was_done() -> None:
    ledger = Ledger()
    ledger.note(1, 4000, DECISIONS[:1])
    ledger.note(2, 2000, DECISIONS)
    attempt = structs.replace(make_attempt(ledger=ledger), summary=UsedSummary("3f9a", "summarise", 34))

    assert _write(attempt) == [
        ("x-trimtab-request-id", "id"),
        ("Server-Timing", "trimtab;dur=500.0"),
        ("x-trimtab-outcome", "compacted"),
        ("x-trimtab-tokens", "original=1000, sent=508, limit=2000"),
        ("x-trimtab-sections", ", ".join(SECTIONS_TOLD)),
        ("x-trimtab-decisions", ", ".join(DECISIONS_TOLD)),
        ("x-trimtab-summary", '"3f9a";kind=summarise;messages=34'),
    ]


def test_the_header_of_tokens_says_what_was_sent() -> None:
    """Of a request only observed, the original. An upstream that cannot be reached got nothing, one that hung up all.

    A head of half of the limit is told, and whether a refused request is over its limit.
    """

    def tell(attempt: Attempt, error: ProxyError | None = None) -> str:
        return dict(write_headers(ARRIVAL, attempt, 100.5, error))["x-trimtab-tokens"]

    observed = make_attempt("observe")
    assert tell(observed) == "original=1000, sent=1000, limit=2000"
    assert "memory;original=50;sent=50, recent;original=800;sent=800" in dict(_write(observed))["x-trimtab-sections"]
    for is_unsent, sent in ((True, 0), (False, 508)):
        error = UpstreamUnreachableError("hung up")
        error.is_unsent = is_unsent
        assert tell(make_attempt(), error) == f"original=1000, sent={sent}, limit=2000"
    for head, told in ((999, ""), (1000, ", head=50"), (1560, ", head=78")):
        compacted = replace(COMPACTED, original_sections=Sections(system=head))
        assert (
            tell(structs.replace(make_attempt(), compacted=compacted)) == f"original=1000, sent=508, limit=2000{told}"
        )
    for tokens, told in ((2000, ""), (2001, ", high_water=?1")):
        refused = Refused("too_large", None, make_attempt().call, replace(COMPACTED, original_tokens=tokens))
        assert tell(refused) == f"original={tokens}, sent=508, limit=2000{told}"


def test_without_a_decision_there_is_no_header_of_them() -> None:
    assert "x-trimtab-decisions" not in dict(_write(make_attempt()))
    assert [name for name, _ in _write(Passed("undecodable"))] == [
        "x-trimtab-request-id",
        "Server-Timing",
        "x-trimtab-outcome",
    ]


def test_the_headers_of_the_ledger_tell_why_there_is_a_digest_and_the_last_decisions() -> None:
    ledger = Ledger()
    ledger.note(1, 2000, [Decision("truncate", f"{number}", 900, 400, 2, 3) for number in range(MAX_TOLD_ENTRIES + 1)])
    summary = UsedSummary("abc", "digest", 3, "busy")
    headers = dict(write_ledger_headers(BEFORE, AFTER, ledger.entries, summary))
    assert headers["x-trimtab-summary"] == '"abc";kind=digest;messages=3;instead=busy'
    assert headers["x-trimtab-decisions"].count("truncate;saved=500;") == MAX_TOLD_ENTRIES


def _finish(status: int = 200, **more: Any) -> Finished:
    """A request that arrived at 100 s, left at 100.5 s and was answered by 103 s."""
    reply = Reply(Mock())
    reply.status, reply.last_byte_at = status, 103.0
    found = {"attempt": make_attempt(), "sent_at": 100.5, "opening": Opening(status)}
    return Finished(ARRIVAL, reply, TARGET, **{**found, **more})


def _make(finished: Finished, error: ProxyError | None = None, *, has_failed: bool = False) -> Outcome:
    return make_outcome(Recorder(Metrics(), Mock()), finished, error, has_failed=has_failed)


def test_the_outcome_says_what_was_sent() -> None:
    outcome = _make(_finish())

    assert (outcome.request_id, outcome.model, outcome.match) == (ARRIVAL.request_id, TARGET.shown_model, TARGET.match)
    assert (outcome.status, outcome.outcome, outcome.has_prompt) == (200, "compacted", True)
    assert (outcome.original_tokens, outcome.sent_tokens, outcome.limit_tokens) == (1000, 508, 2000)
    assert (outcome.planned, outcome.bill, outcome.counted_decisions) == (DECISIONS, None, ())
    assert structs.replace(outcome, bill=ANSWERED).counted_decisions == DECISIONS
    assert (outcome.upstream_seconds, outcome.phase_seconds) == (2.5, (("plan", 0.1),))
    assert (outcome.retry, outcome.error) == ("", "")
    assert outcome.is_compacted


def test_a_request_that_was_not_sent_is_not_compacted() -> None:
    """How long trimtab took is known, but it is no overhead of a request that was sent. Its tokens are known, too."""
    error = UpstreamUnreachableError("nobody listens")
    error.is_unsent = True
    outcome = _make(_finish(opening=None), error)
    assert (outcome.is_compacted, outcome.sent_tokens, outcome.upstream_overhead_seconds) == (False, 0, None)
    assert outcome.overhead_seconds == 0.5

    outcome = _make(_finish(sent_at=0.0), ContextExceededError("too long"))
    assert not outcome.is_compacted
    assert (outcome.status, outcome.outcome, outcome.error) == (400, "refused", "context_length_exceeded")
    assert outcome.reason == "too long"
    assert (outcome.original_tokens, outcome.sent_tokens, outcome.upstream_seconds) == (1000, 0, None)


def test_how_it_ended_goes_before_what_was_done() -> None:
    """A client that left or a broken answer decides the outcome. An upstream's error is an answer like any other."""
    for status, broken, client_left, outcome in (
        (0, False, False, "aborted"),
        (200, True, False, "broken"),
        (200, False, True, "aborted"),
        (500, False, False, "compacted"),
    ):
        finished = _finish(status)
        finished.reply.broken, finished.reply.client_left = broken, client_left
        assert (_make(finished).outcome, _make(finished).status) == (outcome, status)
    assert _make(_finish(), has_failed=True).outcome == "broken"


def test_a_second_attempt_ends_in_one_way() -> None:
    """A first attempt has no label, unless its refusal stands because nothing shorter could be sent."""
    refused, gone = Opening(400, overflow=Overflow(Kind.PROMPT)), UpstreamUnreachableError("gone")
    for attempts, opening, error, retry in (
        (1, Opening(200), None, ""),
        (1, refused, None, ""),
        (1, None, gone, ""),
        (2, Opening(200), None, "recovered"),
        (2, refused, None, "refused"),
        (2, Opening(429), None, "failed"),
        (2, None, gone, "failed"),
        (2, None, None, "aborted"),
    ):
        assert _make(_finish(attempt=make_attempt(number=attempts), opening=opening), error).retry == retry
    assert _make(_finish(400, opening=refused, is_hopeless=True)).retry == "hopeless"


def test_a_success_without_a_transcript_vouches_for_nothing() -> None:
    """A body that was not read as a chat request proves nothing about a model. A name with a credential is no label."""
    recorder, found = Recorder(Metrics(), Mock()), _finish()
    target, planned = replace(TARGET, match=None), make_attempt()
    for attempt, is_secret, label in (
        (Passed("undecodable"), False, "other"),
        (planned, True, "other"),
        (planned, False, "m"),
    ):
        finished = structs.replace(found, attempt=attempt, target=replace(target, is_secret=is_secret))
        assert make_outcome(recorder, finished, None).label == label


def test_a_stream_has_a_first_token_and_a_rate() -> None:
    """The first text came at 101 s, half of the text in the next 2 s. Hidden reasoning is no part of the rate."""
    pace = Pace(first_at=101.0, last_at=103.0, first_chars=200, chars=400)
    for told, streamed_tokens, seconds, rate in (
        (pace, 60, 1.0, 15.0),
        (pace, None, 1.0, None),
        (Pace(101.0, 101.0, 400, 400), 60, 1.0, None),
        (Pace(), 60, None, None),
    ):
        finished = _finish(learned=Learned(Answered(completion_tokens=2060, streamed_tokens=streamed_tokens)))
        finished.reply.pace = told
        outcome = _make(finished)
        assert (outcome.first_token_seconds, outcome.tokens_per_second) == (seconds, rate)
        assert outcome.first_chunk_seconds == (None if seconds is None else 0.5)
