"""Clients' requests for summaries are recognised by their first words."""

import re

import pytest
from support.client_words import AFTER_CONVERSATION, IN_SYSTEM, IN_USER, Words

from trimtab.rules.text import client_summaries
from trimtab.rules.text.client_summaries import asks_for_summary, instructs_to_summarise

OWN_WORDS = (
    "Summarise the conversation so far.",
    "Summarize the conversation so far, please, and then go on with the build.",
    "Please summarize what we did. You are performing a CONTEXT CHECKPOINT COMPACTION, says the log.",
    "Your task is to create a detailed summary of this document.",
    "What does `First, reason in your scratchpad. Then, generate the <state_snapshot>.` mean?",
    "/compact",
    "<command-name>/compact</command-name>\n<command-message>compact</command-message>",
    "<conversation>\nA: Hello.\nB: Hello.\n</conversation>\n\nWho spoke first?",
    "<conversation>\nThe messages above are a conversation to summarize.",
    "CRITICAL: Respond with TEXT ONLY. What is 2 + 2?",
    "",
)
"""Texts of users, and of commands, that ask no model for a client's summary."""

PREAMBLE = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\n- Do NOT use Read."

each_user_form = pytest.mark.parametrize("form", IN_USER, ids=lambda form: form.sample[:30])


@each_user_form
def test_each_clients_words_are_recognised_at_the_beginning_of_a_text(form: Words) -> None:
    """White space may come before them, and more words after them. A quotation does not count."""
    assert asks_for_summary(form.sample)
    assert asks_for_summary(f"\n  {form.sample}\n\nFocus on the tests.")
    assert not asks_for_summary(f"What does this mean? {form.sample}")


@pytest.mark.parametrize("form", IN_SYSTEM, ids=lambda form: form.sample[:30])
def test_each_clients_system_prompt_for_summaries_is_recognised(form: Words) -> None:
    """It counts only at the beginning of a text of the system prompt."""
    assert instructs_to_summarise(f"{form.sample} More.")
    assert not instructs_to_summarise(f"You are a coding agent. Quote this: {form.sample}")


@pytest.mark.parametrize("opening", ["<conversation>\n", "Here is the conversation so far:\n\n<conversation>\n"])
@pytest.mark.parametrize("form", AFTER_CONVERSATION, ids=lambda form: form.sample[:30])
def test_the_words_after_a_conversation_decide(form: Words, opening: str) -> None:
    """The conversation may quote them, and an earlier summary may be between them and it."""
    said = f"{opening}[User]: {form.sample}\n{form.sample}\n</conversation>\n\n"
    assert asks_for_summary(said + form.sample)
    assert asks_for_summary(f"{said}<previous-summary>\n## Goal\n</previous-summary>\n\n{form.sample}")
    assert not asks_for_summary(f"{said}Who is right?")
    assert not asks_for_summary(form.sample)


@pytest.mark.parametrize("text", OWN_WORDS)
def test_a_users_own_words_are_an_ordinary_request(text: str) -> None:
    """So is a command of the client, which is for the client alone."""
    assert not asks_for_summary(text)
    assert not instructs_to_summarise(text)


@pytest.mark.parametrize(
    "text",
    [
        f"{PREAMBLE}\n\nYour task is to create a detailed summary of the RECENT portion of the conversation",
        "Your task is to create a detailed summary of this conversation. This summary goes at the start",
        "First, reason in your scratchpad. Then, generate the <state_snapshot>.",
        "A previous <state_snapshot> exists in the history. You MUST integrate",
        "Critically evaluate the <state_snapshot> you just generated. Did you omit any",
        '<explicit_instructions type="condense">\nThe user has explicitly asked you',
    ],
)
def test_other_versions_of_the_same_client_are_recognised(text: str) -> None:
    """Each is a beginning that a version of Claude Code, Gemini CLI or Cline writes."""
    assert asks_for_summary(text)


@pytest.mark.parametrize(
    "text",
    [
        " \n" * 1_000_000,
        "CRITICAL: Respond with TEXT ONLY." + "Your task is to create a detailed summary of " * 50_000,
        "<conversation>" * 100_000 + "</conversation>" * 100_000,
        "<conversation></conversation>" + "\nThe messages above are " * 100_000,
        "---" + " \n" * 1_000_000,
    ],
    ids=["blanks", "preamble", "tags", "phrases", "blanks after a line"],
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
