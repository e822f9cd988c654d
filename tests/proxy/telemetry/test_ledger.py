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


def test_a_refusal_is_an_entry_with_the_size_of_what_was_refused() -> None:
    ledger = Ledger()
    ledger.note_refusal(2, 8000, 9000, "it does not fit")
    (entry,) = ledger.entries
    assert entry == Entry(REFUSED, "it does not fit", 9000, 9000, 0, 0, 2, 8000)
    figures = {"attempt": 2, "limit_tokens": 8000, "before_tokens": 9000, "after_tokens": 9000, "saved_tokens": 0}
    assert entry.describe() == {"rule": REFUSED, **figures, "first_changed": 0}
    assert entry.explain() == {"rule": REFUSED, "reason": "it does not fit", **figures}
