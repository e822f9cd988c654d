"""Summaries that clients wrote themselves when they compacted a session, as they stand in the next one.

Law: data, and a function of one text in linear time. A text counts only if it begins as a client's summary does. Each
form names its source as REPOSITORY@COMMIT: PATH.

Crush's summary, and Roo Code's before 2026, are texts of the model without any introduction, so they are not
recognised.
"""

INTRODUCTIONS = (
    # Claude Code; source: Yeyito777/Agent@ab2a333a: playground/claude-code-compact-prompt.md, quoted from the program.
    # Cline; source: cline/cline@046531b5: src/core/prompts/contextManagement.ts.
    "This session is being continued from a previous conversation that ran out of context",
    # Codex; source: openai/codex@50a53333: codex-rs/core/templates/compact/summary_prefix.md.
    "Another language model started to solve this problem and produced a summary of its thinking process.",
    # Gemini CLI; source: google-gemini/gemini-cli@5411f113: packages/core/src/context/chatCompressionService.ts.
    # Qwen Code; source: QwenLM/qwen-code@15234f76: packages/core/src/services/postCompactAttachments.ts.
    "<state_snapshot>",
    # opencode; source: sst/opencode@5ea89d13: packages/core/src/session/runner/to-llm-message.ts.
    "<conversation-checkpoint>",
    # pi; source: badlogic/pi-mono@83378aad: packages/coding-agent/src/core/messages.ts.
    "The conversation history before this point was compacted into the following summary:",
    "The following is a summary of a branch that this conversation came back from:",
    # Roo Code's fork Zoo Code; source: Zoo-Code-Org/Zoo-Code@0f7c5295: src/core/condense/index.ts.
    "## Conversation Summary\n",
    # Kimi CLI; source: MoonshotAI/kimi-cli@00970276: src/kimi_cli/soul/compaction.py.
    "<system>Previous context has been compacted. Here is the compaction output:",
    # Aider; source: Aider-AI/aider@03243e35: aider/prompts.py.
    "I spoke to you previously about a number of things.\n",
)
"""The first words of the message that holds a summary."""

TEMPLATES = (
    # opencode; source: anomalyco/opencode@001aa6cc: packages/opencode/src/session/compaction.ts.
    ("## Goal\n", "\n## Instructions\n", "\n## Discoveries\n", "\n## Accomplished\n"),
    # opencode; source: sst/opencode@31e22f65: packages/core/src/session/compaction-suffix.ts.
    ("## Objective\n", "\n## Important Details\n", "\n## Work State\n", "\n## Next Move\n"),
    # Goose; source: block/goose@11453df8: crates/goose/src/prompts/compaction.md. pi asks for the same headings.
    ("## Goal\n", "\n## Constraints & Preferences\n", "\n## Progress\n", "\n## Key Decisions\n"),
)
"""Headings that a client demands of a summary, in order. Without an introduction, only they tell what it is. With
opencode, the summary is the model's answer to "What did we do so far?"; with Goose, it is a user message."""

_DRAFTS = ("<scratchpad>", "<analysis>")
"""Tags of what the model thought before its summary. Gemini CLI keeps this; source: as for `<state_snapshot>`."""


_BEGINNINGS = (*INTRODUCTIONS, *_DRAFTS, *(headings[0] for headings in TEMPLATES))


def is_client_summary(text: str) -> bool:
    """Whether a text is the summary of an earlier session that a client inserted."""
    text = text.lstrip()
    if not text.startswith(_BEGINNINGS):  # by far the most texts
        return False
    if text.startswith(INTRODUCTIONS):
        return True
    if text.startswith(_DRAFTS):
        return "<state_snapshot>" in text
    return any(text.startswith(headings[0]) and _has_in_order(text, headings) for headings in TEMPLATES)


def _has_in_order(text: str, headings: tuple[str, ...]) -> bool:
    """Whether all headings occur, each after the one before."""
    at = 0
    for heading in headings:
        at = text.find(heading, at)
        if at < 0:
            return False
        at += len(heading) - 1  # its line break may begin the next heading
    return True
