"""The outcome of a request is filled from what its stages found out."""

from typing import Any
from unittest.mock import Mock

import pytest
from msgspec import structs
from msgspec.structs import replace
from support.events import ANSWERED
from support.journeys import ARRIVAL, DECISIONS, TARGET, read

from trimtab.proxy.account.outcome import Answered, Outcome
from trimtab.proxy.account.recorder import Recorder
from trimtab.proxy.compaction.compactor import Compacted, Compactor
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.exchange.answer import Learned
from trimtab.proxy.exchange.attempt import Chosen, Passed, Prepared
from trimtab.proxy.exchange.early_answer import Opening
from trimtab.proxy.exchange.tell import Finished, make_outcome
from trimtab.proxy.http.errors import ContextExceededError, ProxyError, UpstreamUnreachableError
from trimtab.proxy.http.relay import Pace, Reply
from trimtab.proxy.telemetry.ledger import Ledger
from trimtab.proxy.telemetry.metrics import Metrics
from trimtab.proxy.wire.overflow import Kind, Overflow
from trimtab.rules.conversation import Conversation
from trimtab.rules.policy import Policy
from trimtab.rules.tokens.sections import Sections

BEFORE, AFTER = Sections(100, 0, 50, 800, 50), Sections(100, 30, 0, 328, 50)
COMPACTED = Compacted(
    (b'{"messages":["PLANTED TEXT"]}',), Conversation((), 0, ()), DECISIONS, 1000, 508, 2000, BEFORE, AFTER
)
PLANNED = Compactor(count_by_heuristic).plan(read([{"role": "user", "content": "hi"}]), Policy())


def make_attempt(mode: str = "enforce", number: int = 1, ledger: Ledger | None = None) -> Prepared:
    """The first or second attempt of a request whose plan was carried out."""
    route = Mock(target=replace(TARGET, mode=mode))
    call = Mock(idle_seconds=None, attempt=number, ledger=ledger or Ledger(), route=route)
    return Prepared("compacted", call, Chosen(PLANNED), COMPACTED, seconds=(("plan", 0.1),))


OVERFLOW = Overflow(Kind.PROMPT)


def _finish(status: int = 200, **more: Any) -> Finished:
    """A request that arrived at 100 s, left at 100.5 s and was answered by 103 s."""
    reply = Reply(Mock())
    reply.status, reply.last_byte_at = status, 103.0
    found = {"attempt": make_attempt(), "sent_at": 100.5, "opening": Opening(status)}
    return Finished(ARRIVAL, reply, TARGET, **{**found, **more})


def _make(finished: Finished, error: ProxyError | None = None, *, has_failed: bool = False) -> Outcome:
    return make_outcome(Recorder(Metrics(), Mock()), finished, error, has_failed=has_failed)


def test_the_outcome_says_what_was_sent() -> None:
    """It has the tokens before and after, the decisions, and all times. What nothing is paid for saves nothing."""
    outcome = _make(_finish())

    assert (outcome.request_id, outcome.model, outcome.match) == (ARRIVAL.request_id, TARGET.shown_model, TARGET.match)
    assert (outcome.status, outcome.outcome, outcome.has_prompt) == (200, "compacted", True)
    assert (outcome.original_tokens, outcome.sent_tokens, outcome.limit_tokens) == (1000, 508, 2000)
    assert (outcome.planned, outcome.bill, outcome.counted_decisions) == (DECISIONS, None, ())
    assert structs.replace(outcome, bill=ANSWERED).counted_decisions == DECISIONS
    assert (outcome.upstream_seconds, outcome.phase_seconds) == (2.5, (("plan", 0.1),))
    assert (outcome.retry, outcome.error) == ("", "")
    assert outcome.is_compacted


def test_a_request_without_a_connection_was_not_sent_compacted() -> None:
    """How long trimtab took is known, but it is no overhead of a request that was sent."""
    error = UpstreamUnreachableError("nobody listens")
    error.is_unsent = True
    outcome = _make(_finish(opening=None), error)
    assert (outcome.is_compacted, outcome.sent_tokens, outcome.upstream_overhead_seconds) == (False, 0, None)
    assert outcome.overhead_seconds == 0.5


def test_a_request_that_never_left_sent_nothing() -> None:
    """Its tokens are still known."""
    outcome = _make(_finish(sent_at=0.0), ContextExceededError("too long"))
    assert not outcome.is_compacted

    assert (outcome.status, outcome.outcome, outcome.error) == (400, "refused", "context_length_exceeded")
    assert (outcome.original_tokens, outcome.sent_tokens, outcome.upstream_seconds) == (1000, 0, None)


@pytest.mark.parametrize(
    ("status", "broken", "client_left", "outcome"),
    [
        (0, False, False, "aborted"),
        (200, True, False, "broken"),
        (200, False, True, "aborted"),
        (500, False, False, "compacted"),
    ],
)
def test_how_it_ended_goes_before_what_was_done(status: int, outcome: str, *, broken: bool, client_left: bool) -> None:
    """A client that left or a broken answer decides the outcome. An upstream's error is an answer like any other."""
    finished = _finish(status)
    finished.reply.broken, finished.reply.client_left = broken, client_left

    assert (_make(finished).outcome, _make(finished).status) == (outcome, status)


GONE = UpstreamUnreachableError("gone")


@pytest.mark.parametrize(
    ("attempts", "opening", "error", "retry"),
    [
        (1, Opening(200), None, ""),
        (1, Opening(400, overflow=OVERFLOW), None, ""),
        (1, None, GONE, ""),
        (2, Opening(200), None, "recovered"),
        (2, Opening(400, overflow=OVERFLOW), None, "refused"),
        (2, Opening(429), None, "failed"),
        (2, None, GONE, "failed"),
        (2, None, None, "aborted"),
    ],
)
def test_a_second_attempt_ends_in_one_way(
    attempts: int, opening: Opening | None, error: UpstreamUnreachableError | None, retry: str
) -> None:
    """A first attempt has no label, unless its refusal stands because nothing shorter could be sent."""
    finished = _finish(attempt=make_attempt(number=attempts), opening=opening)

    assert _make(finished, error).retry == retry


def test_a_refusal_stands_only_once_that_is_known() -> None:
    """If the client leaves while the second attempt is planned, it was not refused."""
    opening = Opening(400, overflow=OVERFLOW)
    for is_hopeless, told in ((False, ""), (True, "hopeless")):
        assert _make(_finish(400, opening=opening, is_hopeless=is_hopeless)).retry == told


def test_what_nobody_expects_is_no_success() -> None:
    """An answer had begun, and then a part of ours failed."""
    assert _make(_finish(), has_failed=True).outcome == "broken"


def test_an_error_of_ours_is_told_by_its_code_and_words() -> None:
    """They contain no text of the conversation."""
    outcome = _make(_finish(), ContextExceededError("This model's maximum context length is 8000 tokens."))

    assert (outcome.status, outcome.outcome, outcome.error) == (400, "refused", "context_length_exceeded")
    assert outcome.reason == "This model's maximum context length is 8000 tokens."


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


@pytest.mark.parametrize(
    ("pace", "streamed_tokens", "seconds", "rate"),
    [
        (Pace(first_at=101.0, last_at=103.0, first_chars=200, chars=400), 60, 1.0, 15.0),
        (Pace(first_at=101.0, last_at=103.0, first_chars=200, chars=400), None, 1.0, None),
        (Pace(101.0, 101.0, 400, 400), 60, 1.0, None),
        (Pace(), 60, None, None),
    ],
)
def test_a_stream_has_a_first_token_and_a_rate(
    pace: Pace, streamed_tokens: int | None, seconds: float | None, rate: float | None
) -> None:
    """The first text came at 101 s, half of the text in the next 2 s. Hidden reasoning is no part of the rate."""
    finished = _finish(learned=Learned(Answered(completion_tokens=2060, streamed_tokens=streamed_tokens)))
    finished.reply.pace = pace
    outcome = _make(finished)

    assert (outcome.first_token_seconds, outcome.tokens_per_second) == (seconds, rate)
