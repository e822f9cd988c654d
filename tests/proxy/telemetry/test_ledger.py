"""The ledger of a request."""

from trimtab.proxy.telemetry.ledger import REFUSED, Entry, Ledger
from trimtab.rules.conversation import Decision

PRUNED = Decision("prune", "2 tool results before message 8", 900, 400, 2, 5)
CUT = Decision("digest", "cut before message 8", 400, 100, 7, 1)


def test_each_decision_keeps_its_attempt_and_its_limit() -> None:
    ledger = Ledger()
    ledger.note(1, 8000, [PRUNED])
    ledger.note(2, 4000, [])
    ledger.note(2, 4000, (PRUNED, CUT))

    assert ledger.entries == (Entry.of(PRUNED, 1, 8000), Entry.of(PRUNED, 2, 4000), Entry.of(CUT, 2, 4000))


def test_an_entry_is_described_with_the_sizes_before_and_after() -> None:
    entry = Entry.of(PRUNED, 1, 8000)
    figures = {"attempt": 1, "limit_tokens": 8000, "before_tokens": 900, "after_tokens": 400, "saved_tokens": 500}

    assert entry.describe() == {"rule": "prune", **figures, "first_changed": 5}
    assert entry.explain() == {"rule": "prune", "reason": "2 tool results before message 8", **figures}


def test_a_refusal_changes_nothing() -> None:
    ledger = Ledger()
    ledger.note_refusal(2, 8000, 9000, "it does not fit")
    assert ledger.entries == (Entry(REFUSED, "it does not fit", 9000, 9000, 0, 0, 2, 8000),)
