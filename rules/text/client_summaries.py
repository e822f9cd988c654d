"""What clients write into texts: their own summaries of a session, requests for one, and retrieved memory.

Law: data, and functions of one text in linear time. A text counts only if it begins with a client's words, so a user
who writes "summarise the conversation so far" asks an ordinary question. Each form names its source as
REPOSITORY@COMMIT: PATH. Requests have the words of one version; the pattern covers the versions that were found, and
only stable phrases are in it.

Crush's summary, and Roo Code's before 2026, are texts of the model without any introduction, so they are not
recognised.

A block of memory begins with `<TAG>` or `<TAG attributes>` and ends at the first closing tag of its own name. A tag
that is never closed begins no block. Upper and lower case differ.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from trimtab.rules.text.late import compile_late

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

BEGINNINGS = (*INTRODUCTIONS, *_DRAFTS, *(headings[0] for headings in TEMPLATES))


def is_client_summary(text: str) -> bool:
    """Whether a text is the summary of an earlier session that a client inserted."""
    text = text.lstrip()
    if not text.startswith(BEGINNINGS):  # by far the most texts
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


# The first words of requests, as patterns. tests/support/client_words.py has a sample of each.

# Claude Code; source: Yeyito777/Agent@ab2a333a: playground/claude-code-compact-prompt.md. The source is not public; the
# words are quoted from the program. Roo Code and others use the same.
_DETAILED = (
    r"(?:CRITICAL: Respond with TEXT ONLY\.[\s\S]{0,2000}?)?"
    r"Your task is to create a detailed summary of (?:the|this) (?:RECENT portion of the )?conversation\b"
)
# Codex; source: openai/codex#3446 (September 2025): the same file, until openai/codex#6027.
_MEMENTO = r"You have exceeded the maximum number of tokens, please stop coding and instead write a short memento\b"
# OpenHands; source: pcoppinger/software-agent-sdk@14ff06bf: openhands-sdk/openhands/sdk/context/condenser/prompts/.
_EVENTS = r"You are maintaining a context-aware state summary for an interactive (?:software )?agent\b"
# Crush; source: charmbracelet/crush@5065c666: internal/agent/templates/summary.md.
_COMPACTED = r"The conversation context above needs to be compacted\."

IN_USER = (
    _DETAILED,
    # Codex; source: openai/codex@11baefb5: codex-rs/core/templates/compact/prompt.md.
    r"You are performing a CONTEXT CHECKPOINT COMPACTION\b",
    _MEMENTO,
    # opencode; source: anomalyco/opencode@031a4a9c: packages/core/src/session/compaction.ts.
    r"You MUST summarize the conversation above into a structured summary\b",
    # opencode; source: anomalyco/opencode@031a4a9c: packages/core/src/session/compaction.ts.
    r"Update the existing checkpoint in the conversation above\b",
    # opencode; source: anomalyco/opencode@031a4a9c: packages/core/src/session/compaction.ts.
    r"The previous response did not fill in the required summary template\.",
    # opencode; source: anomalyco/opencode@001aa6cc: packages/opencode/src/session/compaction.ts.
    r"Provide a detailed prompt for continuing our conversation above\b",
    # opencode; source: sst/opencode@31e22f65: packages/core/src/session/compaction-suffix.ts.
    r"Summarize the older portion of the preceding conversation\. This is a summarization task\b",
    # Gemini CLI; source: google-gemini/gemini-cli@5411f113: packages/core/src/context/chatCompressionService.ts.
    (
        r"(?:Generate a new <state_snapshot> based on the provided history"
        r"|A previous <state_snapshot> exists in the history"
        r"|Critically evaluate the <state_snapshot> you just generated)\."
    ),
    # Qwen Code; source: QwenLM/qwen-code@00b481a3: packages/core/src/services/chatCompressionService.ts. Also Gemini
    # CLI until 2025, which says `scratchpad`.
    (
        r"First, reason in your (?:scratchpad|<analysis> block)\. Then, (?:generate|produce) the (?:updated )?"
        r"<state_snapshot>"
    ),
    # Cline; source: cline/cline@046531b5: src/core/prompts/contextManagement.ts.
    r"<explicit_instructions type=\"(?:summarize_task|condense)\">",
    # Roo Code; source: RooCodeInc/Roo-Code@b375498f: src/shared/support-prompt.ts. Kilo Code until 2025 is a fork of
    # it.
    r"CRITICAL: This summarization request is a SYSTEM OPERATION, not a user message\.",
    # Roo Code; source: RooCodeInc/Roo-Code@04fc2a02: src/core/condense/index.ts.
    r"Summarize the conversation so far, as described in the prompt instructions\.",
    # Goose; source: block/goose@0036b819: crates/goose/src/context_mgmt/mod.rs.
    r"Please summarize the conversation history provided in the system prompt\.",
    # Kimi CLI; source: MoonshotAI/kimi-cli@78b384f7: src/kimi_cli/prompts/compact.md.
    r"---\s*+The above is a (?:a )?list of messages in an agent conversation\.",
    _EVENTS,
    _COMPACTED,
)
"""Those at the beginning of a text of the last message, a user message."""

IN_SYSTEM = (
    # opencode; source: opencode: packages/opencode/src/agent/prompt/compaction.txt, an earlier version, as others quote
    # it. Also Roo Code and earlier versions of Claude Code.
    r"You are a helpful AI assistant tasked with summarizing conversations\b",
    # opencode; source: anomalyco/opencode@4ab22439: packages/opencode/src/agent/prompt/compaction.txt.
    r"You are an anchored context summarization assistant\b",
    # Gemini CLI; source: google-gemini/gemini-cli@5411f113: packages/core/src/prompts/snippets.ts.
    r"You are a specialized system component responsible for distilling chat history\b",
    # Qwen Code; source: QwenLM/qwen-code@03040ce3: packages/core/src/core/prompts.ts.
    r"You are the component that summarizes (?:internal chat history\b|a conversation when its context window\b)",
    # pi; source: badlogic/pi-mono@83378aad: packages/coding-agent/src/core/compaction/utils.ts.
    r"You are a context summarization assistant\.",
    # Aider; source: Aider-AI/aider@03243e35: aider/prompts.py.
    r"\*Briefly\* summarize this partial conversation about programming\.",
    # Kimi CLI; source: MoonshotAI/kimi-cli@00970276: src/kimi_cli/soul/compaction.py.
    r"You are a helpful assistant that compacts conversation context\.",
    # Crush; source: charmbracelet/crush@5065c666: internal/agent/templates/summary.md.
    r"You are summarizing a conversation to preserve context for continuing work later\.",
    _EVENTS,
    _DETAILED,
    _MEMENTO,
    _COMPACTED,
)
"""Those at the beginning of a text of a leading system message."""

AFTER_CONVERSATION = (
    # pi; source: badlogic/pi-mono@83378aad: packages/coding-agent/src/core/compaction/compaction.ts.
    r"The messages above are (?:a conversation to summarize\.|NEW conversation messages to incorporate\b)",
    # pi; source: badlogic/pi-mono@83378aad: packages/coding-agent/src/core/compaction/compaction.ts.
    r"This is the PREFIX of a turn that was too large to keep\.",
    # pi; source: badlogic/pi-mono@83378aad: packages/coding-agent/src/core/compaction/branch-summarization.ts.
    r"Create a structured summary of this conversation branch\b",
    # opencode; source: sst/opencode@31e22f65: packages/core/src/session/compaction.ts.
    r"Create a new anchored summary from the conversation history\b",
    # opencode; source: sst/opencode@31e22f65: packages/core/src/session/compaction-suffix.ts.
    r"The <prior-summary> summarizes everything that happened before the <conversation>\.",
)
"""Those after a conversation that a client wrote as one text between `<conversation>` tags, in a user message."""

TRIGGER = "compaction_trigger"
"""The item with which a client asks the server for a compaction of what is before it. Source: openai/codex#22809."""


def _join(patterns: tuple[str, ...], start: str) -> re.Pattern[str]:
    return compile_late(start + "(?:" + "|".join(f"(?:{pattern})" for pattern in patterns) + ")")


_BEGINS_IN_USER, _BEGINS_IN_SYSTEM = _join(IN_USER, r"\s*+"), _join(IN_SYSTEM, r"\s*+")
_FOLLOWS = _join(AFTER_CONVERSATION, r"\n")
_CONVERSATION = compile_late(r"\s*+(?:Here is the conversation so far:\s*+)?<conversation>")
_END = "</conversation>"


def asks_for_summary(text: str) -> bool:
    """Whether a text of a user message begins as a client's request for a summary.

    If the client wrote the conversation before its request, the words after the conversation decide.
    """
    if _CONVERSATION.match(text):
        end = text.rfind(_END)
        return end >= 0 and _FOLLOWS.search(text, end) is not None
    return _BEGINS_IN_USER.match(text) is not None


def instructs_to_summarise(text: str) -> bool:
    """Whether a text of a system prompt begins as a client's instructions for writing a summary."""
    return _BEGINS_IN_SYSTEM.match(text) is not None


def find_memory(text: str, tags: Sequence[str]) -> list[tuple[int, int]]:
    """The spans (start, stop) of all blocks with one of these tags, oldest first; blocks within blocks do not count."""
    # Most texts have no block, and this test is far quicker than the pattern below.
    if not any(f"</{tag}>" in text for tag in tags):
        return []
    pattern = _find_pattern(tuple(tags))
    spans: list[tuple[int, int]] = []
    unclosed: set[str] = set()
    stop = 0
    while opening := pattern.search(text, stop):
        tag, stop = opening.group(1), opening.end()
        if tag in unclosed:
            continue
        closing = f"</{tag}>"
        end = text.find(closing, stop)
        if end < 0:
            unclosed.add(tag)  # no later tag of this name is closed either: the text is not searched again
            continue
        stop = end + len(closing)
        spans.append((opening.start(), stop))
    return spans


@lru_cache(maxsize=256)
def _find_pattern(tags: tuple[str, ...]) -> re.Pattern[str]:
    """What begins a block. A longer name is another tag."""
    return re.compile(rf"<({'|'.join(map(re.escape, tags))})(?=[>\s])")
