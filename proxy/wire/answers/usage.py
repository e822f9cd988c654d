"""Reads the token usage that an upstream reports, in every spelling that is known, and finds it in a long answer.

Law: a number may be written as a string; a value of another form counts as absent. The tokens that were read from the
cache, those that were written into it and the others add up to the prompt's. In an answer that is not decoded as a
whole, the usage is the answer's own, or that of the `response` that an event carries; never one that it quotes. The
time is linear in the length, whatever it contains, in steps that C takes; what is held does not depend on the length.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import accumulate, islice
from typing import Annotated, Any

import msgspec

from trimtab.proxy.wire.json import DECODE_ERRORS, end_value

MAX_TOKENS = 10**9  # A larger number is not a count of tokens. Chosen: above every context window.
MOST_WINDOWS = 16
"""A prompt that is as many times as long as the window is not believed. Chosen: an answer for which the upstream has
asked the model several times reports the sum of its prompts."""
MOST_HIDDEN_TOKENS = 8 * 1024
"""A completion of more tokens than the answer has bytes is believed up to this. Chosen: some servers do not send the
reasoning and report its tokens only within those of the completion."""

NULL = msgspec.Raw(b"null")
_Tokens = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]


class Usage(msgspec.Struct):
    """Tokens as the upstream reports them; None for what it does not report."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None  # part of the prompt tokens that was read from the prompt cache
    reasoning_tokens: int = 0  # part of the completion tokens that the model spent on reasoning, sent as text or not
    written_tokens: int | None = None  # part of the prompt tokens that was written into it
    has_timings: bool = False  # llama.cpp's own figures were beside it, which no other server writes


class _Created(msgspec.Struct):
    """Written tokens by how long they live. Source: Anthropic's API."""

    ephemeral_5m_input_tokens: _Tokens | None = None
    ephemeral_1h_input_tokens: _Tokens | None = None


class _PromptDetails(msgspec.Struct):
    """The prompt's details.

    cached_tokens: OpenAI, Gemini's shim, xAI, OpenRouter, vLLM, SGLang, llama.cpp and most others.
    cache_read_input_tokens: Perplexity. Source of both: the extractors of genai-prices 0.2.
    cache_write_tokens: OpenAI since GPT-5.6, and OpenRouter. Source: openrouter.ai/docs, Usage Accounting.
    cache_creation_tokens: LiteLLM's proxy (PromptTokensDetailsWrapper).
    cache_creation_input_tokens, cache_creation: Qwen. Source: Alibaba Cloud Model Studio, Context cache.
    """

    cached_tokens: _Tokens | None = None
    cache_read_input_tokens: _Tokens | None = None
    cache_write_tokens: _Tokens | None = None
    cache_creation_tokens: _Tokens | None = None
    cache_creation_input_tokens: _Tokens | None = None
    cache_creation: _Created | None = None


class _CompletionDetails(msgspec.Struct):
    """`thinking_tokens` is Anthropic's name for reasoning tokens."""

    reasoning_tokens: _Tokens | None = None
    thinking_tokens: _Tokens | None = None


class _WireUsage(msgspec.Struct):
    """The members of `usage`.

    input_tokens: Anthropic's does not include the tokens that were read from the cache or written into it. That of
        the Responses API, which comes with details, includes them.
    cache_read_input_tokens, cache_creation_input_tokens, cache_creation: Anthropic, LiteLLM, Databricks, MiniMax.
    prompt_cache_hit_tokens, prompt_cache_miss_tokens: DeepSeek, which together are its prompt tokens.
    cached_tokens: Moonshot and Cohere. cached_prompt_text_tokens: xAI. Source: the extractors of genai-prices 0.2, and
        for Moonshot AstrBotDevs/AstrBot#6614.
    """

    prompt_tokens: _Tokens | None = None
    completion_tokens: _Tokens | None = None
    input_tokens: _Tokens | None = None
    output_tokens: _Tokens | None = None
    cache_read_input_tokens: _Tokens | None = None
    cache_creation_input_tokens: _Tokens | None = None
    cache_creation: _Created | None = None
    prompt_cache_hit_tokens: _Tokens | None = None
    prompt_cache_miss_tokens: _Tokens | None = None
    cached_tokens: _Tokens | None = None
    cached_prompt_text_tokens: _Tokens | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None
    input_tokens_details: _PromptDetails | None = None
    output_tokens_details: _CompletionDetails | None = None


class _Timings(msgspec.Struct):
    """llama.cpp's figures beside `usage`, or instead of it: the prompt's tokens from the cache, and its others."""

    cache_n: _Tokens | None = None
    prompt_n: _Tokens | None = None
    predicted_n: _Tokens | None = None


_COUNTS = frozenset({"prompt_tokens", "completion_tokens", "input_tokens", "output_tokens"})
_FIELDS = msgspec.structs.fields(_WireUsage)
_APART = frozenset({"cache_read_input_tokens", "cache_creation_input_tokens"})
_NOTHING = Usage()
_decode_wire_usage = msgspec.json.Decoder(_WireUsage | None, strict=False).decode
_decode_timings = msgspec.json.Decoder(_Timings | None, strict=False).decode


def read_usage(raw: msgspec.Raw, before: Usage | None = None) -> Usage | None:
    """The usage of a response or event, with the values of `before` for what it lacks; `before` itself for null.

    Raises one of DECODE_ERRORS if `raw` is no object, or if one of the main counts is malformed.
    """
    try:
        wire = _decode_wire_usage(raw)
    except msgspec.ValidationError:
        wire = _read_valid(raw)
    if wire is None:
        return before
    known = before or _NOTHING
    created = _most(wire.cache_creation_input_tokens, _add_up(wire.cache_creation))
    prompt = _find_prompt(wire, (wire.cache_read_input_tokens or 0) + (created or 0), known.prompt_tokens)
    completion = wire.completion_tokens if wire.completion_tokens is not None else wire.output_tokens
    thought = wire.completion_tokens_details or wire.output_tokens_details
    reasoning = None if thought is None else thought.reasoning_tokens or thought.thinking_tokens
    cached, written = _fit(prompt, *_find_parts(wire, _most(known.written_tokens, created), known.cached_tokens))
    return Usage(
        prompt,
        known.completion_tokens if completion is None else completion,
        cached,
        reasoning or known.reasoning_tokens,
        written,
        known.has_timings,
    )


def believe(usage: Usage, *, answer_bytes: int, window_tokens: int) -> Usage:
    """The usage without the figures that cannot be true of an answer of this length."""
    most_tokens = MOST_WINDOWS * window_tokens
    if usage.prompt_tokens is not None and usage.prompt_tokens > most_tokens:
        usage = msgspec.structs.replace(usage, prompt_tokens=None, cached_tokens=None, written_tokens=None)
    completion_tokens = usage.completion_tokens or 0
    sent_tokens = completion_tokens - usage.reasoning_tokens
    if completion_tokens > most_tokens or sent_tokens > max(answer_bytes, MOST_HIDDEN_TOKENS):
        usage = msgspec.structs.replace(usage, completion_tokens=None, reasoning_tokens=0)
    return usage


def read_timings(raw: msgspec.Raw, usage: Usage | None) -> Usage | None:
    """Add llama.cpp's `timings` to a usage, or make one of them: a stream may have no other. Raises DECODE_ERRORS."""
    timings, known = _decode_timings(raw), usage or _NOTHING
    if timings is None or timings.cache_n is None:
        return usage
    prompt = known.prompt_tokens
    if prompt is None and timings.prompt_n is not None:
        prompt = timings.cache_n + timings.prompt_n
    if prompt is None:
        return usage
    completion = _most(known.completion_tokens, timings.predicted_n)
    told = timings.cache_n if known.cached_tokens is None else known.cached_tokens
    cached, written = _fit(prompt, told, known.written_tokens)
    return Usage(prompt, completion, cached, known.reasoning_tokens, written, has_timings=True)


def _find_prompt(wire: _WireUsage, apart: int, known: int | None) -> int | None:
    """The whole prompt. `apart`: the tokens that Anthropic counts apart from `input_tokens`.

    LiteLLM passes these on beside `prompt_tokens`, which includes them or not. It surely does not if it is smaller.
    Source: BerriAI/litellm#15056.
    """
    if wire.prompt_tokens is not None:
        return wire.prompt_tokens if wire.prompt_tokens >= apart else wire.prompt_tokens + apart
    if wire.input_tokens is not None:
        if wire.input_tokens_details is not None and wire.input_tokens >= apart:
            return wire.input_tokens
        return max(wire.input_tokens + apart, known or 0)  # a later event may leave out the cached tokens
    if wire.prompt_cache_hit_tokens is not None and wire.prompt_cache_miss_tokens is not None:
        return wire.prompt_cache_hit_tokens + wire.prompt_cache_miss_tokens
    return known


def _find_parts(wire: _WireUsage, written: int | None, cached: int | None) -> tuple[int | None, int | None]:
    """The prompt tokens that were read from the cache, and those written into it, at least as many as were known."""
    cached = _most(
        cached,
        wire.cache_read_input_tokens,
        wire.prompt_cache_hit_tokens,
        wire.cached_tokens,
        wire.cached_prompt_text_tokens,
    )
    for details in (wire.prompt_tokens_details, wire.input_tokens_details):
        if details is None:
            continue
        cached = _most(cached, details.cached_tokens, details.cache_read_input_tokens)
        written = _most(
            written,
            details.cache_write_tokens,
            details.cache_creation_tokens,
            details.cache_creation_input_tokens,
            _add_up(details.cache_creation),
        )
    return cached, written


def _most(*values: int | None) -> int | None:
    """The largest value: a spelling that an upstream does not use may be 0 beside the one that it does use."""
    most: int | None = None
    for value in values:
        if value is not None and (most is None or value > most):
            most = value
    return most


def _add_up(created: _Created | None) -> int | None:
    if created is None:
        return None
    short, long = created.ephemeral_5m_input_tokens, created.ephemeral_1h_input_tokens
    return None if short is None and long is None else (short or 0) + (long or 0)


def _fit(prompt: int | None, cached: int | None, written: int | None) -> tuple[int | None, int | None]:
    """Both parts, made smaller if they are more than the prompt."""
    if prompt is not None:
        cached = cached if cached is None else min(cached, prompt)
        written = written if written is None else min(written, prompt - (cached or 0))
    return cached, written


def _read_valid(raw: msgspec.Raw) -> _WireUsage:
    """The usage without its malformed values. Raises ValidationError if a main count is malformed."""
    members = msgspec.json.decode(raw, type=dict[str, Any])
    valid = dict(_list_valid(members))
    if any(members.get(name) is not None and name not in valid for name in _APART):
        valid.pop("input_tokens", None)  # without them it is not the prompt
    return msgspec.convert(valid, _WireUsage, strict=False)


def _list_valid(members: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for field in _FIELDS:
        value = members.get(field.encode_name)
        if value is None:
            continue
        if field.name in _COUNTS:
            yield field.name, value
            continue
        with suppress(*DECODE_ERRORS):
            msgspec.convert(value, field.type, strict=False)
            yield field.name, value


STRIDE_BYTES = 64 * 1024  # Bytes that are searched at once. Chosen: at most 5 ms for the worst of them.
MAX_USAGE_BYTES = 4 * 1024  # Longest usage that is read. Chosen: real ones are below 1 KiB.
MAX_DEPTH = 100_000  # A deeper answer is not searched any further. Chosen: no decoder reads one.
MAX_KEY_BYTES = 64  # The end of a stride that is searched again with the next. Chosen: above what `_KEY` matches.

_KEY = re.compile(rb'"(?<!\\")(?:usage|response)"[ \t\n\r]{0,16}:[ \t\n\r]{0,16}(?=\{)')
"""The key of an object. It matches no part of a text, because each quotation mark of a text is escaped."""
_USAGE_KEY = re.compile(_KEY.pattern.replace(b"usage|response", b"usage"))
_HINTS = (b'"usage"', b'"response"')
_STRING = re.compile(rb'"(?:[^"\\]++|\\.|)*+"', re.DOTALL)
_OPENS, _CLOSES, _USAGE, _OWNER = b"\x01", b"\xff", b"\x02", b"\x03"
_SYMBOLS = bytes.maketrans(b"{[}]", 2 * _OPENS + 2 * _CLOSES)
_OTHERS = bytes(set(range(256)) - set(b"{[}]" + _USAGE + _OWNER))
_STEPS = bytes.maketrans(_USAGE + _OWNER, b"\0\0")
_MARKS = re.compile(b"[" + _USAGE + _OWNER + b"]")


class UsageScan:
    """Reads an answer, or an event, in pieces. is_event: the usage is that of its `response`. is_whole: it ended."""

    def __init__(self, *, is_event: bool = False) -> None:
        self.is_whole = False
        self._is_event = is_event
        self._rest = b""
        self._depth = 0
        self._in_string = False
        self._is_owned = False  # in the object of the event's `response`
        self._value: bytearray | None = None

    @property
    def value(self) -> bytes | None:
        """The last usage so far, an object in JSON; None if there is none, or if it is too long or has not ended."""
        found = bytes(self._value or b"")
        stop = end_value(found, 0) if found else 0
        return found[:stop] if found[stop - 1 : stop] == b"}" else None

    def feed(self, piece: bytes) -> None:
        if self._value is not None:
            self._value += piece[: max(MAX_USAGE_BYTES - len(self._value), 0)]
        text = self._rest + piece
        at, stop = -1, 0
        while at < stop < len(text) - MAX_KEY_BYTES and not self.is_whole and self._depth <= MAX_DEPTH:
            at, stop = stop, _find_stop(text, stop, min(len(text), stop + STRIDE_BYTES) - MAX_KEY_BYTES)
            self._scan(text, at, stop)
        self._rest = text[max(stop, len(text) - 2 * MAX_KEY_BYTES) :]

    def finish(self) -> None:
        if self._rest and not self.is_whole:
            self._scan(self._rest, 0, len(self._rest))
        self._rest = b""

    def _scan(self, text: bytes, start: int, stop: int) -> None:
        # Strategy: let C do the work. Strings are deleted, so that only brackets and the sought keys are left, one byte
        # each; these bytes are read as +1, -1 and 0, and their running sum is the depth at each of them. A usage is the
        # answer's own only at depth 1 (or 2, in the event's `response`); deeper ones are quoted by somebody.
        part = text[start:stop]
        symbols = self._read_symbols(part)
        depths = list(accumulate(memoryview(symbols.translate(_STEPS)).cast("b"), initial=self._depth))
        if symbols.count(_CLOSES) >= self._depth and 0 in depths[1:]:
            last = depths.index(0, 1)
            symbols, depths, self.is_whole = symbols[:last], depths[: last + 1], True
        found, since = -1, 0
        for number, mark in enumerate(_MARKS.finditer(symbols)):
            at = mark.start()
            if depths[at] == 1 and mark[0] == _OWNER:
                self._is_owned, since = self._is_event, at + 2
            elif depths[at] == 2 and self._is_owned and mark[0] == _USAGE:
                self._is_owned, since = min(depths[since : at + 1]) == 2, at
                found = number if self._is_owned else found
            elif depths[at] == 1 and mark[0] == _USAGE and not self._is_event:
                found = number
        self._is_owned = self._is_owned and min(depths[since:]) >= 2
        self._depth = depths[-1]
        if found >= 0:
            for key in islice(_KEY.finditer(part), found, found + 1):
                self._value = bytearray(text[start + key.end() : start + key.end() + MAX_USAGE_BYTES])

    def _read_symbols(self, part: bytes) -> bytes:
        """The brackets of a part of the text, and the keys that are sought; nothing from within its strings."""
        if any(hint in part for hint in _HINTS):
            part = _KEY.sub(_OWNER, _USAGE_KEY.sub(_USAGE, part))
        # The mark at the end closes a string that goes on; if there is none, it stays.
        bare = _STRING.sub(b"", b'%b%b"' % (b'"' if self._in_string else b"", part))
        self._in_string = not bare.endswith(b'"')
        return bare.translate(_SYMBOLS, _OTHERS)


def _find_stop(text: bytes, start: int, stop: int) -> int:
    """Where to end a part of the text, at `stop` at the latest: not within a key that is sought, nor in an escape."""
    for key in _KEY.finditer(text, max(stop - MAX_KEY_BYTES, start), stop + MAX_KEY_BYTES):
        if key.start() < stop <= key.end():
            stop = key.start()
    part = text[start:stop]
    return stop - (len(part) - len(part.rstrip(b"\\"))) % 2


def try_usage(raw: msgspec.Raw, before: Usage | None = None) -> Usage | None:
    try:
        return read_usage(raw, before)
    except DECODE_ERRORS:
        return before


class _Counted(msgspec.Struct):
    usage: msgspec.Raw = NULL


_decode_counted = msgspec.json.Decoder(_Counted | None).decode


def try_inner_usage(raw: msgspec.Raw, before: Usage | None) -> Usage | None:
    """As `try_usage`, of an object that has the usage."""
    with suppress(*DECODE_ERRORS):
        counted = _decode_counted(raw)
        return before if counted is None else read_usage(counted.usage, before)
    return before
