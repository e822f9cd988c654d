"""Splits the body of a chat request into its messages, decodes and counts them, and writes the body again.

Law: everything that no rule touched keeps its bytes: messages, the white space between them, and all other members.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from proxy.wire.chat.cost import read_surroundings
from proxy.wire.chat.message import decode_message, encode_message
from proxy.wire.codec import Codec, Counting, Request, UndecodableError, Unsent
from proxy.wire.content.cache_help import Client, Helped, add_breakpoint, add_controls, help_openly
from proxy.wire.content.schemas import decode_or_none
from proxy.wire.content.tool_lists import ToolList, drop_tools, find_used
from proxy.wire.json.decode import DECODE_ERRORS, read_members
from proxy.wire.transcript.beginnings import Begun, find_transcript
from proxy.wire.transcript.body import Form, find_elements, read_outside, split_body
from proxy.wire.transcript.decoding import FixedTokens, decode_units, recall
from proxy.wire.transcript.elements import Placed, Source, write_elements
from rules.conversation import Conversation, Decision, Message, Role
from rules.tokens.messages import count_format, count_shared_frame, count_tools
from rules.tokens.tool_schemas import as_schema

TOOLS_FACTOR = 16
"""Tools count this many times their bytes as work. Fitted on hostile tools: rendering them takes as long as counting a
text of this many times their length."""


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


FORM = Form(
    b'"messages"',
    msgspec.json.Decoder(_Body).decode,
    lambda body: body.messages,
    lambda body: (body.tools, body.functions, body.response_format),
)


def read_request(codec: Codec, body: bytes, begun: Begun | None = None, *, max_chars: int | None = None) -> Request:
    """Split a body into its messages without decoding them; see `split_body`. Raises UndecodableError."""
    decoded, raws, beginning = split_body(FORM, body, begun, max_chars=max_chars)
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


def clean_request(request: Request, _: Unsent) -> tuple[bytes, tuple[Decision, ...]]:
    """The body itself: no client is known that puts anything into a chat request that must not be sent."""
    return request.body, ()


def drop_unused_tools(
    request: Request, transcript: Conversation, globs: tuple[str, ...], counting: Counting
) -> tuple[bytes, int]:
    """The body without the declarations of tools that match; see `drop_tools`."""
    tools, functions, tool_choice, function_call, _ = request.fixed
    lists = (
        ToolList(b'"tools"', tools, tool_choice, (b'"tool_choice"', b'"parallel_tool_calls"')),
        ToolList(b'"functions"', functions, function_call, (b'"function_call"',)),
    )
    used = find_used(transcript.messages)
    if functions:
        used |= frozenset(name for message in transcript.messages for name in _find_legacy_call(message))
    return drop_tools(request.body, find_transcript(request.beginning), lists, used, globs, counting.tool_lists)


def _find_legacy_call(message: Message) -> Iterator[str]:
    """The function that a message of the assistant calls in the legacy form."""
    if message.role is Role.ASSISTANT and not message.tool_calls and b'"function_call"' in message.raw:
        called = as_schema(decode_or_none(read_members(message.raw).get("function_call"))).get("name")
        yield from [called] if isinstance(called, str) else []


def uncounted_bytes(request: Request, counting: Counting) -> int:
    """Bytes of JSON that are not decoded and counted yet. Tools count TOOLS_FACTOR times, because they take longer."""
    known = counting.known.view(request.codec.name, counting.number)
    new = request.raws[recall(request.raws, request.beginning, known).elements :]
    return known.count_unknown_bytes(new, request.fixed, TOOLS_FACTOR)


def decode_request(request: Request, counting: Counting) -> Conversation:
    """The request's transcript with its token counts. Raises UndecodableError if a message has no role.

    Also notes in the request's beginning what was decoded, for the request that continues it.
    """
    known = counting.known.view(request.codec.name, counting.number)
    try:
        messages, origins = decode_units(request.raws, request.beginning, known, partial(_decode_element, counting))
        fixed = known.count_fixed(request.fixed, partial(_count_fixed, counting))
        tokens = fixed.format_tokens + fixed.tools_tokens
        if fixed.has_functions and messages:
            tokens += count_shared_frame(messages[0], counting.count, counting.costs)
    except DECODE_ERRORS as error:
        raise UndecodableError(type(error).__name__) from error
    return Conversation(messages, max(tokens, 0), origins)


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
    try:
        members = read_outside(request.body, request.beginning)
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
    array = find_elements(FORM, request.body, request.raws) if beginning is None else beginning.array
    earlier = None if beginning is None else beginning.written
    written, ending = write_elements(Source(request.body, array, before), after, _write_element, written=earlier)
    if beginning is not None:
        beginning.written = written
    return (*written.pieces, ending)


def _write_element(placed: Sequence[Placed]) -> bytes:
    ((message, _),) = placed
    return encode_message(message)


def help_cache(request: Request, after: Conversation, pieces: tuple[bytes, ...]) -> Helped:
    """The body with `request.cache`. Raises one of DECODE_ERRORS."""
    client = request.read_client()
    marked = mark_messages(request, after, client)
    asked = request.cache if "prompt_cache_key" not in client.outside else replace(request.cache, key="")
    return help_openly(asked, pieces, after.messages, marked, encode_message)


def mark_messages(
    request: Request, after: Conversation, client: Client | None = None, *, at_end: bool = False
) -> dict[int, Message]:
    """The messages that get a cache marker, by index. `at_end`: the last one gets one in any case.

    Raises one of DECODE_ERRORS.
    """
    adds, messages = request.cache.adds, after.messages
    if "cache_control" in adds:
        return add_controls(messages, client or request.read_client())
    if "cache_breakpoint" in adds:
        return add_breakpoint(messages, after.origins, client or request.read_client(), at_end=at_end)
    return {}
