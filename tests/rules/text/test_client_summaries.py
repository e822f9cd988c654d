"""Summaries that clients wrote themselves are recognised by their first words."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.client_words import AFTER_CONVERSATION, IN_SYSTEM, IN_USER, Words

from trimtab.rules.text import client_summaries
from trimtab.rules.text.client_summaries import (
    INTRODUCTIONS,
    TEMPLATES,
    asks_for_summary,
    find_memory,
    instructs_to_summarise,
    is_client_summary,
)

NEXT_SESSIONS = {
    "Claude Code": "This session is being continued from a previous conversation that ran out of context. The summary"
    " below covers the earlier portion of the conversation.\nAnalysis:\n",
    "Cline": "\nThis session is being continued from a previous conversation that ran out of context. The conversation"
    " is summarized below:\n1. Primary Request",
    "Codex": "Another language model started to solve this problem and produced a summary of its thinking process. You"
    " also have access to the state of the tools",
    "Gemini CLI": "<scratchpad>\nThe user wants a build.\n</scratchpad>\n\n<state_snapshot>\n    <overall_goal>",
    "Qwen Code": "<state_snapshot>\n    <primary_request_and_intent>Mend it.</primary_request_and_intent>",
    "opencode": "<conversation-checkpoint>\nThe following is a summary and serialized record of earlier conversation.",
    "opencode before 2026": "## Goal\n\nMend the build.\n\n## Instructions\n\n- None.\n\n## Discoveries\n\nNone."
    "\n\n## Accomplished\n\nNothing yet.",
    "opencode since 2026": "## Objective\n- Mend it.\n\n## Important Details\n- (none)\n\n## Work State\n"
    "### Completed\n- (none)\n\n## Next Move\n1. Run it.",
    "pi": "The conversation history before this point was compacted into the following summary:\n\n<summary>\n## Goal",
    "pi, a branch": "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n",
    "Zoo Code": "## Conversation Summary\n1. Primary Request and Intent:",
    "Kimi CLI": "<system>Previous context has been compacted. Here is the compaction output:</system>",
    "Aider": "I spoke to you previously about a number of things.\nI asked you to mend the build.",
    "Goose": "## Goal\nMend the build.\n\n## Constraints & Preferences\n- (none)\n\n## Progress\n### Done\n- [x] a\n\n"
    "## Key Decisions\n- **x**: y\n",
}
"""How the next session of each client begins."""


def test_the_summary_in_a_clients_next_session_is_recognised() -> None:
    """Only a text that begins so counts, and no task with headings of its own."""
    for text in NEXT_SESSIONS.values():
        assert is_client_summary(text)
        assert is_client_summary(f"\n\n{text}")
        assert not is_client_summary(f"What does this mean? {text}")
    samples = [text.lstrip() for text in NEXT_SESSIONS.values()]
    assert all(any(introduction in text for text in samples) for introduction in INTRODUCTIONS)
    assert all(any(all(part in text for part in headings) for text in samples) for headings in TEMPLATES)
    for text in [
        "Mend the build.",
        "## Goal\nMend the build.\n\n## Constraints\nNo new libraries.",
        "## Goal\n\n## Discoveries\n\n## Instructions\n\n## Accomplished\n",
        "<command-name>/compact</command-name>",
        "",
    ]:
        assert not is_client_summary(text)
    assert not is_client_summary("\n" * 1_000_000 + "## Goal\n" * 100_000)
    assert not is_client_summary("<analysis>" * 100_000)


TAGS = ("rule", "note")


def quote(text: str, tags: tuple[str, ...] = TAGS) -> list[str]:
    return [text[start:stop] for start, stop in find_memory(text, tags)]


def test_a_block_goes_from_its_tag_to_the_first_closing_tag_of_its_name() -> None:
    """Attributes and line breaks may follow a name, letters may not. Tags that are never closed are read once."""
    assert quote("a<rule>b</rule>c <rules>d</rules> <ruler/>") == ["<rule>b</rule>"]
    blocks = ['<rule a="1">b</rule>', "<rule\n>c</rule>", "<note>d</note>"]
    assert quote("".join(blocks)) == blocks
    assert quote("<rule><note>a</rule></note>") == ["<rule><note>a</rule>"]
    assert quote("<rule><rule>a</rule>b</rule>") == ["<rule><rule>a</rule>"]
    assert quote("<rule>open <note>a</note>") == ["<note>a</note>"]
    assert quote("<rule>a</rule>", ()) == []
    assert quote("<RULE>a</RULE>") == []
    opened = "<rule>" * 100_000
    assert quote(opened) == []
    assert quote(opened + "<note></note>") == ["<note></note>"]
    assert quote(opened + "</rule> x") == [opened + "</rule>"]
    assert len(quote("<rule></rule>" * 1000 + opened)) == 1000


@given(st.lists(st.sampled_from(["<rule>", "<rule x>", "</rule>", "<note>", "</note>", "text", "<", "\n"])))
def test_spans_are_apart_and_each_is_a_block(parts: list[str]) -> None:
    """They are in order, each begins with a tag and ends with its only closing tag, and none is left between them."""
    text = "".join(parts)
    spans = find_memory(text, TAGS)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    for start, stop in spans:
        tag = text[start + 1 : start + 5]
        assert tag in TAGS
        assert text.index(f"</{tag}>", start) + len(f"</{tag}>") == stop
    borders = [0, *(border for span in spans for border in span), len(text)]
    for start, stop in zip(borders[::2], borders[1::2], strict=True):
        assert find_memory(text[start:stop], TAGS) == []


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


TEXT_ONLY = "CRITICAL: Respond with TEXT ONLY."
OTHER_VERSIONS = (
    f"{TEXT_ONLY}\nYour task is to create a detailed summary of the RECENT portion of the conversation",
    "Your task is to create a detailed summary of this conversation. This summary goes at the start",
    "First, reason in your scratchpad. Then, generate the <state_snapshot>.",
    "A previous <state_snapshot> exists in the history. You MUST integrate",
    "Critically evaluate the <state_snapshot> you just generated. Did you omit any",
    '<explicit_instructions type="condense">\nThe user has explicitly asked you',
)


def test_each_clients_words_are_recognised_at_the_beginning_of_a_text() -> None:
    """Or of a text of the system prompt. A quotation does not count, nor do a user's own words."""
    for form in IN_USER:
        assert asks_for_summary(form.sample)
        assert asks_for_summary(f"\n  {form.sample}\n\nFocus on the tests.")
        assert not asks_for_summary(f"What does this mean? {form.sample}")
    for form in IN_SYSTEM:
        assert instructs_to_summarise(f"{form.sample} More.")
        assert not instructs_to_summarise(f"You are a coding agent. Quote this: {form.sample}")
    for text in OTHER_VERSIONS:
        assert asks_for_summary(text)
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
