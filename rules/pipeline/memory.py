"""Finds the retrieved memory of a growing transcript, and drops it where the fold (window/memory.py) says so.

Law: a message without its memory is a function of the message and the policy's tags alone. For the fold, only user
messages and later system messages hold memory; head.py looks after those at the beginning. The text around a block
stays, and a marker tells that the block is missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from rules.conversation import Conversation, CountTokens, Decision, Message, Outcome, Role
from rules.policy import OverflowStrategy, Policy
from rules.results.edit import UNTOUCHED, shorten_once
from rules.results.incremental import weigh_message
from rules.results.work import Shortened, Work
from rules.text.markers import mark_memory
from rules.text.memory_blocks import find_memory

_HOLDERS = frozenset({Role.USER, Role.SYSTEM})


@dataclass(slots=True, eq=False)
class Memory:
    """The retrieved memory of a transcript so far.

    savings: by the index of a message with memory, the tokens that dropping it saves.
    bare: the same messages without their memory.
    size_bytes: memory that this takes, roughly.

    After a LargeWorkError this object must not be used again.
    """

    savings: dict[int, int] = field(default_factory=dict)
    bare: dict[int, Message] = field(default_factory=dict)
    size_bytes: int = 0
    _seen: int = 0

    def extend(self, messages: Sequence[Message], leading: int, policy: Policy, work: Work) -> None:
        """Search the new messages of a transcript; its first `leading` ones hold none. Raises LargeWorkError."""
        start, self._seen = max(self._seen, leading), len(messages)
        if not policy.memory_tags or policy.overflow_strategy is OverflowStrategy.ERROR:
            return
        for index in range(start, len(messages)):
            message = messages[index]
            if message.role in _HOLDERS:
                bare = strip_message(message, policy.memory_tags, work)
                if bare is not message:
                    self.savings[index] = message.tokens - bare.tokens
                    self.bare[index] = bare
                    self.size_bytes += weigh_message(bare)

    def strip(self, messages: Sequence[Message], stop: int | None = None) -> Sequence[Message]:
        """The messages, those before `stop` without memory; the same object if there is none."""
        places = [index for index in self.bare if stop is None or index < stop]
        if not places:
            return messages
        stripped = list(messages)
        for index in places:
            stripped[index] = self.bare[index]
        return stripped

    def drop(self, conversation: Conversation, stop: int) -> Outcome:
        """The conversation without the memory of the messages before `stop`."""
        stripped = self.strip(conversation.messages, stop)
        if stripped is conversation.messages:
            return Outcome(conversation)
        outcome = conversation.edit(stripped)
        places = [index for index in self.bare if index < stop]
        reason = f"memory of {len(places)} messages before message {stop}"
        decision = Decision("memory", reason, conversation.tokens, outcome.tokens, len(places), min(places))
        return Outcome(outcome, (decision,))


def strip_message(message: Message, tags: Sequence[str], work: Work) -> Message:
    """The message without its retrieved memory; the same one if it holds none. Raises LargeWorkError."""
    if message.has_fixed_texts or not any(find_memory(text, tags) for text in message.texts):
        return message
    return shorten_once(
        message, None, f"memory {' '.join(tags)}", work, partial(_work_out, message.texts, tags, work.count)
    )


def _work_out(texts: Sequence[str], tags: Sequence[str], count: CountTokens) -> Shortened:
    stripped = tuple(_strip(text, tags, count) for text in texts)
    saved_tokens = sum(map(count, texts)) - sum(map(count, stripped))
    return Shortened(stripped, saved_tokens) if saved_tokens > 0 else UNTOUCHED


def _strip(text: str, tags: Sequence[str], count: CountTokens) -> str:
    """The text with a marker for each block that costs more than its marker."""
    parts: list[str] = []
    end = 0
    for start, stop in find_memory(text, tags):
        block = text[start:stop]
        tokens = count(block)
        marker = mark_memory(tokens)
        parts += [text[end:start], marker if count(marker) < tokens else block]
        end = stop
    return "".join((*parts, text[end:]))
