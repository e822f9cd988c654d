"""Pins in the texts of results."""

from dataclasses import replace

from support.builders import assistant, call, conversation, result, user

from rules.pipeline.pins.fold import Pin
from rules.pipeline.pins.rule import fit_pins, pin_results
from rules.window.open_step import Cap

PIN = Pin(2, "[pin]", 5)
MESSAGES = (user(), assistant(None, call("a")), result("a", "one", "two"), user("And now?"))


def test_the_last_text_ends_with_the_pin() -> None:
    """The decision tells the tokens that were added. All else is the same."""
    before = conversation(*MESSAGES)
    outcome = pin_results(before, [PIN], shift=0)
    sent = outcome.conversation.messages
    assert sent[2].texts == ("one", "two\n[pin]")
    assert [sent[at] is MESSAGES[at] for at in range(4)] == [True, True, False, True]
    (decision,) = outcome.decisions
    assert (decision.rule, decision.saved_tokens, decision.messages, decision.first_changed) == ("pin", -5, 1, 2)
    assert outcome.conversation.tokens == before.tokens + 5


def test_a_pin_that_is_there_already_is_not_repeated() -> None:
    """Nor is one added to a result without a text."""
    once = pin_results(conversation(*MESSAGES), [PIN], shift=0).conversation
    assert pin_results(once, [PIN], shift=0).conversation is once
    empty = conversation(*MESSAGES[:2], replace(MESSAGES[2], texts=()))
    assert pin_results(empty, [PIN], shift=0).conversation is empty


def test_results_are_found_after_a_cut_and_made_once() -> None:
    """A summary may have replaced messages before them. A changed result is pinned anew."""
    known: dict = {}
    first = pin_results(conversation(*MESSAGES[1:]), [PIN], shift=-1, known=known).conversation.messages[1]
    assert first.texts[-1] == "two\n[pin]"
    assert pin_results(conversation(*MESSAGES), [PIN], shift=0, known=known).conversation.messages[2] is first
    other = conversation(*MESSAGES[:2], result("a", "three"))
    assert pin_results(other, [PIN], shift=0, known=known).conversation.messages[2].texts == ("three\n[pin]",)


def test_a_capped_result_keeps_its_pin_if_there_is_room() -> None:
    """Its own texts get the rest of the cap."""
    messages = (*MESSAGES[:2], result("a", "word " * 400))
    pins = {2: PIN}
    assert fit_pins([Cap(2, 60)], pins, messages) == ([Cap(2, 55)], pins)
    assert fit_pins([Cap(2, 42)], pins, messages) == ([Cap(2, 42)], {})
    assert fit_pins([Cap(0, 42)], pins, messages) == ([Cap(0, 42)], pins)
