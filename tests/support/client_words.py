"""A real sample of the words with which each client asks for a summary of its own, in the order of the patterns."""

from typing import NamedTuple


class Words(NamedTuple):
    """The beginning of a client's request, and where its whole text can be read."""

    client: str
    sample: str
    source: str


CLAUDE_CODE = Words(
    "Claude Code",
    "Your task is to create a detailed summary of the conversation so far, paying close attention to"
    " the user's explicit requests and your previous actions.",
    "Yeyito777/Agent@ab2a333a: playground/claude-code-compact-prompt.md",
)
CODEX = Words(
    "Codex",
    "You have exceeded the maximum number of tokens, please stop coding and instead write a short"
    " memento message for the next agent.",
    "openai/codex#3446 (September 2025): the same file, until openai/codex#6027",
)
OPEN_HANDS = Words(
    "OpenHands",
    "You are maintaining a context-aware state summary for an interactive agent.\nYou will be given a list of events",
    "pcoppinger/software-agent-sdk@14ff06bf: openhands-sdk/openhands/sdk/context/condenser/prompts/",
)
CRUSH = Words(
    "Crush",
    "The conversation context above needs to be compacted. Summarize the key information into a"
    " detailed context summary",
    "charmbracelet/crush@5065c666: internal/agent/templates/summary.md",
)
IN_USER = (
    CLAUDE_CODE,
    Words(
        "Codex",
        "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary for another LLM that"
        " will resume the task.",
        "openai/codex@11baefb5: codex-rs/core/templates/compact/prompt.md",
    ),
    CODEX,
    Words(
        "opencode",
        "You MUST summarize the conversation above into a structured summary that will be given to another"
        " agent to resume the work.",
        "anomalyco/opencode@031a4a9c: packages/core/src/session/compaction.ts",
    ),
    Words(
        "opencode",
        "Update the existing checkpoint in the conversation above into one consolidated summary.",
        "anomalyco/opencode@031a4a9c: packages/core/src/session/compaction.ts",
    ),
    Words(
        "opencode",
        "The previous response did not fill in the required summary template. Do not call tools.",
        "anomalyco/opencode@031a4a9c: packages/core/src/session/compaction.ts",
    ),
    Words(
        "opencode",
        "Provide a detailed prompt for continuing our conversation above.\nFocus on information that would"
        " be helpful for continuing the conversation,",
        "anomalyco/opencode@001aa6cc: packages/opencode/src/session/compaction.ts",
    ),
    Words(
        "opencode",
        "Summarize the older portion of the preceding conversation. This is a summarization task, not a"
        " request to continue the conversation.",
        "sst/opencode@31e22f65: packages/core/src/session/compaction-suffix.ts",
    ),
    Words(
        "Gemini CLI",
        "Generate a new <state_snapshot> based on the provided history.\n\nFirst, reason in your"
        " scratchpad. Then, generate the updated <state_snapshot>.",
        "google-gemini/gemini-cli@5411f113: packages/core/src/context/chatCompressionService.ts",
    ),
    Words(
        "Qwen Code",
        "First, reason in your <analysis> block. Then, produce the <state_snapshot> XML.",
        "QwenLM/qwen-code@00b481a3: packages/core/src/services/chatCompressionService.ts",
    ),
    Words(
        "Cline",
        '<explicit_instructions type="summarize_task">\nThe current conversation is rapidly running out of context.',
        "cline/cline@046531b5: src/core/prompts/contextManagement.ts",
    ),
    Words(
        "Roo Code",
        "CRITICAL: This summarization request is a SYSTEM OPERATION, not a user message.\nWhen analyzing",
        "RooCodeInc/Roo-Code@b375498f: src/shared/support-prompt.ts",
    ),
    Words(
        "Roo Code",
        "Summarize the conversation so far, as described in the prompt instructions.",
        "RooCodeInc/Roo-Code@04fc2a02: src/core/condense/index.ts",
    ),
    Words(
        "Goose",
        "Please summarize the conversation history provided in the system prompt.",
        "block/goose@0036b819: crates/goose/src/context_mgmt/mod.rs",
    ),
    Words(
        "Kimi CLI",
        "\n\n---\n\nThe above is a a list of messages in an agent conversation. You are now given a task"
        " to compact this conversation context",
        "MoonshotAI/kimi-cli@78b384f7: src/kimi_cli/prompts/compact.md",
    ),
    OPEN_HANDS,
    CRUSH,
)
IN_SYSTEM = (
    Words(
        "opencode",
        "You are a helpful AI assistant tasked with summarizing conversations.",
        "opencode: packages/opencode/src/agent/prompt/compaction.txt, an earlier version, as others quote it",
    ),
    Words(
        "opencode",
        "You are an anchored context summarization assistant for coding sessions.",
        "anomalyco/opencode@4ab22439: packages/opencode/src/agent/prompt/compaction.txt",
    ),
    Words(
        "Gemini CLI",
        "You are a specialized system component responsible for distilling chat history into a structured"
        " XML <state_snapshot>.",
        "google-gemini/gemini-cli@5411f113: packages/core/src/prompts/snippets.ts",
    ),
    Words(
        "Qwen Code",
        "You are the component that summarizes a conversation when its context window is about to overflow.",
        "QwenLM/qwen-code@03040ce3: packages/core/src/core/prompts.ts",
    ),
    Words(
        "pi",
        "You are a context summarization assistant. Your task is to read a conversation between a user and"
        " an AI coding assistant,",
        "badlogic/pi-mono@83378aad: packages/coding-agent/src/core/compaction/utils.ts",
    ),
    Words(
        "Aider",
        "*Briefly* summarize this partial conversation about programming.",
        "Aider-AI/aider@03243e35: aider/prompts.py",
    ),
    Words(
        "Kimi CLI",
        "You are a helpful assistant that compacts conversation context.",
        "MoonshotAI/kimi-cli@00970276: src/kimi_cli/soul/compaction.py",
    ),
    Words(
        "Crush",
        "You are summarizing a conversation to preserve context for continuing work later.",
        "charmbracelet/crush@5065c666: internal/agent/templates/summary.md",
    ),
    OPEN_HANDS,
    CLAUDE_CODE,
    CODEX,
    CRUSH,
)
AFTER_CONVERSATION = (
    Words(
        "pi",
        "The messages above are a conversation to summarize. Create a structured context checkpoint summary",
        "badlogic/pi-mono@83378aad: packages/coding-agent/src/core/compaction/compaction.ts",
    ),
    Words(
        "pi",
        "This is the PREFIX of a turn that was too large to keep. The SUFFIX (recent work) is retained.",
        "badlogic/pi-mono@83378aad: packages/coding-agent/src/core/compaction/compaction.ts",
    ),
    Words(
        "pi",
        "Create a structured summary of this conversation branch for context when returning later.",
        "badlogic/pi-mono@83378aad: packages/coding-agent/src/core/compaction/branch-summarization.ts",
    ),
    Words(
        "opencode",
        "Create a new anchored summary from the conversation history in the <conversation> tags above",
        "sst/opencode@31e22f65: packages/core/src/session/compaction.ts",
    ),
    Words(
        "opencode",
        "The <prior-summary> summarizes everything that happened before the <conversation>.",
        "sst/opencode@31e22f65: packages/core/src/session/compaction-suffix.ts",
    ),
)
