"""The vocabulary of the rules: messages, decisions.

Law: values only. Nothing here decides anything, and nothing here imports anything of ours.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple, Self

CountTokens = Callable[[str], int]
"""Tokens of a text, by whatever tokenizer the caller chose. Pure: the same text always has the same count."""


class Role(StrEnum):
    """Who speaks a message, in the rules' own words. A codec says which of its dialect's roles is which."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    """A tool result, whatever the dialect calls it."""
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Shape:
    """What a dialect's transcripts look like, as far as a rule has to know.

    `alternates`: user and assistant messages must take turns. `has_system_messages`: a system message may stand between
    the others.
    """

    alternates: bool = True
    has_system_messages: bool = True


class Origin(NamedTuple):
    """Where the client's request says a message: part `part` of the elements [start, stop) of its transcript.

    Nearly always that is one element. Several make one message if the dialect writes calls as elements of their own;
    several messages have one element if it may hold several tool results.
    """

    start: int
    stop: int
    part: int = 0


def whole_elements(number: int) -> tuple[Origin, ...]:
    """The origins of messages of which each is one element."""
    return _make_origins(1 << number.bit_length())[:number]


@lru_cache(maxsize=32)
def _make_origins(number: int) -> tuple[Origin, ...]:
    return tuple(Origin(start, start + 1) for start in range(number))


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that an assistant message makes. `arguments` is the text as the model wrote it, and is never cut."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Media:
    """A content part that is not text: its JSON, and what it costs.

    `line` is what may stand in the place of an image, and `line_tokens` what that costs; the empty text for what is no
    image. If it `is_removed`, that line is forwarded in its place, and `tokens` are those of the line.
    """

    raw: bytes
    tokens: int
    line: str = ""
    line_tokens: int = 0
    is_removed: bool = False

    @property
    def saving_tokens(self) -> int:
        """What is saved if the line stands in its place; 0 for what is no image, is no larger, or is gone."""
        return max(self.tokens - self.line_tokens, 0) if self.line else 0

    def remove(self) -> "Media":
        """The part as its line."""
        return replace(self, tokens=self.line_tokens, is_removed=True)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a transcript.

    `wire_role` is the role's name on the wire if that is another one. `texts` are the text segments in wire order;
    `media` the content parts that are not text, in wire order. `answers` is the id of the call that a tool result
    answers; None if the dialect's results name no call but only a tool (`name`). `raw` are the client's own bytes,
    none for a message that a rule made, and are never altered: `edited` says that `texts` or `media` differ from them.
    `digest` is the hash of what the client said (see prefix.py) and survives edits. `tokens` is what the message costs
    as it stands, `saved_tokens` how much more it cost as the client sent it. `is_error` is set if the client says so of
    a tool result, `has_reasoning` if the message holds reasoning, which a server may drop. `taken_in` are the client's
    bytes of other messages whose words this one has taken in. `has_uncounted` is set if the message has members that a
    server may read and that are not counted.
    """

    role: Role
    texts: tuple[str, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    answers: str | None = None
    name: str | None = None
    media: tuple[Media, ...] = ()
    raw: bytes = b""
    edited: bool = False
    digest: bytes = b""
    tokens: int = 0
    is_error: bool = False
    saved_tokens: int = 0
    taken_in: tuple[bytes, ...] = ()
    wire_role: str = ""
    has_reasoning: bool = False
    has_uncounted: bool = False

    @property
    def text(self) -> str:
        """All text segments, a line break between two."""
        return "\n".join(self.texts)

    @property
    def role_name(self) -> str:
        """The role as the client names it."""
        return self.wire_role or self.role

    @property
    def original_tokens(self) -> int:
        """What the message cost as the client sent it."""
        return self.tokens + self.saved_tokens

    def shorten(self, texts: tuple[str, ...], saved_tokens: int) -> "Message":
        """The message with other texts, which cost so many tokens less."""
        return replace(
            self,
            texts=texts,
            edited=True,
            tokens=self.tokens - saved_tokens,
            saved_tokens=self.saved_tokens + saved_tokens,
        )


_tell_tokens = attrgetter("tokens")


@dataclass(frozen=True, slots=True)
class Conversation:
    """A transcript, oldest message first; `fixed_tokens` for what stands outside it (tools, schema, priming).

    `origins` says of each message where it stood in the client's request; None for one that a rule made. It stands
    beside the messages because these are shared: the same message stands elsewhere in another request.
    """

    messages: tuple[Message, ...]
    fixed_tokens: int
    origins: tuple[Origin | None, ...]
    shape: Shape = Shape()

    @property
    def tokens(self) -> int:
        """Estimated prompt tokens of the whole request."""
        tokens: int = sum(map(_tell_tokens, self.messages))
        return self.fixed_tokens + tokens

    def edit(self, messages: Sequence[Message]) -> Self:
        """The transcript with as many messages, each in the place of the one before; some of them edited."""
        return replace(self, messages=tuple(messages))


@dataclass(frozen=True, slots=True)
class Decision:
    """What a rule did.

    `messages` is how many it touched; `first_changed` the index, in the transcript as the rule saw it, of the first
    message whose forwarded bytes differ from the original.
    """

    rule: str
    reason: str
    tokens_before: int
    tokens_after: int
    messages: int
    first_changed: int

    @property
    def saved_tokens(self) -> int:
        """Tokens saved; negative where the rule had to add some."""
        return self.tokens_before - self.tokens_after


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a rule returns: the same conversation object when it had nothing to do."""

    conversation: Conversation
    decisions: tuple[Decision, ...] = ()


def starts_step(message: Message) -> bool:
    """Whether a message opens a step, the smallest unit that is cut.

    Every message does, except a tool result, which belongs to its call's step.
    """
    return message.role is not Role.TOOL


def count_leading(messages: Sequence[Message]) -> int:
    """How many system and developer messages stand at the front."""
    for index, message in enumerate(messages):
        if message.role is not Role.SYSTEM:
            return index
    return len(messages)
