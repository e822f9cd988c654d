"""The body of a chat request: split into its messages, decoded and counted, and put together again.

Law: what no rule touched goes out as the bytes it came in: messages, white space between them, and all other members.
"""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from proxy.wire.chat.cost import read_surroundings
from proxy.wire.chat.message import decode_message, encode_message
from proxy.wire.codec import Codec, Counting, Request, UndecodableError
from proxy.wire.elements import Placed, write_elements
from proxy.wire.json.repair import DECODE_ERRORS, mend
from proxy.wire.json.spans import Array, find_array, has_more_parts
from proxy.wire.known import FixedTokens
from rules.conversation import Conversation, Message, whole_elements
from rules.results.work import Allowance
from rules.tokens.messages import count_format, count_shared_frame, count_tools

MAX_PARTS = 600_000
"""Strings of a request, and commas between its values. 15 million held the loop for 24 seconds, and 2 gigabytes."""
TOOLS_FACTOR = 16
"""Rendering hostile tools takes as long as counting so many times their length."""
_MODEL = re.compile(rb'"model"\s*+:\s*+"([^"\\]{0,256})"')


_COUNTED = frozenset({"messages", "tools", "functions", "tool_choice", "function_call", "response_format"})
_WITHOUT_TOKENS = frozenset(
    {
        "model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k",
        "min_p", "typical_p", "n", "stop", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty",
        "repeat_penalty", "logit_bias", "logprobs", "top_logprobs", "user", "metadata", "store", "service_tier",
        "parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "ignore_eos",
        "cache_prompt", "id_slot", "timings_per_token", "reasoning_effort", "verbosity",
    }
)  # fmt: skip
"""Members that no server puts into the prompt. Source: the API references of OpenAI, vLLM and llama.cpp; what is not
here (`documents`, `chat_template`, `chat_template_kwargs`, and whatever comes) may be."""


class _Body(msgspec.Struct):
    messages: list[msgspec.Raw]
    model: Any = None
    stream: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    tools: msgspec.Raw = msgspec.Raw()
    functions: msgspec.Raw = msgspec.Raw()
    tool_choice: msgspec.Raw = msgspec.Raw()
    function_call: msgspec.Raw = msgspec.Raw()
    response_format: msgspec.Raw = msgspec.Raw()


_decode_body = msgspec.json.Decoder(_Body).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def peek_model(beginning: bytes) -> str:
    """The model that a body names which is not decoded; the empty string if its beginning names none."""
    found = _MODEL.search(beginning)
    return found[1].decode("utf-8", "replace") if found else ""


def read_request(codec: Codec, body: bytes, *, max_chars: int | None = None) -> Request:
    """Split a body into its messages without decoding them. Raises UndecodableError.

    Lone surrogates, NaN and Infinity, and a byte order mark are mended, as most upstreams' decoders read them. That
    takes up to 0.3 s a megabyte: LargeWorkError if the body has more than `max_chars`. Messages keep their bytes.
    """
    try:
        decoded = _split(body)
    except UndecodableError:
        Allowance(max_chars).spend(len(body))
        clean = mend(body)
        decoded = _split(clean)
        spans = _find_messages(clean, tuple(map(bytes, decoded.messages))).elements
        return _make_request(codec, body, decoded, tuple(body[span.start : span.stop] for span in spans))
    return _make_request(codec, body, decoded, tuple(map(bytes, decoded.messages)))


def _make_request(codec: Codec, body: bytes, decoded: _Body, raws: tuple[bytes, ...]) -> Request:
    is_reasoning = decoded.max_completion_tokens is not None
    wanted = decoded.max_completion_tokens if is_reasoning else decoded.max_tokens
    fixed = (
        decoded.tools,
        decoded.functions,
        decoded.tool_choice,
        decoded.function_call,
        decoded.response_format,
    )
    return Request(
        codec=codec,
        body=body,
        raws=raws,
        model=decoded.model if isinstance(decoded.model, str) else "",
        stream=decoded.stream is True,
        max_tokens=wanted if type(wanted) is int else None,
        fixed=tuple(b"" if raw == b"null" else raw for raw in map(bytes, fixed)),
        is_reasoning=is_reasoning,
    )


def _split(body: bytes) -> _Body:
    """The body's members, its messages undecoded. Raises UndecodableError."""
    if len(body) > MAX_PARTS and has_more_parts(body, MAX_PARTS):
        message = "more parts than a chat has"
        raise UndecodableError(message)
    try:
        return _decode_body(body)
    except DECODE_ERRORS as error:
        raise UndecodableError(type(error).__name__) from error


def _find_messages(body: bytes, raws: Sequence[bytes]) -> Array:
    """Where the messages stand in a body. Raises UndecodableError if their key is written with escapes."""
    array = find_array(body, b'"messages"', raws)
    if array is None:
        problem = "the key 'messages' is not written plainly"
        raise UndecodableError(problem)
    return array


def uncounted_bytes(request: Request, counting: Counting) -> int:
    """Bytes of JSON that are to be decoded and counted; tools count for more, as they take longer."""
    known = counting.known.view(request.codec.name, counting.number)
    return known.count_unknown_bytes(request.raws, request.fixed, TOOLS_FACTOR)


def decode_request(request: Request, counting: Counting) -> Conversation:
    """The request's transcript, counted. Raises UndecodableError if a message is no object with a role."""
    known = counting.known.view(request.codec.name, counting.number)
    try:
        decoded = known.decode(request.raws, partial(_decode_element, counting))
        messages = tuple([message for (message,) in decoded])
        fixed = known.count_fixed(request.fixed, partial(_count_fixed, counting))
        tokens = fixed.format_tokens + fixed.tools_tokens
        if fixed.has_functions and messages:
            tokens += count_shared_frame(messages[0], counting.count, counting.costs)
    except DECODE_ERRORS as error:
        raise UndecodableError(type(error).__name__) from error
    return Conversation(messages, max(tokens, 0), whole_elements(len(messages)))


def _decode_element(counting: Counting, raw: bytes) -> tuple[Message]:
    return (decode_message(raw, counting.count, counting.costs),)


def count_format_tokens(request: Request, counting: Counting) -> int:
    """Tokens of the frame and of the response format: of what stands outside the messages, all but the tools."""
    known = counting.known.view(request.codec.name, counting.number)
    return known.count_fixed(request.fixed, partial(_count_fixed, counting)).format_tokens


def _count_fixed(counting: Counting, raws: tuple[bytes, ...]) -> FixedTokens:
    around, count, costs = read_surroundings(raws), counting.count, counting.costs
    return FixedTokens(
        count_format(around, count, costs), count_tools(around, count, costs), has_functions=bool(around.functions)
    )


def counts_all(request: Request) -> bool:
    """Whether all that a server may read of a body, but for its messages, is counted or costs no tokens."""
    try:
        members = _decode_members(request.body)
    except DECODE_ERRORS:
        return False
    return members.keys() <= _COUNTED | _WITHOUT_TOKENS


def encode_request(request: Request, before: Conversation, after: Conversation) -> bytes:
    """The body with the compacted transcript; the body itself if that is the original one.

    Raises UndecodableError if the messages stand under an escaped key.
    """
    if after is before:
        return request.body
    array = _find_messages(request.body, request.raws)
    return write_elements(request.body, array, before, after, _write_element)


def _write_element(placed: Sequence[Placed]) -> bytes:
    ((message, _),) = placed
    return encode_message(message)
