"""The outcome of a request is filled from what its stages found out."""

from dataclasses import replace
from unittest.mock import Mock

import pytest
from support.journeys import ARRIVAL, DECISIONS, TARGET, read

from proxy.account.outcome import Answered, Outcome
from proxy.account.recorder import Recorder
from proxy.compaction.compactor import Compacted, Compactor
from proxy.compaction.tokenizers.exact import count_by_heuristic
from proxy.exchange.attempt import Chosen, Passed, Prepared
from proxy.exchange.early_answer import Opening
from proxy.exchange.journey import Journey
from proxy.exchange.tell import make_outcome
from proxy.http.errors import ContextExceededError, UpstreamUnreachableError
from proxy.http.relay import Reply
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.pace import Pace
from proxy.wire.overflow.classify import Overflow
from proxy.wire.overflow.wordings import Kind
from rules.conversation import Conversation
from rules.policy import Policy
from rules.tokens.sections import Sections

BEFORE, AFTER = Sections(100, 0, 50, 800, 50), Sections(100, 30, 0, 328, 50)
COMPACTED = Compacted(
    (b'{"messages":["PLANTED TEXT"]}',), Conversation((), 0, ()), DECISIONS, 1000, 508, 2000, BEFORE, AFTER
)
PLANNED = Compactor(count_by_heuristic).plan(read([{"role": "user", "content": "hi"}]), Policy())
ATTEMPT = Prepared("compacted", Mock(idle_seconds=None), Chosen(PLANNED), COMPACTED, seconds=(("plan", 0.1),))
OVERFLOW = Overflow(Kind.PROMPT)


def _journey(mode: str = "enforce", status: int = 200) -> Journey:
    """A request that arrived at 100 s, left at 100.5 s and was answered by 103 s."""
    reply = Reply(Mock())
    reply.status, reply.last_byte_at = status, 103.0
    target = replace(TARGET, mode=mode)
    return Journey(ARRIVAL, reply, target, ATTEMPT, attempts=1, sent_at=100.5, opening=Opening(status), is_over=True)


def _make(journey: Journey) -> Outcome:
    return make_outcome(Recorder(Metrics(), Mock()), journey, is_kept=False)


def test_the_outcome_says_what_was_sent() -> None:
    """It has the tokens before and after, the decisions, and all times."""
    outcome = _make(_journey())

    assert (outcome.request_id, outcome.model, outcome.match) == (ARRIVAL.request_id, TARGET.shown_model, TARGET.match)
    assert (outcome.status, outcome.outcome, outcome.has_prompt) == (200, "compacted", True)
    assert (outcome.original_tokens, outcome.sent_tokens, outcome.limit_tokens) == (1000, 508, 2000)
    assert outcome.planned == outcome.counted_decisions == DECISIONS
    assert (outcome.upstream_seconds, outcome.phase_seconds) == (2.5, (("plan", 0.1),))
    assert (outcome.retry, outcome.is_refused, outcome.error) == ("", False, "")


def test_a_request_that_never_left_sent_nothing() -> None:
    """Its tokens are still known."""
    journey = _journey()
    journey.sent_at, journey.error = 0.0, ContextExceededError("too long")
    outcome = _make(journey)

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
    journey = _journey(status=status)
    journey.reply.broken, journey.reply.client_left = broken, client_left

    assert (_make(journey).outcome, _make(journey).status) == (outcome, status)


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
    journey = _journey()
    journey.attempts, journey.opening, journey.error = attempts, opening, error

    assert _make(journey).retry == retry


def test_a_refusal_stands_only_once_that_is_known() -> None:
    """If the client leaves while the second attempt is planned, it was not refused."""
    journey = _journey(status=400)
    journey.opening = Opening(400, overflow=OVERFLOW)
    assert (_make(journey).retry, _make(journey).is_refused) == ("", False)
    journey.is_hopeless = True
    assert (_make(journey).retry, _make(journey).is_refused) == ("hopeless", True)


def test_what_nobody_expects_is_no_success() -> None:
    """An answer had begun, and then a part of ours failed."""
    journey = _journey()
    journey.is_over = False

    assert _make(journey).outcome == "broken"


def test_an_error_of_ours_is_told_by_its_code_and_words() -> None:
    """They contain no text of the conversation."""
    journey = _journey()
    journey.error = ContextExceededError("This model's maximum context length is 8000 tokens.")
    outcome = _make(journey)

    assert (outcome.status, outcome.outcome, outcome.error) == (400, "refused", "context_length_exceeded")
    assert outcome.reason == "This model's maximum context length is 8000 tokens."


def test_a_success_without_a_transcript_vouches_for_nothing() -> None:
    """A body that was not read as a chat request proves nothing about a model. A name with a credential is no label."""
    recorder, journey = Recorder(Metrics(), Mock()), _journey()
    journey.target, journey.attempt = replace(TARGET, match=None), Passed("undecodable")
    assert make_outcome(recorder, journey, is_kept=False).label == "other"
    journey.target, journey.attempt = replace(journey.target, is_secret=True), ATTEMPT
    assert make_outcome(recorder, journey, is_kept=False).label == "other"
    journey.target = replace(journey.target, is_secret=False)
    assert make_outcome(recorder, journey, is_kept=False).label == "m"


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
    journey = _journey()
    journey.reply.pace = pace
    journey.answered = Answered(completion_tokens=2060, streamed_tokens=streamed_tokens)
    outcome = _make(journey)

    assert (outcome.first_token_seconds, outcome.tokens_per_second) == (seconds, rate)
