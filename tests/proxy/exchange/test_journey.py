"""The journey of a request: its headers."""

from dataclasses import replace
from unittest.mock import Mock

from support.journeys import ARRIVAL, DECISIONS, TARGET, read

from proxy.compaction.compactor import Compacted, Compactor
from proxy.compaction.tokenizers.exact import count_by_heuristic
from proxy.exchange.attempt import Chosen, Passed, Prepared
from proxy.exchange.early_answer import Opening
from proxy.exchange.journey import Journey
from proxy.http.relay import Reply
from proxy.telemetry.ledger import UsedSummary
from proxy.wire.overflow.classify import Overflow
from proxy.wire.overflow.wordings import Kind
from rules.conversation import Conversation
from rules.policy import Policy
from rules.tokens.sections import Sections

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
ATTEMPT = Prepared("compacted", Mock(idle_seconds=None), Chosen(PLANNED), COMPACTED, seconds=(("plan", 0.1),))
OVERFLOW = Overflow(Kind.PROMPT)


def _journey(mode: str = "enforce", status: int = 200) -> Journey:
    """A request that arrived at 100 s, left at 100.5 s and was answered by 103 s."""
    reply = Reply(Mock())
    reply.status, reply.last_byte_at = status, 103.0
    target = replace(TARGET, mode=mode)
    return Journey(ARRIVAL, reply, target, ATTEMPT, attempts=1, sent_at=100.5, opening=Opening(status), is_over=True)


def test_each_attempt_begins_anew_but_the_clock() -> None:
    """The beginning of the first answer does not count for the second. The clock runs from the first attempt."""
    journey = _journey()
    journey.begin_attempt()

    assert (journey.attempts, journey.opening, journey.sent_at) == (2, None, 100.5)


def test_the_answers_headers_say_what_was_done() -> None:
    """Structured fields give the tokens, the decisions, and the time that the proxy took."""
    journey = _journey()
    journey.attempt = replace(ATTEMPT, summary=UsedSummary("3f9a", "summarise", 34))
    journey.ledger.note(1, 4000, DECISIONS[:1])
    journey.ledger.note(2, 2000, DECISIONS)

    assert journey.write_headers() == [
        ("x-trimtab-request-id", "id"),
        ("Server-Timing", "trimtab;dur=500.0"),
        ("x-trimtab-outcome", "compacted"),
        ("x-trimtab-tokens", "original=1000, sent=508, limit=2000"),
        ("x-trimtab-sections", ", ".join(SECTIONS_TOLD)),
        ("x-trimtab-decisions", ", ".join(DECISIONS_TOLD)),
        ("x-trimtab-summary", '"3f9a";kind=summarise;messages=34'),
    ]


def test_a_request_only_observed_says_that_the_original_went_out() -> None:
    """The decisions are shown. The tokens sent are those of the original."""
    headers = dict(_journey("observe").write_headers())

    assert headers["x-trimtab-tokens"] == "original=1000, sent=1000, limit=2000"
    assert "memory;original=50;sent=50, recent;original=800;sent=800" in headers["x-trimtab-sections"]


def test_without_a_decision_there_is_no_header_of_them() -> None:
    """There is no empty header, and there are no tokens without a transcript."""
    journey = _journey()
    assert "x-trimtab-decisions" not in dict(journey.write_headers())
    journey.attempt = Passed("undecodable")
    assert [name for name, _ in journey.write_headers()] == [
        "x-trimtab-request-id",
        "Server-Timing",
        "x-trimtab-outcome",
    ]
