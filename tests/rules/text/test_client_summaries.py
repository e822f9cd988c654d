"""Summaries that clients wrote themselves are recognised by their first words."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from trimtab.rules.text.client_summaries import INTRODUCTIONS, TEMPLATES, find_memory, is_client_summary

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
    """Attributes and line breaks may follow a name, letters may not. Without tags there is no memory."""
    assert quote("a<rule>b</rule>c <rules>d</rules> <ruler/>") == ["<rule>b</rule>"]
    blocks = ['<rule a="1">b</rule>', "<rule\n>c</rule>", "<note>d</note>"]
    assert quote("".join(blocks)) == blocks
    assert quote("<rule><note>a</rule></note>") == ["<rule><note>a</rule>"]
    assert quote("<rule><rule>a</rule>b</rule>") == ["<rule><rule>a</rule>"]
    assert quote("<rule>open <note>a</note>") == ["<note>a</note>"]
    assert quote("<rule>a</rule>", ()) == []
    assert quote("<RULE>a</RULE>") == []


def test_tags_that_are_never_closed_are_read_in_one_pass() -> None:
    """A hundred thousand opening tags have no block without a closing tag, and a single block with one."""
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
