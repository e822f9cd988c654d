"""What would have to shrink so that a prompt fits its limit, and by how much.

Law: what is named is always there, and its figures add up: the parts to the prompt, the reductions to the excess.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rules.conversation import Conversation, Message, Role
from rules.tokens.sections import FindMarks, count_systems, find_current, find_in_message, scale_parts

TOOLS = "the tool definitions and the response format"
LEADING = "the system messages at the beginning"
SUMMARY = "the summary of the earlier messages"
MEMORY = "the text between memory tags"
TASK = "the first user message"
USERS = "the other user messages"
NEWEST = "the newest tool results"
RESULTS = "the older tool results"
ASSISTANT = "the assistant's messages and tool calls"
LATER = "the system messages later in the conversation"
OTHERS = "the messages of other roles"
CURRENT = "the last user message"

SECTIONS = {
    TOOLS: "system",
    LEADING: "system",
    SUMMARY: "summary",
    MEMORY: "memory",
    TASK: "recent",
    USERS: "recent",
    NEWEST: "recent",
    RESULTS: "recent",
    ASSISTANT: "recent",
    LATER: "recent",
    OTHERS: "recent",
    CURRENT: "current",
}
"""The section of each part, in the order of the sections: so parts and sections are rounded at the same places."""
_ROLES = {Role.USER: USERS, Role.TOOL: RESULTS, Role.ASSISTANT: ASSISTANT, Role.SYSTEM: LATER}


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a prompt in plain words, its section and its tokens.

    by_tokens: how much shorter it would have to be; 0 if nothing is asked of it.
    """

    what: str
    section: str
    tokens: int
    by_tokens: int = 0


def list_parts(conversation: Conversation, find: FindMarks, ratio: float = 1.0) -> list[Part]:
    """The parts of a prompt, in the model's own tokens; each at most once, and none that is empty."""
    messages = conversation.messages
    found = dict.fromkeys(SECTIONS, 0)
    found[TOOLS] = conversation.fixed_tokens
    leading, newest = count_systems(messages), _find_newest(messages)
    found[LEADING] = sum(message.tokens for message in messages[:leading])
    task = next((index for index, message in enumerate(messages) if message.role is Role.USER), None)
    # The last one is written last: a single user message is both, and counts as the last.
    named = {task: TASK, find_current(messages): CURRENT}
    for index in range(leading, len(messages)):
        message = messages[index]
        marks = find_in_message(message, find)
        found[MEMORY] += marks.memory
        found[SUMMARY] += marks.summary
        is_newest = message.role is Role.TOOL and index >= newest
        what = NEWEST if is_newest else named.get(index, _ROLES.get(message.role, OTHERS))
        found[what] += message.tokens - sum(marks)
    scaled = zip(found, scale_parts(found.values(), ratio), strict=True)
    return [Part(what, SECTIONS[what], tokens) for what, tokens in scaled if tokens]


def _find_newest(messages: Sequence[Message]) -> int:
    """The index behind the last assistant message: the results from there on are the newest."""
    indexes = range(len(messages) - 1, -1, -1)
    return next((index + 1 for index in indexes if messages[index].role is Role.ASSISTANT), 0)


def share_excess(parts: Iterable[Part], excess_tokens: int, head_tokens: int = 0) -> list[Part]:
    """The parts that would have to shrink, with `by_tokens`: the largest first, and no more than are needed.

    head_tokens: so much of the excess comes from the head (tools, system messages at the beginning, first user
    message). The summary is the last one, because the client cannot shorten it.
    """
    ordered = sorted(parts, key=lambda part: (part.what == SUMMARY, -part.tokens))
    has_task = any(part.what == TASK for part in ordered)
    head = {TOOLS, LEADING, TASK if has_task else CURRENT}
    shares, left_tokens = dict.fromkeys((part.what for part in ordered), 0), excess_tokens
    # First what only the head can give, then what any part can give.
    for names, most in ((head, min(head_tokens, excess_tokens)), (shares.keys(), excess_tokens)):
        for part in ordered:
            if part.what in names:
                given_tokens = excess_tokens - left_tokens
                by_tokens = min(part.tokens - shares[part.what], most - given_tokens)
                shares[part.what] += by_tokens
                left_tokens -= by_tokens
    return [replace(part, by_tokens=shares[part.what]) for part in ordered if shares[part.what]]
