"""What all dialects share to read answers, to write errors, and to say how a question of ours is to be answered.

A refused form of a question is the name of a member; `stream=true` if a streamed question is refused, too; or `limit>N`
if only a limit above N is refused.

Law: no I/O. Whatever an upstream sends, only what reads a completion or a note raises, the work is bounded, and only a
parameter that the question has is found in an error. No name of a dialect's field stands here.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec
import orjson

from trimtab.proxy.wire.answers.sse import MAX_FIRST_EVENT_BYTES, FirstEvent, read_events, write_event
from trimtab.proxy.wire.answers.tap import ReadAnswer
from trimtab.proxy.wire.answers.usage import Usage
from trimtab.proxy.wire.json import BYTE_ORDER_MARK, DECODE_ERRORS, describe_fault, try_decode
from trimtab.proxy.wire.overflow import Overflow, read_overflow
from trimtab.proxy.wire.transcript.body import UndecodableError

PROMPT_TOO_LONG = "context_length_exceeded"
"""Error code that makes clients compact by themselves. Source: OpenAI's API; agents look for it."""

MAX_REASON_BYTES = 2000  # Quoted of another dialect's error. Chosen: as MAX_TEXT_CHARS in overflow.py.


class Completion(msgspec.Struct, frozen=True):
    """The completion that a model wrote for a question.

    usage: as the upstream reports it; its fields are None if they are not reported.
    was_cut: the completion ended at its limit.
    note: of a provider that compacts: the JSON of the elements that stand for the transcript, joined by commas.
    """

    text: str
    usage: Usage
    calls_tool: bool = False
    was_cut: bool = False
    was_filtered: bool = False
    note: bytes = b""


class ErrorText(msgspec.Struct, frozen=True):
    """An error for a client. code, type: for programs. param: the field at fault. more: further members.

    tokens, limit_tokens: of a prompt that is too long, and the most that it may have; None if they are not known.
    """

    message: str
    code: str
    type: str = "invalid_request_error"
    param: str | None = None
    tokens: int | None = None
    limit_tokens: int | None = None
    more: Mapping[str, object] = msgspec.field(default_factory=dict)


class Answers:
    """The part of a codec that is about answers; see codec.py.

    carries: the events of a stream carry the response; its usage is not their own.
    max_first_event_bytes: as many are held until there is a first event.
    error_type: the type of an error that had another form than the dialect's.
    """

    transcript: str
    error_type = "upstream_error"
    carries = False
    read_answer: ReadAnswer
    """The usage and the texts of a response or of one event. Other JSON gives the usage so far and no texts."""
    is_end: Callable[[bytes], bool]  # Whether the data of an event says that the answer is complete
    is_part_of_answer: Callable[[bytes], bool]
    """Whether a line of a stream is certainly part of a completion, not of an error."""
    is_greeting: Callable[[bytes], bool] | None = None
    is_ping: Callable[[bytes], bool] | None = None
    """For both see `FirstEvent`."""
    max_first_event_bytes = MAX_FIRST_EVENT_BYTES
    read_empty_answer: Callable[[bytes], Overflow | None]
    """As `read_refusal`, for a response with status 200 or one event of it."""

    def hold_first_event(self, *, keeps_all: bool) -> FirstEvent:
        return FirstEvent(
            self.is_part_of_answer,
            self.max_first_event_bytes,
            keeps_all=keeps_all,
            is_greeting=self.is_greeting,
            is_ping=self.is_ping,
        )

    def read_refusal(self, status: int, body: bytes) -> Overflow | None:
        """What a response, or an event of a stream, says about exceeding the window; None if it says nothing of it."""
        return read_overflow(status, body) if status != 200 else self.read_empty_answer(body)

    def write_error(self, error: ErrorText, *, as_event: bool) -> bytes:
        described = self.describe_error(error)
        return self.write_failure(described) if as_event else self.write_error_body(described)

    def describe_error(self, error: ErrorText, /) -> dict[str, Any]:
        param = self.transcript if error.code == PROMPT_TOO_LONG else error.param
        return {"message": error.message, "type": error.type, "param": param, "code": error.code, **error.more}

    def write_error_body(self, described: dict[str, Any]) -> bytes:
        return orjson.dumps({"error": described})

    def write_failure(self, described: dict[str, Any]) -> bytes:
        """An error as what ends a stream."""
        return write_event(self.write_error_body(described))

    write_answer: Callable[[int, bytes], bytes | None]
    """As `write_event`; None for an error in another form than the dialect's."""

    def write_event(self, status: int, body: bytes) -> bytes:
        """A non-stream response of the upstream as events of a stream. An error in another form names the status."""
        written = self.write_answer(status, body)
        if written is not None:
            return written
        reason = body[:MAX_REASON_BYTES].decode("utf-8", "replace").strip() or "no reason given"
        return self.write_error(ErrorText(f"status {status}: {reason}", str(status), self.error_type), as_event=True)

    join: Callable[[list[bytes]], Completion]
    """The completion in the events of a stream, or in a whole response. Raises UndecodableError or DECODE_ERRORS."""

    def read_completion(self, answer: bytes) -> Completion:
        """The completion in the response to a question, streamed or not. Raises UndecodableError."""
        return _read_whole(self.join, answer)


class ProviderNote(msgspec.Struct, frozen=True):
    """How a dialect's provider compacts by itself: how it is asked, and its note, which goes in place of the messages.

    Nothing in a note is changed, since the provider has signed or encrypted it. A note has only elements that need no
    others, so it can stand before any transcript.

    path: follows that of the client's request.
    headers: of the question, and of each request that has a note. Their values are lists.
    finish: what the members of a question and its parameters become, with the operator's own instructions; None if they
        do not allow it.
    join: the note in the events of a stream, or in a whole answer; without `note` if there is none. Raises
        UndecodableError or one of DECODE_ERRORS.
    """

    path: str
    headers: tuple[tuple[str, str], ...]
    finish: Callable[[dict[str, msgspec.Raw], dict[str, Any], str], dict[str, Any] | None]
    join: Callable[[list[bytes]], Completion]

    def read(self, answer: bytes) -> Completion:
        """The note in an answer, streamed or not. Raises UndecodableError."""
        return _read_whole(self.join, answer)


def _read_whole(join: Callable[[list[bytes]], Completion], answer: bytes) -> Completion:
    try:
        events = read_events(answer)
        completion = join([answer.removeprefix(BYTE_ORDER_MARK)] if events is None else events)
        completion.note.decode()  # what is stored and forwarded must be UTF-8
    except DECODE_ERRORS as error:
        raise UndecodableError(describe_fault(error)) from error
    return completion


CACHE_KEY = "prompt_cache_key"
TEMPERATURE, STREAM, STREAMED, STREAM_OPTIONS = "temperature", "stream", "stream=true", "stream_options"
_ABOVE = "limit>"
SURE_FACTOR = 2
"""A required limit never exceeds the client's own if that is this many times the summary's: a model refuses a larger
limit than it has, and Claude Code allows thinking nearly all of its limit. Chosen: this leaves room to think."""
LEAST_LIMIT = 16  # A smaller number in an error is no limit of tokens. Chosen: most such numbers are counts.
MAX_TEXT_CHARS = 2000  # Part of each text that is read. Chosen: a server's own words come first, then what it quotes.
MAX_BYTES = 128 * 1024  # Part of an answer that is read. Chosen: errors are far shorter.
MAX_TEXTS = 100  # chosen: more than a validator writes about one request
_FIELD_KEYS = frozenset({"param", "parameter", "params", "loc", "field", "fields", "path", "property", "target"})
"""Members of an error that name the member at fault. Source: OpenAI, pydantic, JSON:API, Azure, Google."""
_QUOTED_KEYS = frozenset({"input", "input_value", "request", "body", "value", "received"})
"""Members in which a validator quotes the request. Source: pydantic, and gateways."""
_NUMBER = re.compile(r"(?<![\w.-])\d[\d,_]{0,12}(?![\w-]|\.\d)")  # Not the numbers in the names of models
_BOUND = re.compile(
    r"at most|up to|maximum|too (?:large|high|big)|exceed|less than|smaller|lower|greater|between|range|[<>≤≥]",
    re.IGNORECASE,
)
"""Words by which an error says that a smaller number would be accepted."""


class Question(msgspec.Struct, frozen=True):
    """The model and the parameters with which a summary is requested."""

    model: str
    max_tokens: int
    temperature: float | None = None  # None if it is not sent
    is_reasoning: bool = False  # the model's reasoning counts against its completion limit
    refused: frozenset[str] = frozenset()  # the forms of parameters that the upstream refuses


class Questions:
    """The part of a codec that is about the parameters of a question; see codec.py.

    limits: the names of the limit, the usual one first; refusable_limits: those that may be left out.
    refusable: further members that an upstream may refuse.
    asks_for_usage: a stream has its usage only if it is asked for.
    """

    limits: tuple[str, ...]
    refusable_limits: tuple[str, ...]
    refusable: tuple[str, ...] = ()
    asks_for_usage = False

    def write_parameters(self, question: Question, thinking_tokens: int | None, sure_tokens: int = 0) -> dict[str, Any]:
        """The members that say how the model is to answer, without those that are refused.

        thinking_tokens: what the request allows for thinking, which the limit must include, and with which no
            temperature is accepted; None if it does not think.
        sure_tokens: a limit that the client has set itself, so the model accepts it; 0 if none is known.
        """
        most = question.max_tokens + (thinking_tokens or 0)
        # At most as many as the upstream has said that it accepts.
        most = min([most, *(int(form.removeprefix(_ABOVE)) for form in question.refused if form.startswith(_ABOVE))])
        is_sure = sure_tokens >= SURE_FACTOR * question.max_tokens
        required = min(most, sure_tokens) if is_sure else most
        members: dict[str, Any] = {name: required for name in self.limits if name not in self.refusable_limits}
        if question.temperature is not None and thinking_tokens is None and TEMPERATURE not in question.refused:
            members[TEMPERATURE] = question.temperature
        members |= dict.fromkeys(self._find_limit(question), most)
        if STREAM not in question.refused:
            members[STREAM] = False
        elif STREAMED not in question.refused:
            members[STREAM] = True
            if self.asks_for_usage and STREAM_OPTIONS not in question.refused:
                members[STREAM_OPTIONS] = {"include_usage": True}
        return members

    def list_parameters(self, question: Question) -> tuple[str, ...]:
        """The forms that an upstream may refuse in a question, in the order in which they are left out on suspicion."""
        stream = (STREAMED, STREAM_OPTIONS) if STREAM in question.refused else (STREAM,)
        temperature = () if question.temperature is None else (TEMPERATURE,)
        names = (*temperature, *self._find_limit(question), *stream, *self.refusable)
        return tuple(name for name in names if name not in question.refused)

    def find_refused(self, question: Question, answer: bytes) -> str | None:
        by_name = {form.partition("=")[0]: form for form in self.list_parameters(question)}
        names = _match(tuple({**by_name, **dict.fromkeys(self.limits)}))
        for found in chain.from_iterable(map(names.finditer, _find_texts(answer))):
            name = found.lastgroup or ""
            if name in self.limits and (most := _find_most(answer, question.max_tokens)):
                return f"{_ABOVE}{most}"
            if name in by_name:
                return by_name[name]
        return None

    def _find_limit(self, question: Question) -> list[str]:
        ordered = reversed(self.refusable_limits) if question.is_reasoning else self.refusable_limits
        return [name for name in ordered if name not in question.refused][:1]


@lru_cache(maxsize=64)
def _match(names: tuple[str, ...]) -> re.Pattern[str]:
    """Finds the names as snake_case, camelCase or words, not within other words; the longest at each place."""
    spelled = {name: name.replace("_", r"[_\s-]?") + ("(?:ing|ed)?" if name == STREAM else "") for name in names}
    words = "|".join(f"(?P<{name}>{spelled[name]})" for name in sorted(names, key=len, reverse=True))
    return re.compile(rf"(?<![A-Za-z0-9_])(?:{words})(?![A-Za-z0-9_])", re.IGNORECASE)


def _find_most(answer: bytes, tokens: int) -> int | None:
    """The limit that an error says would be accepted: the largest number in it, apart from the one that was sent."""
    for text in filter(_BOUND.search, _find_texts(answer)):
        numbers = {int(number.replace(",", "").replace("_", "")) for number in _NUMBER.findall(text)}
        largest = max(numbers, default=0)
        below = [number for number in numbers if LEAST_LIMIT <= number < max(largest, tokens)]
        if below:
            return max(below)
    return None


def _find_texts(answer: bytes) -> list[str]:
    """What an error says: first the members that name a field, then all others; not what it quotes of the request."""
    decoded = try_decode(answer[:MAX_BYTES])
    if not isinstance(decoded, dict | list):
        return [answer[:MAX_TEXT_CHARS].decode("utf-8", "replace")]
    walked = [*_walk(decoded)]
    fields = [text for key, text in walked if key in _FIELD_KEYS]
    return [text[:MAX_TEXT_CHARS] for text in (*fields, *(text for _, text in walked))]


def _walk(decoded: Any) -> Iterator[tuple[str, str]]:
    waiting: list[tuple[str, Any]] = [("", decoded)]
    for _ in range(MAX_TEXTS):
        if not waiting:
            return
        key, value = waiting.pop(0)
        if isinstance(value, str):
            yield key, value
        elif isinstance(value, list):
            waiting += [(key, item) for item in value[:MAX_TEXTS]]
        elif isinstance(value, dict):
            for name, item in list(value.items())[:MAX_TEXTS]:
                yield "", name
                if name not in _QUOTED_KEYS:
                    waiting.append((name, item))
