"""Splits the body of a chat request into its messages, decodes and counts them, and writes the body again.

Law: everything that no rule touched keeps its bytes: messages, the white space between them, and all other members.
"""

import re
import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from proxy.wire.beginnings import MIN_BYTES, Beginning, Begun
from proxy.wire.chat.cost import read_surroundings
from proxy.wire.chat.message import decode_message, encode_message
from proxy.wire.codec import Codec, Counting, Request, UndecodableError
from proxy.wire.elements import Placed, Source, write_elements
from proxy.wire.json.repair import DECODE_ERRORS, mend
from proxy.wire.json.spans import Array, Span, count_parts, find_array, has_more_parts, match_array
from proxy.wire.known import FixedTokens, KnownView
from rules.conversation import Conversation, Message, whole_elements
from rules.results.work import Allowance
from rules.tokens.messages import count_format, count_shared_frame, count_tools

MESSAGES_KEY = b'"messages"'
MAX_PARTS = 600_000
"""Maximum number of strings and commas between values in a request that is decoded. Chosen: far above real requests.
Measured: 15 million held the event loop for 24 seconds and took 2 GB."""
TOOLS_FACTOR = 16
"""Tools count this many times their bytes as work. Fitted on hostile tools: rendering them takes as long as counting a
text of this many times their length."""
_STAND_IN = b'"%s"' % secrets.token_hex(16).encode()
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
"""Members that no server puts into the prompt. Source: the API references of OpenAI, vLLM and llama.cpp. Any other
member may be part of the prompt: `documents`, `chat_template`, `chat_template_kwargs`, and future ones."""


class _Body(msgspec.Struct):
    messages: list[msgspec.Raw]
    model: Any = None
    stream: Any = None
    stream_options: Any = None
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
    """The model that the beginning of an undecoded body names; the empty string if it names none."""
    found = _MODEL.search(beginning)
    return found[1].decode("utf-8", "replace") if found else ""


def read_request(codec: Codec, body: bytes, begun: Begun | None = None, *, max_chars: int | None = None) -> Request:
    """Split a body into its messages without decoding them. Raises UndecodableError.

    Lone surrogates, NaN, Infinity and a byte order mark are repaired for decoding, because most upstreams accept them;
    the messages keep their bytes. A repair takes up to 0.3 s per megabyte: raises LargeWorkError if the body needs one
    and is longer than `max_chars`.
    """
    request = None if begun is None else _read_on(codec, body, begun)
    if request is not None:
        return request
    try:
        decoded = _split(body)
    except UndecodableError:
        Allowance(max_chars).spend(len(body))
        clean = mend(body)
        decoded = _split(clean)
        spans = _find_messages(clean, tuple(map(bytes, decoded.messages))).elements
        return _make_request(codec, body, decoded, tuple(body[span.start : span.stop] for span in spans))
    raws = tuple(map(bytes, decoded.messages))
    return _make_request(codec, body, decoded, raws, _begin(body, decoded, raws))


def _begin(body: bytes, decoded: _Body, raws: tuple[bytes, ...]) -> Beginning | None:
    """The beginning that a later body may continue; None if the body is short or its messages cannot be found."""
    if len(body) < MIN_BYTES:
        return None
    skipped = [bytes(raw) for raw in (decoded.tools, decoded.functions, decoded.response_format)]
    array = find_array(body, MESSAGES_KEY, raws, skipped)
    if array is None:
        return None
    behind = array.elements[-1].stop if raws else array.start
    return Beginning(body, array, raws, count_parts(body) - count_parts(body[behind:]))


def _read_on(codec: Codec, body: bytes, begun: Begun) -> Request | None:
    """Read a request that continues an earlier one; None if it must be read whole.

    One random string replaces the messages that both have in common, and the rest of the body is decoded unchanged.
    So the decoder judges the bytes before and after them as in the whole body. No client can guess that string.
    """
    earlier, start, stop = begun.beginning, begun.beginning.array.start, begun.stop
    rest = body[stop:]
    parts = earlier.parts + count_parts(rest)
    if parts > MAX_PARTS:
        return None
    text = b"".join((body[:start], b"[", _STAND_IN, rest))
    try:
        decoded = _decode_body(text)
    except DECODE_ERRORS:
        return None
    new = tuple(map(bytes, decoded.messages))
    array = match_array(text, start, new) if new[:1] == (_STAND_IN,) else None
    if array is None:
        return None
    shift = stop - array.elements[0].stop
    spans = [Span(span.start + shift, span.stop + shift) for span in array.elements[1:]]
    parts -= count_parts(text[array.elements[-1].stop :])
    beginning = Beginning(
        body,
        Array(start, array.stop + shift, [*earlier.array.elements[: begun.number], *spans]),
        earlier.raws[: begun.number] + new[1:],
        parts,
        {number: messages[: begun.number] for number, messages in earlier.decoded.items()},
        earlier.written if begun.is_whole else None,
        is_grown=True,
    )
    return _make_request(codec, body, decoded, beginning.raws, beginning)


def _make_request(
    codec: Codec, body: bytes, decoded: _Body, raws: tuple[bytes, ...], beginning: Beginning | None = None
) -> Request:
    # Reasoning models want `max_completion_tokens`, and their reasoning counts against it.
    is_reasoning = decoded.max_completion_tokens is not None
    wanted = decoded.max_completion_tokens if is_reasoning else decoded.max_tokens
    options = decoded.stream_options
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
        asks_usage=isinstance(options, dict) and options.get("include_usage") is True,
        beginning=beginning,
    )


def _split(body: bytes) -> _Body:
    """The body's members; its messages are not decoded. Raises UndecodableError."""
    if len(body) > MAX_PARTS and has_more_parts(body, MAX_PARTS):
        message = "more JSON values than a chat has"
        raise UndecodableError(message)
    try:
        return _decode_body(body)
    except DECODE_ERRORS as error:
        raise UndecodableError(type(error).__name__) from error


def _find_messages(body: bytes, raws: Sequence[bytes]) -> Array:
    """The positions of the messages in a body. Raises UndecodableError if their key is written with escapes."""
    array = find_array(body, MESSAGES_KEY, raws)
    if array is None:
        problem = "the key 'messages' is written with escapes"
        raise UndecodableError(problem)
    return array


def uncounted_bytes(request: Request, counting: Counting) -> int:
    """Bytes of JSON that are not decoded and counted yet. Tools count TOOLS_FACTOR times, because they take longer."""
    known = counting.known.view(request.codec.name, counting.number)
    new = request.raws[len(_recall(request, known)) :]
    return known.count_unknown_bytes(new, request.fixed, TOOLS_FACTOR)


def decode_request(request: Request, counting: Counting) -> Conversation:
    """The request's transcript with its token counts. Raises UndecodableError if a message has no role.

    Also notes in the request's beginning what was decoded, for the request that continues it.
    """
    known = counting.known.view(request.codec.name, counting.number)
    try:
        messages = _recall(request, known)
        if len(messages) < len(request.raws):
            new, beginning = request.raws[len(messages) :], request.beginning
            if beginning is not None and not beginning.is_grown:
                beginning.is_grown = 2 * known.count_unknown_bytes(new) < len(request.body)
            messages += tuple([message for (message,) in known.decode(new, partial(_decode_element, counting))])
            if beginning is not None:
                beginning.decoded[known.number] = messages
        fixed = known.count_fixed(request.fixed, partial(_count_fixed, counting))
        tokens = fixed.format_tokens + fixed.tools_tokens
        if fixed.has_functions and messages:
            tokens += count_shared_frame(messages[0], counting.count, counting.costs)
    except DECODE_ERRORS as error:
        raise UndecodableError(type(error).__name__) from error
    return Conversation(messages, max(tokens, 0), whole_elements(len(messages)))


def _recall(request: Request, known: KnownView) -> tuple[Message, ...]:
    """The messages of the request's first elements, if they were decoded for an earlier request."""
    return () if request.beginning is None else request.beginning.decoded.get(known.number, ())


def _decode_element(counting: Counting, raw: bytes) -> tuple[Message]:
    return (decode_message(raw, counting.count, counting.costs),)


def count_format_tokens(request: Request, counting: Counting) -> int:
    """Tokens of the frame and of the response format: everything outside the messages except the tools."""
    known = counting.known.view(request.codec.name, counting.number)
    return known.count_fixed(request.fixed, partial(_count_fixed, counting)).format_tokens


def _count_fixed(counting: Counting, raws: tuple[bytes, ...]) -> FixedTokens:
    around, count, costs = read_surroundings(raws), counting.count, counting.costs
    return FixedTokens(
        count_format(around, count, costs), count_tools(around, count, costs), has_functions=bool(around.functions)
    )


def counts_all(request: Request) -> bool:
    """Whether each member of the body except `messages` is counted, or is known to cost no tokens."""
    body, beginning = request.body, request.beginning
    if beginning is not None:  # saves reading the messages again
        body = b"".join((body[: beginning.array.start], b"[]", body[beginning.array.stop :]))
    try:
        members = _decode_members(body)
    except DECODE_ERRORS:
        return False
    return members.keys() <= _COUNTED | _WITHOUT_TOKENS


def encode_request(request: Request, before: Conversation, after: Conversation) -> tuple[bytes, ...]:
    """The body with the transcript `after`, in pieces. If `after` is the object `before`: the unchanged body.

    Raises UndecodableError if the key of the messages is written with escapes.
    """
    if after is before:
        return (request.body,)
    beginning = request.beginning
    array = _find_messages(request.body, request.raws) if beginning is None else beginning.array
    earlier = None if beginning is None else beginning.written
    written, ending = write_elements(Source(request.body, array, before), after, _write_element, written=earlier)
    if beginning is not None:
        beginning.written = written
    return (*written.pieces, ending)


def _write_element(placed: Sequence[Placed]) -> bytes:
    ((message, _),) = placed
    return encode_message(message)
