"""A tap on an answer: finds the usage, else collects what the model wrote.

Law: no I/O, and what is fed is a copy; whatever comes in, it neither raises nor keeps more than its bounds.
"""

from collections import defaultdict
from contextlib import suppress
from typing import Annotated

import msgspec

from rules.conversation import CountTokens

MAX_EVENT_BYTES = 4 * 1024 * 1024
"""A longer event, or a longer answer that is no stream, is not read."""
EXCEEDED = b"model_context_window_exceeded"
"""Zhipu's reason to end an answer before it has begun."""
MAX_FIRST_EVENT_BYTES = 64 * 1024
"""A longer first event is no error."""
MAX_TOKENS = 10**9
"""A larger figure is none."""
MAX_HELD_BYTES = 16 * 1024 * 1024
"""What is collected of an answer's text, roughly."""
PIECE_BYTES = 128
"""What a piece costs beside its characters."""

_Tokens = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Custom(msgspec.Struct):
    name: str | None = None
    input: str | None = None


class _Call(msgspec.Struct):
    function: _Function | None = None
    custom: _Custom | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _Delta | None = None
    message: _Delta | None = None


class Usage(msgspec.Struct):
    """Tokens as the upstream reports them; those that it read from its cache are prompt tokens, too.

    Those of the model's reasoning, which may not have been sent, are completion tokens.
    """

    prompt_tokens: _Tokens | None = None
    completion_tokens: _Tokens | None = None
    cached_tokens: int = 0
    reasoning_tokens: int = 0


class _Details(msgspec.Struct):
    cached_tokens: _Tokens | None = None
    reasoning_tokens: _Tokens | None = None


class _WireUsage(msgspec.Struct):
    """OpenAI's names, and Anthropic's, which leave out of the input what was cached."""

    prompt_tokens: _Tokens | None = None
    completion_tokens: _Tokens | None = None
    input_tokens: _Tokens | None = None
    output_tokens: _Tokens | None = None
    cache_read_input_tokens: _Tokens | None = None
    cache_creation_input_tokens: _Tokens | None = None
    prompt_tokens_details: msgspec.Raw = msgspec.Raw(b"null")
    completion_tokens_details: msgspec.Raw = msgspec.Raw(b"null")


class _Started(msgspec.Struct):
    """Anthropic's message_start."""

    usage: msgspec.Raw = msgspec.Raw(b"null")


class _Answer(msgspec.Struct):
    choices: msgspec.Raw = msgspec.Raw(b"null")
    usage: msgspec.Raw = msgspec.Raw(b"null")
    message: msgspec.Raw = msgspec.Raw(b"null")


_decode = msgspec.json.Decoder(_Answer).decode
_decode_started = msgspec.json.Decoder(_Started | None).decode
_decode_wire_usage = msgspec.json.Decoder(_WireUsage | None).decode
_decode_details = msgspec.json.Decoder(_Details | None).decode
_decode_choices = msgspec.json.Decoder(list[_Choice] | None).decode
UNKNOWN_FORM = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


def read_usage(raw: msgspec.Raw, before: Usage | None = None) -> Usage | None:
    """The usage in an answer, or in an event that goes on from the usage `before`; None where there is none.

    Raises one of UNKNOWN_FORM.
    """
    wire = _decode_wire_usage(raw)
    if wire is None:
        return before
    known = before or Usage()
    prompt, completion = wire.prompt_tokens, wire.completion_tokens
    if prompt is None and wire.input_tokens is not None:
        prompt = wire.input_tokens + (wire.cache_read_input_tokens or 0) + (wire.cache_creation_input_tokens or 0)
        prompt = max(prompt, known.prompt_tokens or 0)  # a later event may leave out what was cached
    completion = wire.output_tokens if completion is None else completion
    return Usage(
        known.prompt_tokens if prompt is None else prompt,
        known.completion_tokens if completion is None else completion,
        _read_details(wire.prompt_tokens_details).cached_tokens or wire.cache_read_input_tokens or known.cached_tokens,
        _read_details(wire.completion_tokens_details).reasoning_tokens or known.reasoning_tokens,
    )


def _read_details(raw: msgspec.Raw) -> _Details:
    """What some of the tokens are; of another form, nothing."""
    with suppress(*UNKNOWN_FORM):
        return _decode_details(raw) or _Details()
    return _Details()


class ResponseTap:
    """Reads one answer, an event stream or a JSON object, in chunks cut anywhere."""

    def __init__(self, *, is_stream: bool) -> None:
        self.usage: Usage | None = None
        self._is_stream = is_stream
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._texts: defaultdict[tuple[int, str], list[str]] = defaultdict(list)
        self._chars = 0
        self._reasoning_chars = 0
        self._held = 0

    def feed(self, chunk: bytes) -> None:
        """Take in the next bytes of the body."""
        if not self._is_stream:
            if self._size <= MAX_EVENT_BYTES:
                self._size += len(chunk)
                self._data.append(chunk)
            return
        if b"\n" not in chunk:
            self._keep(chunk)
            return
        head, _, chunk = chunk.partition(b"\n")
        self._keep(head)
        *lines, rest = chunk.split(b"\n")
        for line in (bytes(self._rest), *lines):
            self._read_line(line)
        self._rest = bytearray(rest)

    def _keep(self, piece: bytes) -> None:
        """Add to the line that has not ended; of a line that is too long only its beginning is kept."""
        if len(self._rest) <= MAX_EVENT_BYTES:
            self._rest += piece

    def finish(self) -> None:
        """The body has ended: read what stands in it without an end."""
        if self._is_stream:
            self._read_line(bytes(self._rest))
            self._read_line(b"")
        elif self._size <= MAX_EVENT_BYTES:
            self._read_answer(b"".join(self._data))
        self._rest.clear()
        self._data = []

    def count_completion(self, count: CountTokens) -> int:
        """Tokens of all that the model wrote: content, reasoning, refusal and tool calls."""
        return sum(count("".join(pieces)) for pieces in self._texts.values())

    @property
    def text_chars(self) -> int:
        """How much text count_completion would count."""
        return self._chars

    def find_sent_tokens(self, completion_tokens: int) -> int | None:
        """Of the completion's tokens those whose text was collected; None if that cannot be told.

        Upstreams keep reasoning to themselves, or send a summary of it, and report what the whole cost.
        """
        if self._held > MAX_HELD_BYTES:
            return None
        hidden = self.usage.reasoning_tokens if self.usage else 0
        if hidden <= self._reasoning_chars:  # a token has seldom less than a character
            return completion_tokens
        return None if self._reasoning_chars else completion_tokens - hidden

    def _read_line(self, line: bytes) -> None:
        line = line.rstrip(b"\r")
        if line.startswith(b"data:"):
            self._size += len(line)
            if self._size <= MAX_EVENT_BYTES:
                self._data.append(line[5:])
        elif not line:
            if self._data:
                self._read_answer(b"\n".join(self._data))
            self._data, self._size = [], 0

    def _read_answer(self, data: bytes) -> None:
        try:
            answer = _decode(data)
        except UNKNOWN_FORM:
            return  # `[DONE]`, an error, or garbage
        with suppress(*UNKNOWN_FORM):
            started = _decode_started(answer.message)
            if started is not None:
                self.usage = read_usage(started.usage, self.usage)
        with suppress(*UNKNOWN_FORM):
            self.usage = read_usage(answer.usage, self.usage)
        with suppress(*UNKNOWN_FORM):
            for choice in _decode_choices(answer.choices) or ():
                self._read_delta(choice)

    def _read_delta(self, choice: _Choice) -> None:
        delta = choice.delta or choice.message
        if delta is None or self._held > MAX_HELD_BYTES:
            return
        self._collect(choice.index, "content", delta.content)
        self._collect(choice.index, "reasoning", delta.reasoning_content or delta.reasoning)
        self._collect(choice.index, "refusal", delta.refusal)
        for call in delta.tool_calls or ():
            if call.function is not None:
                self._collect(choice.index, "name", call.function.name)
                self._collect(choice.index, "arguments", call.function.arguments)
            if call.custom is not None:
                self._collect(choice.index, "name", call.custom.name)
                self._collect(choice.index, "arguments", call.custom.input)

    def _collect(self, index: int, kind: str, text: str | None) -> None:
        if text:
            self._texts[index, kind].append(text)
            self._chars += len(text)
            self._reasoning_chars += len(text) if kind == "reasoning" else 0
            self._held += len(text) + PIECE_BYTES


class FirstEvent:
    """Holds a stream back until its first event with data is whole, in chunks cut anywhere; comments pass.

    `held` is what must not pass yet, with `keeps_all` comments, too; `data` is the event's data, None until `is_done`
    and where it is too long, or surely part of an answer.
    """

    def __init__(self, *, keeps_all: bool = False) -> None:
        self.held = bytearray()
        self._keeps_all = keeps_all
        self.data: bytes | None = None
        self.is_done = False
        self._read = 0
        self._lines: list[bytes] = []

    def finish(self) -> None:
        """The stream has ended: what stands in it without an end is an event, too."""
        last = bytes(self.held[self._read :]).rstrip(b"\r")
        if last.startswith(b"data:"):
            self._lines.append(last[5:])
        if self._lines and not self.is_done:
            self.data = b"\n".join(self._lines)
        self.is_done = True

    def feed(self, chunk: bytes) -> bytes:
        """Take in the next bytes; those that may pass."""
        self.held += chunk
        passed = 0
        while not self.is_done and (stop := self.held.find(b"\n", self._read)) >= 0:
            line = bytes(self.held[self._read : stop]).rstrip(b"\r")
            self._read = stop + 1
            if line.startswith(b"data:"):
                self._lines.append(line[5:])
                self.is_done = b'"choices"' in line and EXCEEDED not in line and b'"error"' not in line
            elif not line and self._lines:
                self.data = b"\n".join(self._lines)
                self.is_done = True
            elif not self._lines and (not line or line.startswith(b":")):
                passed = self._read
        if self._keeps_all:
            passed = 0
        if not self.is_done and len(self.held) - passed > MAX_FIRST_EVENT_BYTES:
            self.is_done = True
        free = bytes(self.held[:passed])
        del self.held[:passed]
        self._read -= passed
        return free
