"""The values that the rules work on: messages, conversations, decisions.

Law: values only. This module decides nothing and imports no other module of the project.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple, Self

import msgspec
from msgspec import structs

CountTokens = Callable[[str], int]
"""Returns the tokens of a text. The caller chooses the tokenizer; the same text must always have the same count."""


class Role(StrEnum):
    """The speaker of a message. Each dialect's codec maps the dialect's own roles to these."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    """A tool result, whatever the dialect calls it."""
    OTHER = "other"
    """A role that trimtab does not know."""


class Shape(msgspec.Struct, frozen=True):
    """The properties of a dialect's transcripts that the rules depend on.

    `alternates`: user and assistant messages must take turns.
    `has_system_messages`: a system message of ours is allowed between the other messages.
    `joins_systems`: a system message among the others must not follow another one.
    `seals_reasoning`: nobody can write an assistant's message for a transcript in which these have reasoning.
    """

    alternates: bool = True
    has_system_messages: bool = True
    joins_systems: bool = False
    seals_reasoning: bool = False


_USUAL_SHAPE = Shape()


class Origin(NamedTuple):
    """The position of a message in the client's request: part `part` of the elements [start, stop).

    Usually a message is exactly one element. If a dialect writes tool calls as separate elements, several elements form
    one message. If one element can hold several tool results, several messages share it and differ in `part`.
    """

    start: int
    stop: int
    part: int = 0


def whole_elements(number: int) -> tuple[Origin, ...]:
    """The origins of `number` messages if each message is exactly one element of the request."""
    # Origins are made for the next power of two, so that few tuples are cached and all requests share them.
    return _make_origins(1 << number.bit_length())[:number]


@lru_cache(maxsize=32)
def _make_origins(number: int) -> tuple[Origin, ...]:
    return tuple(Origin(start, start + 1) for start in range(number))


class Arguments(StrEnum):
    """How the arguments of a call may be shortened: strings within their JSON, as a text, or not at all."""

    JSON = "json"
    TEXT = "text"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of an assistant message.

    arguments: the model's own text. Only long strings in it are ever shortened, once they are stale (see
        pipeline/shortening.py); `shortens` says whether the dialect allows that. JSON stays JSON of the same schema.
    id_json: the id as the client wrote it, if that was no string; empty otherwise.
    form: if the dialect has several forms of results, the one that answers this call.
    """

    id: str
    name: str
    arguments: str
    id_json: bytes = field(default=b"", compare=False)
    form: str = field(default="", compare=False)
    shortens: Arguments = field(default=Arguments.JSON, compare=False)


class Media(msgspec.Struct, frozen=True):
    """A content part that is not text: its JSON and its tokens.

    `guessed_tokens` are those of `tokens` that are a low guess: only the upstream knows what the part costs.
    `line` is the text that may replace an image, and `line_tokens` is its size. `line` is empty if the part is not an
    image. If `is_removed`, the line is forwarded instead of the part, and `tokens` is the size of the line.
    """

    raw: bytes
    tokens: int
    line: str = ""
    line_tokens: int = 0
    is_removed: bool = False
    guessed_tokens: int = 0

    @property
    def saving_tokens(self) -> int:
        """Tokens saved if a one-line marker replaces the part; 0 for no image, a smaller one, or a removed one."""
        return max(self.tokens - self.line_tokens, 0) if self.line else 0

    def remove(self) -> "Media":
        """The same part, replaced by its one-line marker."""
        return structs.replace(self, tokens=self.line_tokens, is_removed=True, guessed_tokens=0)


class Served(NamedTuple):
    """Calls that a server answers itself, by their ids, if the result is in another message than the call.

    opens: calls that are made in this message.
    closes: calls that are answered in it.
    goes_on: calls that wait for the calls of this message.
    """

    opens: tuple[str, ...] = ()
    closes: tuple[str, ...] = ()
    goes_on: tuple[str, ...] = ()


NOT_SERVED = Served()

WRITTEN_ROLES = {"system": Role.SYSTEM, "developer": Role.SYSTEM, "user": Role.USER}
"""The roles on the wire in which clients write a tool result as text, and what each of them means."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a transcript.

    - `wire_role`: the role's name on the wire, if it differs from `role`.
    - `texts`, `media`: the text segments and the other content parts, each in wire order.
    - `answers`: the id of the call that a tool result answers. None if the dialect's results have only a tool's `name`.
      `answers_json`: the same as the call has it, for a result that a rule made; empty if that is a string. `form`: the
      form of the result, if the dialect has several.
    - `raw`: the client's own bytes, never altered; empty for a message that a rule made.
    - `edited`: `texts`, `media` or the arguments of calls differ from `raw`.
    - `digest`: the hash of what the client said (see prefix.py). Edits do not change it.
    - `tokens`: the present size. `saved_tokens`: how much larger the client's own message was.
    - `is_error`: the client marked this tool result as an error.
    - `has_reasoning`: the message holds reasoning, which a server may drop.
    - `taken_in`: the raw bytes of other messages whose texts were joined to this one.
    - `has_uncounted`: the message has members that are not counted but that a server may read.
    - `keeps_before`: nothing may be cut before this message, and it stays itself.
    - `header`: the beginning of a written result's first text, which is not in `texts`; see `is_written`.
    - `has_fixed_texts`: some texts cannot be written back with other words, so none may be shortened by a rule on
      messages of this role.
    - `has_unread_calls`: the message calls tools in a form without ids, or in that of another dialect.
    - `stays`: a system message that no cut removes, because what comes after it depends on it.
    - `loads`: names of the tools that the model can call because it has found them in this message.
    - `served`: calls of the server that connect this message with others.
    - `keep`: nobody may cut or shorten it, as far as it fits: the client asks for that.
    - `kinds`: a cache: its characters by kind (tokens/scripts.py), as soon as somebody asked for them.
    - `beside`: members that hold an assistant's reasoning, each with the JSON of an empty value. Some upstreams want
      them in every message of an assistant, so one that a rule writes gets those of an earlier message.
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
    keeps_before: bool = False
    header: str = ""
    has_fixed_texts: bool = False
    has_unread_calls: bool = False
    stays: bool = False
    loads: tuple[str, ...] = ()
    served: Served = NOT_SERVED
    beside: tuple[tuple[str, bytes], ...] = ()
    answers_json: bytes = b""
    form: str = field(default="", compare=False)
    keep: bool = False
    kinds: tuple[float, ...] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def text(self) -> str:
        """All text segments, joined by line breaks."""
        return "\n".join(self.texts)

    @property
    def role_name(self) -> str:
        """The role's name on the wire."""
        return self.wire_role or self.role

    @property
    def is_written(self) -> bool:
        """Whether this is a tool result that the client wrote as text, in a message of another role."""
        return self.role is Role.TOOL and self.wire_role in WRITTEN_ROLES

    @property
    def speaker(self) -> Role:
        """The role as an upstream reads it: that of the wire for a written result, else `role`."""
        return WRITTEN_ROLES[self.wire_role] if self.is_written else self.role

    def as_said(self) -> "Message":
        """The message as an upstream reads it: a written result in its own role, its header in its text."""
        if not self.is_written:
            return self
        texts = (self.header + "".join(self.texts[:1]), *self.texts[1:]) if self.header else self.texts
        return replace(self, role=self.speaker, texts=texts, header="")

    @property
    def chars(self) -> int:
        """What a rule reads of it at most: its texts, and the arguments of its calls."""
        return sum(map(len, self.texts)) + sum([len(call.arguments) for call in self.tool_calls])

    @property
    def original_tokens(self) -> int:
        """The tokens of the message as the client sent it."""
        return self.tokens + self.saved_tokens

    def shorten(self, texts: tuple[str, ...], saved_tokens: int) -> "Message":
        """The message with `texts` in place of its own; they cost `saved_tokens` tokens less."""
        return replace(
            self,
            texts=texts,
            edited=True,
            tokens=self.tokens - saved_tokens,
            saved_tokens=self.saved_tokens + saved_tokens,
        )


_tell_tokens = attrgetter("tokens")
_tell_keeps = attrgetter("keeps_before")
_tell_media = attrgetter("media")


@dataclass(frozen=True, slots=True)
class Conversation:
    """A transcript, oldest message first.

    `fixed_tokens` is the size of everything outside the messages: tools, response schema, priming. `origins` has one
    entry for each message: its position in the client's request, or None for a message that a rule made. Positions are
    kept apart from the messages because requests share message objects, at different positions.

    `fixed_kinds` are the characters of that by kind, as in a message.

    If `continues`, the upstream holds earlier messages that are not here: nothing can be cut, and a call or a result
    without its counterpart may be answered there.
    """

    messages: tuple[Message, ...]
    fixed_tokens: int
    origins: tuple[Origin | None, ...]
    shape: Shape = _USUAL_SHAPE
    continues: bool = False
    fixed_kinds: tuple[float, ...] = field(default=(0,) * 7, compare=False)
    _tokens: int | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def tokens(self) -> int:
        """Estimated prompt tokens of the whole request. Added up once: a request asks ten times."""
        tokens = self._tokens
        if tokens is None:
            tokens = self.fixed_tokens + sum(map(_tell_tokens, self.messages))
            object.__setattr__(self, "_tokens", tokens)
        return tokens

    @property
    def guessed_tokens(self) -> int:
        """Those of `tokens` that are a guess."""
        tokens = 0
        for media in filter(None, map(_tell_media, self.messages)):
            for part in media:
                tokens += part.guessed_tokens
        return tokens

    def edit(self, messages: Sequence[Message]) -> Self:
        """The same transcript with edited messages: as many as before, in the same order."""
        return replace(self, messages=tuple(messages))


@dataclass(frozen=True, slots=True)
class Decision:
    """A record of what a rule did.

    `messages` is the number of messages that the rule changed or removed. `first_changed` is the index of the first
    message whose forwarded bytes differ from the original, in the transcript that the rule was given.
    """

    rule: str
    reason: str
    tokens_before: int
    tokens_after: int
    messages: int
    first_changed: int

    @property
    def saved_tokens(self) -> int:
        """Tokens saved; negative if the rule had to add some."""
        return self.tokens_before - self.tokens_after


class Telling(NamedTuple):
    """The sentence with which a rule tells people what it did. It is filled in when somebody reads it (story.py).

    noun: what it changes. sentence: its gaps are `{what}` (how many, of which tools, and where), `{was}`, `{each}`,
    `{saved}`, and `{hidden}` (how many of them a cut has removed since).
    """

    noun: str
    sentence: str


class Outcome(msgspec.Struct, frozen=True, eq=False):
    """A rule's result. If the rule had nothing to do, `conversation` is the same object that it was given.

    changed: for each decision, the indexes of the messages that it changed, in the transcript that the rule was given.
    """

    conversation: Conversation
    decisions: tuple[Decision, ...] = ()
    changed: tuple[tuple[int, ...], ...] = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Outcome):
            return False
        return self.conversation == other.conversation and self.decisions == other.decisions

    __hash__ = None  # type: ignore[assignment] # nothing keeps outcomes by their value


def replace_messages(conversation: Conversation, new: Mapping[int, Message], rule: str, reason: str) -> Outcome:
    """The conversation with new messages at these indexes, and the decision of the rule that made them.

    If there are none, the conversation itself and no decision.
    """
    if not new:
        return Outcome(conversation)
    messages = list(conversation.messages)
    for index, message in new.items():
        messages[index] = message
    outcome = conversation.edit(messages)
    decision = Decision(rule, reason, conversation.tokens, outcome.tokens, len(new), min(new))
    return Outcome(outcome, (decision,), (tuple(new),))


def starts_step(message: Message) -> bool:
    """Whether a message starts a step, the smallest unit that a cut removes.

    Every message starts one, except a tool result: it belongs to the step of its call.
    """
    return message.role is not Role.TOOL


def find_beside(messages: Sequence[Message]) -> tuple[tuple[str, bytes], ...]:
    """What a new message of an assistant behind these has beside its words: as the newest that has anything."""
    return next((message.beside for message in reversed(messages) if message.beside), ())


def ends_with_prefill(messages: Sequence[Message]) -> bool:
    """Whether the last message is the beginning of an answer that the client wrote (a prefill).

    The next request has the whole answer in its place, so nothing that lasts may depend on it.
    """
    return bool(messages) and messages[-1].role is Role.ASSISTANT and not messages[-1].tool_calls


def count_asked(messages: Sequence[Message]) -> int:
    """The number of messages that the session's request before this one had: all before the model's last answer."""
    last = len(messages) - ends_with_prefill(messages) - 1
    for at in range(last, 0, -1):
        if messages[at].role is Role.ASSISTANT:
            return at
    return 0


def count_leading(messages: Sequence[Message]) -> int:
    """The number of messages at the start that always stay as they are.

    Those are the system and developer messages before the first other message. If a message keeps what is before it,
    they are all messages up to the last such message and its results.
    """
    if any(map(_tell_keeps, messages)):
        stop = 1 + max(index for index, message in enumerate(messages) if message.keeps_before)
        while stop < len(messages) and messages[stop].role is Role.TOOL:
            stop += 1
        return stop
    for index, message in enumerate(messages):
        if message.role is not Role.SYSTEM:
            return index
    return len(messages)
