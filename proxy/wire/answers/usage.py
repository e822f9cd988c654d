"""Reads the token usage that an upstream reports, under OpenAI's names or Anthropic's."""

from contextlib import suppress
from typing import Annotated

import msgspec

from proxy.wire.json.repair import DECODE_ERRORS

MAX_TOKENS = 10**9
"""A larger number is not a count of tokens. Chosen: above every context window."""

_Tokens = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]


class Usage(msgspec.Struct):
    """Tokens as the upstream reports them.

    cached_tokens: part of the prompt tokens that was read from the prompt cache.
    written_tokens: part of the prompt tokens that was written into it.
    reasoning_tokens: part of the completion tokens that the model spent on reasoning, sent as text or not.
    """

    prompt_tokens: _Tokens | None = None
    completion_tokens: _Tokens | None = None
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    written_tokens: int = 0


class _Details(msgspec.Struct):
    """`thinking_tokens` is Anthropic's name for reasoning tokens."""

    cached_tokens: _Tokens | None = None
    reasoning_tokens: _Tokens | None = None
    thinking_tokens: _Tokens | None = None


class _WireUsage(msgspec.Struct):
    """OpenAI's and Anthropic's names. Anthropic's `input_tokens` does not include cached tokens; OpenAI's does."""

    prompt_tokens: _Tokens | None = None
    completion_tokens: _Tokens | None = None
    input_tokens: _Tokens | None = None
    output_tokens: _Tokens | None = None
    cache_read_input_tokens: _Tokens | None = None
    cache_creation_input_tokens: _Tokens | None = None
    prompt_tokens_details: msgspec.Raw = msgspec.Raw(b"null")
    completion_tokens_details: msgspec.Raw = msgspec.Raw(b"null")
    input_tokens_details: msgspec.Raw = msgspec.Raw(b"null")
    output_tokens_details: msgspec.Raw = msgspec.Raw(b"null")


_decode_wire_usage = msgspec.json.Decoder(_WireUsage | None).decode
_decode_details = msgspec.json.Decoder(_Details | None).decode


def read_usage(raw: msgspec.Raw, before: Usage | None = None) -> Usage | None:
    """Read the usage of a response or an event. Fields that it lacks keep their values from `before`.

    Returns `before` if `raw` is null. Raises one of DECODE_ERRORS.
    """
    wire = _decode_wire_usage(raw)
    if wire is None:
        return before
    known = before or Usage()
    prompt, completion = wire.prompt_tokens, wire.completion_tokens
    if prompt is None and wire.input_tokens is not None:
        prompt = wire.input_tokens + (wire.cache_read_input_tokens or 0) + (wire.cache_creation_input_tokens or 0)
        prompt = max(prompt, known.prompt_tokens or 0)  # a later event may leave out the cached tokens
    completion = wire.output_tokens if completion is None else completion
    read = [_read_details(raw).cached_tokens for raw in (wire.prompt_tokens_details, wire.input_tokens_details)]
    details = [_read_details(raw) for raw in (wire.completion_tokens_details, wire.output_tokens_details)]
    thought = [each.reasoning_tokens or each.thinking_tokens for each in details]
    return Usage(
        known.prompt_tokens if prompt is None else prompt,
        known.completion_tokens if completion is None else completion,
        next(filter(None, (*read, wire.cache_read_input_tokens)), known.cached_tokens),
        next(filter(None, thought), known.reasoning_tokens),
        wire.cache_creation_input_tokens or known.written_tokens,
    )


def _read_details(raw: msgspec.Raw) -> _Details:
    """Details that have another form count as absent."""
    with suppress(*DECODE_ERRORS):
        return _decode_details(raw) or _Details()
    return _Details()
