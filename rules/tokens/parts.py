"""A prompt's tokens by speaker and kind: a finer view than its sections.

Law: the parts add up to the prompt, and `memory` and `summary` are those of the sections.
"""

from typing import NamedTuple

from rules.conversation import Conversation, Role
from rules.tokens.sections import NO_MARKS, FindMarks, count_systems, find_in_message, scale_parts

_PARTS = {Role.SYSTEM: "system", Role.TOOL: "tool_results", Role.ASSISTANT: "assistant"}


class Parts(NamedTuple):
    """Tokens by part.

    system: all system and developer messages, also later ones.
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
        """Sum of all parts."""
        return sum(self)

    def scale(self, ratio: float) -> "Parts":
        """The parts in the model's own tokens. They add up to the sum of all, scaled and rounded."""
        return Parts(*scale_parts(self, ratio))


def count_parts(conversation: Conversation, find: FindMarks, *, format_tokens: int) -> Parts:
    """The parts of a transcript. `format_tokens` of its fixed tokens count as format, the others as tools."""
    found = dict.fromkeys(("system", "user", "assistant", "tool_results"), 0)
    leading = count_systems(conversation.messages)
    memory = summary = 0
    for index, message in enumerate(conversation.messages):
        marks = NO_MARKS if index < leading else find_in_message(message, find)
        found[_PARTS.get(message.role, "user")] += message.tokens - sum(marks)
        memory += marks.memory
        summary += marks.summary
    tools = conversation.fixed_tokens - format_tokens
    return Parts(**found, memory=memory, summary=summary, tools=tools, format=format_tokens)
