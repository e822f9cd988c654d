"""Clients' requests for summaries are recognised by their first words."""

import re

import pytest
from support.client_words import AFTER_CONVERSATION, IN_SYSTEM, IN_USER, Words

from trimtab.rules.text import client_summaries
from trimtab.rules.text.client_summaries import asks_for_summary, instructs_to_summarise

OWN_WORDS = (
    "Summarise the conversation so far.",
    "Please summarize what we did. You are performing a CONTEXT CHECKPOINT COMPACTION, says the log.",
    "What does `First, reason in your scratchpad. Then, generate the <state_snapshot>.` mean?",
    "<command-name>/compact</command-name>\n<command-message>compact</command-message>",
    "<conversation>\nA: Hello.\nB: Hello.\n</conversation>\n\nWho spoke first?",
    "<conversation>\nThe messages above are a conversation to summarize.",
    "",
)
"""Texts of users, and of commands, that ask no model for a client's summary."""


def test_each_clients_words_are_recognised_at_the_beginning_of_a_text() -> None:
    """Or of a text of the system prompt. A quotation does not count, nor do a user's own words."""
    for form in IN_USER:
        assert asks_for_summary(form.sample)
        assert asks_for_summary(f"\n  {form.sample}\n\nFocus on the tests.")
        assert not asks_for_summary(f"What does this mean? {form.sample}")
    for form in IN_SYSTEM:
        assert instructs_to_summarise(f"{form.sample} More.")
        assert not instructs_to_summarise(f"You are a coding agent. Quote this: {form.sample}")
    for text in OWN_WORDS:
        assert not asks_for_summary(text)
        assert not instructs_to_summarise(text)


@pytest.mark.parametrize("opening", ["<conversation>\n", "Here is the conversation so far:\n\n<conversation>\n"])
@pytest.mark.parametrize("form", AFTER_CONVERSATION, ids=lambda form: form.sample[:30])
def test_the_words_after_a_conversation_decide(form: Words, opening: str) -> None:
    """The conversation may quote them, and an earlier summary may be between them and it."""
    said = f"{opening}[User]: {form.sample}\n{form.sample}\n</conversation>\n\n"
    assert asks_for_summary(said + form.sample)
    assert asks_for_summary(f"{said}<previous-summary>\n## Goal\n</previous-summary>\n\n{form.sample}")
    assert not asks_for_summary(f"{said}Who is right?")
    assert not asks_for_summary(form.sample)


@pytest.mark.parametrize(
    "text",
    [
        " \n" * 1_000_000,
        "CRITICAL: Respond with TEXT ONLY." + "Your task is to create a detailed summary of " * 50_000,
        "<conversation>" * 100_000 + "</conversation>" * 100_000,
    ],
    ids=["blanks", "preamble", "tags"],
)
def test_long_texts_take_linear_time(text: str) -> None:
    """A quadratic search would not end within the test's time limit."""
    assert not asks_for_summary(text)
    assert not instructs_to_summarise(text)


@pytest.mark.parametrize("place", ["IN_USER", "IN_SYSTEM", "AFTER_CONVERSATION"])
def test_each_pattern_is_that_of_its_sample(place: str) -> None:
    """The sample is a short quotation, of which the pattern is the beginning."""
    samples = {"IN_USER": IN_USER, "IN_SYSTEM": IN_SYSTEM, "AFTER_CONVERSATION": AFTER_CONVERSATION}[place]
    for pattern, form in zip(getattr(client_summaries, place), samples, strict=True):
        assert re.search(r"\w/\S+[@#]\w+|opencode: ", form.source)
        assert len(form.sample) <= 160
        assert re.match(rf"\s*(?:{pattern})", form.sample)
