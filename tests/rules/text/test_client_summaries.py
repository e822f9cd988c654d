"""Summaries that clients wrote themselves are recognised by their first words."""

import pytest

from trimtab.rules.text.client_summaries import INTRODUCTIONS, TEMPLATES, is_client_summary

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


@pytest.mark.parametrize("text", NEXT_SESSIONS.values(), ids=NEXT_SESSIONS)
def test_the_summary_in_a_clients_next_session_is_recognised(text: str) -> None:
    """Only a text that begins so counts."""
    assert is_client_summary(text)
    assert is_client_summary(f"\n\n{text}")
    assert not is_client_summary(f"What does this mean? {text}")


def test_each_form_has_a_sample() -> None:
    """The samples above cover all introductions and all templates."""
    samples = [text.lstrip() for text in NEXT_SESSIONS.values()]
    assert all(any(introduction in text for text in samples) for introduction in INTRODUCTIONS)
    assert all(any(all(part in text for part in headings) for text in samples) for headings in TEMPLATES)


@pytest.mark.parametrize(
    "text",
    [
        "Mend the build.",
        "This session is about a previous conversation.",
        "## Goal\nMend the build.\n\n## Constraints\nNo new libraries.",
        "## Goal\n\n## Discoveries\n\n## Instructions\n\n## Accomplished\n",
        "<analysis>\nThe user wants a build.\n</analysis>",
        "/compact",
        "<command-name>/compact</command-name>",
        "",
    ],
)
def test_a_users_own_text_is_no_summary(text: str) -> None:
    """That is true of a task with headings of its own, too, and of the client's commands."""
    assert not is_client_summary(text)


def test_long_texts_take_linear_time() -> None:
    """A quadratic search would not end within the test's time limit."""
    assert not is_client_summary("\n" * 1_000_000 + "## Goal\n" * 100_000)
    assert not is_client_summary("<analysis>" * 100_000)
