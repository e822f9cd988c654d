"""A request's tokens by section.

Law: the sections add up to the request.
"""

import re
from dataclasses import dataclass, fields

from rules.conversation import Conversation, CountTokens, Role
from rules.policy import MEMORY_TAGS
from rules.text.markers import INTRODUCTION, KEPT_TITLE
from rules.text.memory_blocks import find_memory

_SUMMARY = re.compile(rf"{re.escape(INTRODUCTION)}.*?(?={re.escape(KEPT_TITLE)}|\Z)", re.DOTALL)

_SECTIONS = {Role.SYSTEM: "system", Role.TOOL: "tool_results", Role.ASSISTANT: "assistant"}


@dataclass(frozen=True, slots=True)
class Sections:
    """Tokens by section.

    memory: retrieved text between memory tags, in any message.
    summary: a summary inserted by trimtab.
    format: the response format and the request's own frame.
    """

    system: int = 0
    tools: int = 0
    memory: int = 0
    summary: int = 0
    user: int = 0
    assistant: int = 0
    tool_results: int = 0
    format: int = 0

    @property
    def tokens(self) -> int:
        """Sum of all sections."""
        return sum(getattr(self, section.name) for section in fields(self))


def count_sections(conversation: Conversation, count: CountTokens, *, format_tokens: int) -> Sections:
    """The sections of a transcript. `format_tokens` of its fixed tokens count as format, the others as tools."""
    found = dict.fromkeys(("system", "user", "assistant", "tool_results"), 0)
    memory = summary = 0
    for message in conversation.messages:
        blocks = (text[start:stop] for text in message.texts for start, stop in find_memory(text, MEMORY_TAGS))
        in_memory = min(sum(map(count, blocks)), message.tokens)
        summaries = (match.group() for text in message.texts for match in _SUMMARY.finditer(text))
        in_summary = min(sum(map(count, summaries)), message.tokens - in_memory)
        found[_SECTIONS.get(message.role, "user")] += message.tokens - in_memory - in_summary
        memory += in_memory
        summary += in_summary
    tools = conversation.fixed_tokens - format_tokens
    return Sections(**found, memory=memory, summary=summary, tools=tools, format=format_tokens)
