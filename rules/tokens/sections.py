"""A prompt's tokens by section, by speaker and kind, and what would have to shrink so that a prompt fits its limit.

Laws: the five sections add up to the prompt, also after they were scaled by a model's token ratio. So do the parts, and
`memory` and `summary` are those of the sections. What has to shrink is there, and the reductions add up to the excess.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise, repeat
from operator import mul, sub
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from trimtab.rules.conversation import Conversation, CountTokens, Message, Role
from trimtab.rules.text.client_summaries import BEGINS_AS_SUMMARY, find_memory, is_client_summary
from trimtab.rules.text.markers import GO_ON, SUMMARY_END, SUMMARY_START


class Marks(NamedTuple):
    """Tokens of the parts of a text that belong to a section of their own."""

    memory: int = 0
    summary: int = 0


FindMarks = Callable[[str], Marks]
"""Returns the marks of a text, as `find_marks` does for the policy's memory tags."""
NO_MARKS = Marks()
SHORT_CHARS = 512
"""A shorter text is searched at each request. Measured: that is quicker than to remember what was found."""
# Reading a member of an enumeration takes as long as all else that is done for most messages.
_SYSTEM, _USER, _ASSISTANT, _TOOL = Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL


class Sections(NamedTuple):
    """Tokens by section.

    system: system and developer messages at the beginning, tools, response format, and the frame of the request.
    summary: a summary of earlier messages, by trimtab or by the client itself.
    memory: text between memory tags, in user messages and in later system messages.
    recent: everything else.
    current: the last user message without the memory in it. If a cut has joined that message to others, all of them.
    """

    system: int = 0
    summary: int = 0
    memory: int = 0
    recent: int = 0
    current: int = 0

    @property
    def tokens(self) -> int:
        return sum(self)

    def scale(self, ratio: float) -> "Sections":
        """The sections in the model's own tokens. They add up to the sum of all, scaled and rounded."""
        return self if ratio == 1 else Sections(*scale_parts(self, ratio))


def scale_parts(parts: Iterable[int], ratio: float) -> list[int]:
    """Scale numbers of tokens so that they add up to their sum, scaled and rounded."""
    totals = tuple(map(round, map(mul, repeat(ratio), accumulate(parts, initial=0))))
    return list(map(sub, totals[1:], totals))


class Counted(msgspec.Struct, frozen=True):
    """What was counted of some messages, for a transcript that begins with the same ones.

    leading: the number of system messages at the beginning. memory, summary, current: tokens of these sections.
    """

    messages: tuple[Message, ...]
    leading: int
    memory: int
    summary: int
    current: int

    def add_up(self, conversation: Conversation) -> Sections:
        """The sections of a transcript with these messages."""
        system = conversation.fixed_tokens
        for message in self.messages[: self.leading]:
            system += message.tokens
        recent = conversation.tokens - system - self.memory - self.summary - self.current
        return Sections(system, self.summary, self.memory, recent, self.current)


def count_sections(conversation: Conversation, find: FindMarks) -> Sections:
    return count_messages(conversation.messages, find).add_up(conversation)


def count_messages(messages: tuple[Message, ...], find: FindMarks, known: Counted | None = None) -> Counted:
    """What `count_sections` must know of the messages. `known` saves time: what was counted of the first ones."""
    memory = summary = current = 0
    start = 0 if known is None else len(known.messages)
    if known is not None and known.leading < start and messages[:start] == known.messages:
        leading, memory, summary, current = known.leading, known.memory, known.summary, known.current
    else:
        start = leading = count_systems(messages)
    # Most messages of a long transcript are the assistant's and results, so these are left out first.
    for message in [
        one
        for one in messages[start:]
        if (role := one.role) is not _TOOL
        and (role is not _ASSISTANT or (one.texts[0].startswith(SUMMARY_START) if one.texts else _is_note(one)))
    ]:
        marks = _find_in_texts(message, find)
        memory += marks.memory
        summary += marks.summary
        if message.role is _USER and (message.raw or not _is_ours(message)):
            current = message.tokens - marks.memory - marks.summary
    return Counted(messages, leading, memory, summary, current)


def count_systems(messages: Sequence[Message]) -> int:
    """The number of system and developer messages before the first other message."""
    for index, message in enumerate(messages):
        if message.role is not _SYSTEM:
            return index
    return len(messages)


def find_current(messages: Sequence[Message]) -> int | None:
    """The index of the last user message; None if there is none. Messages of trimtab's own do not count."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.role is _USER and not _is_ours(message):
            return index
    return None


def _is_ours(message: Message) -> bool:
    """Whether a user message holds no word of the client."""
    if message.raw or message.taken_in or not message.texts:
        return False
    return message.texts[0] == GO_ON or message.texts[0].startswith(SUMMARY_START)


def _may_have_marks(message: Message) -> bool:
    """Whether it is of a role that has memory, or begins with a summary, which may have the assistant's role."""
    if message.role is _ASSISTANT:
        return message.texts[0].startswith(SUMMARY_START) if message.texts else _is_note(message)
    return message.role is not _TOOL


def _is_note(message: Message) -> bool:
    """Whether it is only what the provider's own compaction wrote, which is no text of the message."""
    return message.keeps_before and not message.texts and not message.tool_calls


def find_in_message(message: Message, find: FindMarks) -> Marks:
    """The marks of a message behind the leading system messages; together at most the message's tokens."""
    return _find_in_texts(message, find) if _may_have_marks(message) else NO_MARKS


def _find_in_texts(message: Message, find: FindMarks) -> Marks:
    if message.keeps_before and _is_note(message):
        return Marks(0, message.tokens)
    memory = summary = 0
    for text in message.texts:
        is_plain = len(text) < SHORT_CHARS and "</" not in text and "[" not in text  # as most texts are
        marks = NO_MARKS if is_plain and BEGINS_AS_SUMMARY.match(text) is None else find(text)
        if marks is not NO_MARKS:
            memory += marks.memory
            summary += marks.summary
    if not memory and not summary:
        return NO_MARKS
    summary = min(summary, message.tokens)
    return Marks(min(memory, message.tokens - summary), summary)


def find_marks(text: str, tags: Sequence[str], count: CountTokens) -> Marks:
    """The marks of one text; NO_MARKS itself if it has none. `tags`: the names of memory tags.

    Memory within a summary belongs to the summary. The time is linear in the text's length for each tag.
    """
    if is_client_summary(text):
        return Marks(0, count(text))
    if "</" not in text and "[" not in text:  # by far the most texts, and quicker than what follows
        return NO_MARKS
    if SUMMARY_START in text:
        spans = _find_summaries(text)
    else:
        blocks = find_memory(text, tags)
        return Marks(sum([count(text[start:stop]) for start, stop in blocks]), 0) if blocks else NO_MARKS
    between = [text[stop:start] for (_, stop), (start, _) in pairwise([(0, 0), *spans, (len(text), 0)])]
    memory = sum(count(part[start:stop]) for part in between for start, stop in find_memory(part, tags))
    return Marks(memory, sum(count(text[start:stop]) for start, stop in spans))


def _find_summaries(text: str) -> list[tuple[int, int]]:
    """The spans of trimtab's summaries, from the introduction to the closing line, or to the end of the text."""
    spans, stop = [], 0
    while (start := text.find(SUMMARY_START, stop)) >= 0:
        end = text.find(SUMMARY_END, start)
        stop = len(text) if end < 0 else end + len(SUMMARY_END)
        spans.append((start, stop))
    return spans


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
        return sum(self)

    def scale(self, ratio: float) -> "Parts":
        """The parts in the model's own tokens. They add up to the sum of all, scaled and rounded."""
        return Parts(*scale_parts(self, ratio))


def count_parts(conversation: Conversation, find: FindMarks, *, format_tokens: int) -> Parts:
    """The parts of a transcript. `format_tokens` of its fixed tokens count as format, the others as tools."""
    found = _add_up(conversation, find)
    return Parts(
        system=found[LEADING] + found[LATER],
        tools=conversation.fixed_tokens - format_tokens,
        memory=found[MEMORY],
        summary=found[SUMMARY],
        user=found[TASK] + found[USERS] + found[OTHERS] + found[CURRENT],
        assistant=found[ASSISTANT],
        tool_results=found[NEWEST] + found[RESULTS],
        format=format_tokens,
    )


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


class Part(msgspec.Struct, frozen=True):
    """A part of a prompt in plain words, its section and its tokens.

    by_tokens: how much shorter it would have to be; 0 if nothing is asked of it.
    """

    what: str
    section: str
    tokens: int
    by_tokens: int = 0


def list_parts(conversation: Conversation, find: FindMarks, ratio: float = 1.0) -> list[Part]:
    """The parts of a prompt, in the model's own tokens; each at most once, and none that is empty."""
    found = _add_up(conversation, find)
    scaled = zip(found, scale_parts(found.values(), ratio), strict=True)
    return [Part(what, SECTIONS[what], tokens) for what, tokens in scaled if tokens]


def _add_up(conversation: Conversation, find: FindMarks) -> dict[str, int]:
    messages = conversation.messages
    found = dict.fromkeys(SECTIONS, 0)
    found[TOOLS] = conversation.fixed_tokens
    leading = count_systems(messages)
    # The results behind the last assistant message are the newest.
    backwards = range(len(messages) - 1, -1, -1)
    newest = next((at + 1 for at in backwards if messages[at].role is Role.ASSISTANT), 0)
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
    return found


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
