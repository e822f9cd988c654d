"""Splits the body of a chat request into its messages and writes it again, and leaves out thinking that no longer fits.

A Claude model behind a gateway binds its thinking to the messages before it. Gateways for chat completions have no
setting by which a server may drop such thinking (messages/binding.py). Leaving out all of it is no change of what comes
after it.

Law: everything that no rule touched keeps its bytes: messages, the white space between them, and all other members.
Thinking is left out only in a session in which something before an answer was changed, and only if it is sealed.

Source: Anthropic's page on preserved thinking; LiteLLM's and OpenRouter's on thinking.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from trimtab.proxy.wire.chat.message import decode_message, encode_message
from trimtab.proxy.wire.codec import Adapted, Codec, Counting, Request
from trimtab.proxy.wire.content.cache_help import Client, Helped, add_breakpoint, add_controls
from trimtab.proxy.wire.content.schemas import decode_or_none
from trimtab.proxy.wire.content.tool_lists import ToolList, find_used
from trimtab.proxy.wire.dialect import find_array, help_with_markers, write_transcript
from trimtab.proxy.wire.json.decode import read_members
from trimtab.proxy.wire.routing import binds_thinking
from trimtab.proxy.wire.transcript.beginnings import Begun
from trimtab.proxy.wire.transcript.body import Form, find_elements, split_body
from trimtab.proxy.wire.transcript.elements import Placed
from trimtab.rules.conversation import Conversation, Decision, Message, Role
from trimtab.rules.tokens.tool_schemas import as_schema

COUNTED = frozenset({"messages", "tools", "functions", "tool_choice", "function_call", "response_format"})
WITHOUT_TOKENS = frozenset(
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


def list_tools(request: Request) -> tuple[ToolList, ...]:
    """The lists of tools, and of functions in the legacy form."""
    tools, functions, tool_choice, function_call, _ = request.fixed
    return (
        ToolList(b'"tools"', tools, tool_choice, (b'"tool_choice"', b'"parallel_tool_calls"')),
        ToolList(b'"functions"', functions, function_call, (b'"function_call"',)),
    )


def list_called(request: Request, transcript: Conversation) -> frozenset[str]:
    """The tools that a transcript calls, also in the legacy form."""
    used = find_used(transcript.messages)
    if request.fixed[1]:
        used |= frozenset(name for message in transcript.messages for name in _find_legacy_call(message))
    return used


def _find_legacy_call(message: Message) -> Iterator[str]:
    """The function that a message of the assistant calls in the legacy form."""
    if message.role is Role.ASSISTANT and not message.tool_calls and b'"function_call"' in message.raw:
        called = as_schema(decode_or_none(read_members(message.raw).get("function_call"))).get("name")
        yield from [called] if isinstance(called, str) else []


def decode_element(counting: Counting, raw: bytes) -> tuple[Message]:
    """The message of one element. Raises UndecodableError or one of DECODE_ERRORS."""
    return (decode_message(raw, counting.count, counting.costs),)


def encode_request(request: Request, before: Conversation, after: Conversation) -> tuple[bytes, ...]:
    """The body with the transcript `after`, in pieces. If `after` is the object `before`: the unchanged body.

    Raises UndecodableError if the key of the messages is written with escapes.
    """
    if after is before:
        return (request.body,)
    return write_transcript(request, find_array(FORM, request), before, after, _write_element)


def _write_element(placed: Sequence[Placed]) -> bytes:
    ((message, _),) = placed
    return encode_message(message)


def help_cache(request: Request, after: Conversation, pieces: tuple[bytes, ...]) -> Helped:
    """The body with `request.cache`. Raises one of DECODE_ERRORS."""
    return help_with_markers(request, after, pieces, mark_messages, encode_message)


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


_SEALED = ("thinking_blocks", "reasoning_details")


def leave_out_thinking(request: Request, before: Conversation, _: Conversation, pieces: tuple[bytes, ...]) -> Adapted:
    """The body without thinking, if its model binds that and the client's transcript `before` has any.

    Raises UndecodableError, or one of DECODE_ERRORS.
    """
    if not is_bound(request, before):
        return Adapted(pieces)
    body, parts, stop = b"".join(pieces), list[bytes](), 0
    raws = read_request(request.codec, body).raws
    for span, raw in zip(find_elements(FORM, body, raws).elements, raws, strict=True):
        parts += body[stop : span.start], drop_thinking(raw)
        stop = span.stop
    decision = Decision("thinking", "thinking that no longer fits is left out", 0, 0, 0, 0)
    return Adapted((b"".join([*parts, body[stop:]]),), decisions=(decision,))


def is_bound(request: Request, transcript: Conversation) -> bool:
    """Whether a request's model binds its thinking to what is before it, and there is any."""
    return binds_thinking(request.model) and any(
        name.encode() in message.raw for message in transcript.messages if message.has_reasoning for name in _SEALED
    )


def drop_thinking(raw: bytes) -> bytes:
    """A message without sealed thinking; the same bytes if it has none. Raises one of DECODE_ERRORS."""
    if not any(name.encode() in raw for name in _SEALED):
        return raw
    members = read_members(raw)
    left = {name: value for name, value in members.items() if name not in _SEALED}
    is_same = len(left) == len(members) or bytes(members.get("role", b"")) != b'"assistant"'
    return raw if is_same else msgspec.json.encode(left)
