"""A prompt's tokens by section.

Law: the five sections add up to the prompt, also after they were scaled by a model's token ratio.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from rules.conversation import Conversation, CountTokens, Message, Role
from rules.text.client_summaries import is_client_summary
from rules.text.markers import GO_ON, INTRODUCTION, SUMMARY_END
from rules.text.memory_blocks import find_memory


class Marks(NamedTuple):
    """Tokens of the parts of a text that belong to a section of their own."""

    memory: int = 0
    summary: int = 0


FindMarks = Callable[[str], Marks]
"""Returns the marks of a text, as `find_marks` does for the policy's memory tags."""
NO_MARKS = Marks()
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
        """Sum of all sections."""
        return sum(self)

    def scale(self, ratio: float) -> "Sections":
        """The sections in the model's own tokens. They add up to the sum of all, scaled and rounded."""
        return self if ratio == 1 else Sections(*scale_parts(self, ratio))


def scale_parts(parts: Iterable[int], ratio: float) -> list[int]:
    """Scale numbers of tokens so that they add up to their sum, scaled and rounded."""
    return [stop - start for start, stop in pairwise(round(ratio * total) for total in accumulate(parts, initial=0))]


def count_sections(conversation: Conversation, find: FindMarks) -> Sections:
    """The sections of a transcript, in our tokens."""
    messages = conversation.messages
    leading = count_systems(messages)
    system = conversation.fixed_tokens
    for message in messages[:leading]:
        system += message.tokens
    memory = summary = current = 0
    # Most messages of a long transcript are the assistant's and results, so these are left out first.
    for message in [
        one
        for one in messages[leading:]
        if (role := one.role) is not _TOOL and (role is not _ASSISTANT or (one.texts and _may_have_marks(one)))
    ]:
        marks = find_in_message(message, find)
        memory += marks.memory
        summary += marks.summary
        if message.role is _USER and not _is_ours(message):
            current = message.tokens - marks.memory - marks.summary
    recent = conversation.tokens - system - memory - summary - current
    return Sections(system, summary, memory, recent, current)


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
    return message.texts[0] == GO_ON or message.texts[0].startswith(INTRODUCTION)


def _may_have_marks(message: Message) -> bool:
    """Whether it is of a role that has memory, or begins with a summary, which may have the assistant's role."""
    if message.role is _ASSISTANT:
        return bool(message.texts) and message.texts[0].startswith(INTRODUCTION)
    return message.role is not _TOOL


def find_in_message(message: Message, find: FindMarks) -> Marks:
    """The marks of a message behind the leading system messages; together at most the message's tokens."""
    if not _may_have_marks(message):
        return NO_MARKS
    memory = summary = 0
    for text in message.texts:
        marks = find(text)
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
    if INTRODUCTION in text:
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
    while (start := text.find(INTRODUCTION, stop)) >= 0:
        end = text.find(SUMMARY_END, start)
        stop = len(text) if end < 0 else end + len(SUMMARY_END)
        spans.append((start, stop))
    return spans
