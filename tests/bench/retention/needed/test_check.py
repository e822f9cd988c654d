"""The replay in this process forwards the same bodies as the proxy."""

import pytest

from bench.material.workload import Session, make_sessions
from bench.retention.needed.cases import RULES, TRIMTAB, Case, run_case
from bench.retention.needed.check import Agreement, check, compare
from bench.sessions.ledger import SessionLedger
from bench.sessions.replaying.replay import Replayed
from bench.sessions.report import Window

WINDOW = Window(16_000, 2000)


@pytest.fixture(scope="module")
def session() -> Session:
    """A session long enough for summaries. With pruning alone, the comparison would find no difference."""
    return make_sessions()[3]


@pytest.fixture(scope="module")
def without_summaries(session: Session) -> SessionLedger:
    return run(session, "none")


def run(session: Session, summariser: str) -> SessionLedger:
    ledger = SessionLedger(RULES)
    assert len(list(run_case(Case(TRIMTAB, WINDOW, summariser), session, ledger))) == len(session.stops)
    return ledger


def test_the_proxy_forwards_the_very_same_bodies(session: Session) -> None:
    """The code in shell.py that replaces the proxy's waiting does not change a byte."""
    (found,) = check([session], WINDOW, ())
    assert found.same_bodies == found.requests == len(session.stops)
    assert found.cost_here == found.cost_proxy


def test_the_comparison_finds_what_differs(session: Session, without_summaries: SessionLedger) -> None:
    other = without_summaries
    found: Agreement = compare(
        Replayed(session, tuple(other.calls), prompts=tuple(other.prompts)), Case(TRIMTAB, WINDOW, "words")
    )
    assert found.same_bodies < found.requests
    assert found.first_difference is not None


def test_without_a_summariser_nothing_is_asked(without_summaries: SessionLedger) -> None:
    assert not any(call.is_summary for call in without_summaries.calls)


def test_the_note_that_says_nothing_is_accepted(session: Session) -> None:
    """It causes the same cuts and as many calls as the note of words. A text that is no note is requested twice."""
    canned, words, rejected = (
        [call.prompt_tokens for call in run(session, name).calls if call.is_summary]
        for name in ("canned", "words", "rejected")
    )
    assert 0 < len(canned) == len(words)
    assert rejected[0] == canned[0]
    assert len(rejected) > len(canned)
