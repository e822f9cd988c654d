"""The dialect of chat completions: POST /v1/chat/completions, and any path with that ending.

Law: of a request that continues a conversation, a question copies each member unchanged that the upstream renders into
the prompt, or by which it finds its prompt cache. Members that only say how to respond are left out. Of an answer
nothing is raised, whatever it is, except by `join`.

Sources: OpenAI's, Anthropic's, OpenRouter's, Fireworks', Mistral's and DashScope's references of chat completions and
prompt caching; the request models of vLLM, SGLang and llama.cpp.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any

import msgspec
import orjson

from trimtab.proxy.wire.answering import CACHE_KEY, Completion
from trimtab.proxy.wire.answers.sse import MAX_EMPTY_EVENT_BYTES, write_event
from trimtab.proxy.wire.answers.tap import Piece
from trimtab.proxy.wire.answers.usage import NULL, Usage, read_timings, try_inner_usage, try_usage
from trimtab.proxy.wire.chat import message, recall
from trimtab.proxy.wire.codec import Codec, Request, leave_out_thinking
from trimtab.proxy.wire.json import (
    DECODE_ERRORS,
    decode_member,
    decode_or_none,
    read_members,
    try_decode,
)
from trimtab.proxy.wire.overflow import Kind, Overflow, read_overflow
from trimtab.proxy.wire.routing import binds_thinking
from trimtab.proxy.wire.tools import ToolList, find_used
from trimtab.proxy.wire.transcript.body import Adapted, Form, UndecodableError
from trimtab.rules.conversation import Conversation, Message, Role
from trimtab.rules.tokens.messages import as_schema

FIXED = ("tools", "functions", "tool_choice", "function_call", "response_format")
FORM = Form(
    "messages",
    FIXED,
    ("stream_options", "max_tokens", "max_completion_tokens"),
    long=("tools", "functions", "response_format"),
)
COUNTED = frozenset({"messages", "tools", "functions", "tool_choice", "function_call", "response_format"})
WITHOUT_TOKENS = frozenset({
    "model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k",
    "min_p", "typical_p", "n", "stop", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "repeat_penalty", "logit_bias", "logprobs", "top_logprobs", "user", "metadata", "store", "service_tier",
    "parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "ignore_eos",
    "cache_prompt", "id_slot", "timings_per_token", "reasoning_effort", "verbosity",
})  # fmt: skip
"""Members that no server puts into the prompt. Source: the API references of OpenAI, vLLM and llama.cpp. Any other
member may be part of the prompt: `documents`, `chat_template`, `chat_template_kwargs`, and future ones."""
RENDERED = frozenset({
    "tools", "functions", "tool_choice", "function_call", "parallel_tool_calls", "response_format", "documents",
    "reasoning", "reasoning_effort", "verbosity", "output_config", "thinking", "thinking_budget", "enable_thinking",
    "prompt_mode", "safe_prompt", "web_search_options", "plugins", "transforms", "chat_template",
    "chat_template_kwargs", "add_special_tokens", "mm_processor_kwargs", "media_io_kwargs", "extra_body",
    "preset", "context_management", "search_parameters", "enable_search", "search_options", "preserve_thinking",
    "vl_high_resolution_images", "chat_template_args",
})  # fmt: skip
"""Members that are part of the prompt, or of hidden instructions in it.

`context_management` is one of them: the upstream edits the context before it renders it, so its cache holds the edited
text.
"""
CACHED = frozenset({
    "model", "models", "route", "provider", "session_id", "service_tier", "user", "safety_identifier",
    "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "prompt_cache_isolation_key",
    "cache_control", "cache_prompt", "cache_salt", "id_slot", "lora", "lora_path", "store",
    "cached_content", "data_parallel_rank", "metadata",
})  # fmt: skip
"""Members that name the model, the account and the prompt cache, or say what the upstream may store."""
OF_SESSION = frozenset({
    "route", "provider", "session_id", "service_tier", "user", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "prompt_cache_isolation_key", "cache_salt", "store", "metadata", "transforms",
})  # fmt: skip
"""Members by which an upstream knows the account and the session, whatever is asked."""


# A Claude model behind a gateway binds its thinking to the messages before it. Gateways for chat completions have no
# setting by which a server may drop such thinking (messages/codec.py). Leaving out all of it is no change of what
# comes after it. So it is left out, only if it is sealed, and only in a session in which something before an answer was
# changed. Source: Anthropic's page on preserved thinking; LiteLLM's and OpenRouter's on thinking.
_SEALED = ("thinking_blocks", "reasoning_details")
_HAS_REASONING = attrgetter("has_reasoning")


def is_bound(request: Request, transcript: Conversation) -> bool:
    """Whether a request's model binds its thinking to what is before it, and there is any."""
    if not any(map(_HAS_REASONING, transcript.messages)):  # the usual case
        return False
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


_BUDGETS = frozenset({"budget_tokens", "thinking_budget"})
_THINKING = frozenset({"thinking", "reasoning", "thinking_budget", "extra_body"})


def _find_thinking(value: dict[str, Any], *, is_reasoning: bool = False) -> int | None:
    """As `read_thinking`, for one object and those in it. `max_tokens` is a budget only in OpenRouter's `reasoning`."""
    found = [0] if value.get("type") in ("enabled", "adaptive") else []
    for name, member in value.items():
        if isinstance(member, dict):
            tokens = _find_thinking(member, is_reasoning=name == "reasoning")
            found += [] if tokens is None else [tokens]
        elif (name in _BUDGETS or (is_reasoning and name == "max_tokens")) and type(member) is int and member > 0:
            found.append(member)
    return max(found, default=None)


EXCEEDED = "model_context_window_exceeded"
"""Zhipu's `finish_reason` when the context window is full. If the completion is empty, the prompt was too long."""
_EXCEEDED = EXCEEDED.encode()
_WRITTEN = ("content", "tool_calls", "reasoning_content", "reasoning")


class _Called(msgspec.Struct):
    """`arguments`: of a function. `input`: of a custom tool."""

    name: str | None = None
    arguments: str | None = None
    input: str | None = None


class _Call(msgspec.Struct):
    function: _Called | None = None
    custom: _Called | None = None


class _Part(msgspec.Struct):
    text: str | None = None


class _Delta(msgspec.Struct):
    content: str | list[_Part] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    """`usage`: Moonshot's streams have it here. Source: earendil-works/pi#2017."""

    index: int = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    usage: msgspec.Raw = NULL


class _Answer(msgspec.Struct):
    """`type`, `message`: of Anthropic's message_start. `timings`: llama.cpp's. `x_groq`: has Groq's usage."""

    type: Any = None
    choices: msgspec.Raw = NULL
    usage: msgspec.Raw = NULL
    message: msgspec.Raw = NULL
    timings: msgspec.Raw = NULL
    x_groq: msgspec.Raw = NULL


class _Event(_Answer):
    """With valid choices. It decodes in one pass, so it is tried first."""

    choices: list[_Choice] | None = None  # type: ignore[assignment]


_decode = msgspec.json.Decoder(_Answer).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_choices = msgspec.json.Decoder(list[_Choice] | None).decode


class _Said(msgspec.Struct):
    """Of a completion only what a summary is read from, so that whatever else a server writes loses none."""

    content: str | list[_Part] | None = None
    tool_calls: list[Any] | None = None


class _SaidChoice(msgspec.Struct):
    index: int = 0
    delta: _Said | None = None
    message: _Said | None = None
    finish_reason: Any = None


class _Completion(msgspec.Struct):
    choices: list[_SaidChoice] | None = None
    usage: msgspec.Raw = NULL
    error: msgspec.Raw = NULL


_decode_completion = msgspec.json.Decoder(_Completion).decode


def _read_odd_answer(data: bytes, usage: Usage | None) -> tuple[Usage | None, Sequence[Piece] | None]:
    try:
        answer = _decode(data)
    except DECODE_ERRORS:
        return usage, None  # `[DONE]`, an error, or garbage
    usage = _read_usages(answer, usage)
    with suppress(*DECODE_ERRORS):
        return usage, _read_choices(_decode_choices(answer.choices) or ())
    return usage, ()


def _read_usages(answer: _Answer | _Event, usage: Usage | None) -> Usage | None:
    if answer.type == "message_start":
        usage = try_inner_usage(answer.message, usage)
    if answer.x_groq != NULL:
        usage = try_inner_usage(answer.x_groq, usage)
    if answer.usage != NULL:
        usage = try_usage(answer.usage, usage)
    if answer.timings != NULL:
        with suppress(*DECODE_ERRORS):
            usage = read_timings(answer.timings, usage)
    return usage


def _read_choices(choices: Sequence[_Choice]) -> list[Piece]:
    pieces: list[Piece] = []
    for choice in choices:
        delta, index = choice.delta or choice.message, choice.index
        if delta is None:
            continue
        said: Any = delta.content
        if said:  # a list of parts is rare, and `isinstance` a call for each event
            text = "".join(part.text or "" for part in said) if said.__class__ is list else said
            pieces.append(Piece((index, "content"), text))
        if delta.reasoning_content or delta.reasoning:
            text = delta.reasoning_content or delta.reasoning or ""
            pieces.append(Piece((index, "reasoning"), text, is_reasoning=True))
        if delta.refusal:
            pieces.append(Piece((index, "refusal"), delta.refusal))
        for call in delta.tool_calls or ():
            called = call.function or call.custom or _Called()
            written = ("name", called.name), ("arguments", called.arguments or called.input)
            pieces += [Piece((index, kind), text) for kind, text in written if text]
    return pieces


def _is_silent(choice: Any) -> bool:
    delta = choice.get("delta") if isinstance(choice, dict) else None
    is_empty = isinstance(delta, dict) and not any(value for name, value in delta.items() if name != "role")
    return is_empty and not choice.get("finish_reason")


class ChatCodec(Codec):
    name = "chat"
    transcript = "messages"
    ending = "/chat/completions"
    path = f"/v1{ending}"

    form = FORM
    fixed = attrgetter(*FIXED)
    known_members = COUNTED | WITHOUT_TOKENS
    markers = frozenset({"cache_control", "cache_breakpoint"})
    decode_unit = staticmethod(message.decode_element)
    read_tools_and_format = staticmethod(message.read_tools_and_format)
    encode_message = staticmethod(message.encode_message)
    recall_tool = recall.TOOL
    one_answer = recall.ONE_ANSWER
    sifter = recall.ChatSifter

    limits = refusable_limits = ("max_tokens", "max_completion_tokens")  # models that think accept only the second one
    refusable = (CACHE_KEY,)
    asks_for_usage = True
    taken_over = RENDERED | CACHED
    of_session = OF_SESSION
    choices = frozenset({"tool_choice", "function_call"})

    @staticmethod
    def describe(members: Any) -> tuple[Any, bool, bool]:
        # Reasoning models want `max_completion_tokens`, and their reasoning counts against it.
        is_reasoning = members.max_completion_tokens is not None
        options = members.stream_options
        asks_usage = isinstance(options, dict) and options.get("include_usage") is True
        return members.max_completion_tokens if is_reasoning else members.max_tokens, is_reasoning, asks_usage

    def list_tools(self, request: Request, /) -> tuple[ToolList, ...]:
        tools, functions, tool_choice, function_call, _ = request.fixed
        return (
            ToolList(b'"tools"', tools, tool_choice, (b'"tool_choice"', b'"parallel_tool_calls"')),
            ToolList(b'"functions"', functions, function_call, (b'"function_call"',)),
        )

    def list_called(self, request: Request, transcript: Conversation, /) -> frozenset[str]:
        said = transcript.messages if request.fixed[1] else ()
        raws = (message.raw for message in said if message.role is Role.ASSISTANT and not message.tool_calls)
        legacy = (read_members(raw).get("function_call") for raw in raws if b'"function_call"' in raw)
        names = (as_schema(decode_or_none(called)).get("name") for called in legacy)
        return find_used(transcript.messages) | {name for name in names if isinstance(name, str)}

    def adapt(self, request: Request, before: Conversation, _: Conversation, pieces: tuple[bytes, ...], /) -> Adapted:
        """The body without thinking, if its model binds that. Raises UndecodableError, or one of DECODE_ERRORS."""
        return leave_out_thinking(request, pieces, drop_thinking) if is_bound(request, before) else Adapted(pieces)

    @staticmethod
    def prescribes_form(members: dict[str, msgspec.Raw]) -> bool:
        form, output = (decode_member(members.get(name)) for name in ("response_format", "output_config"))
        is_free = form is None or (isinstance(form, dict) and form.get("type") == "text")
        return not is_free or (isinstance(output, dict) and output.get("format") is not None)

    @staticmethod
    def read_thinking(members: dict[str, msgspec.Raw]) -> int | None:
        found = [_find_thinking({name: decode_member(members[name])}) for name in _THINKING & members.keys()]
        return max((tokens for tokens in found if tokens is not None), default=None)

    def write_behind(
        self,
        request: Request,
        prefix: Conversation,
        asked: tuple[Message, ...],
        members: dict[str, msgspec.Raw],
        *,
        is_apart: bool,
    ) -> Iterable[bytes]:
        elements = super().write_behind(request, prefix, asked, members, is_apart=is_apart)
        return map(drop_thinking, elements) if request.breaks_past and is_bound(request, prefix) else elements

    @staticmethod
    def is_end(data: bytes) -> bool:
        return data.strip() == b"[DONE]"

    @staticmethod
    def read_answer(data: bytes, usage: Usage | None) -> tuple[Usage | None, Sequence[Piece] | None]:
        try:
            answer = _decode_event(data)
        except DECODE_ERRORS:
            return _read_odd_answer(data, usage)
        choices = answer.choices or ()
        for choice in choices:
            if choice.usage != NULL:
                usage = try_usage(choice.usage, usage)
        if answer.type is not None or answer.usage != NULL or answer.timings != NULL or answer.x_groq != NULL:
            usage = _read_usages(answer, usage)
        return usage, _read_choices(choices)

    @staticmethod
    def is_part_of_answer(line: bytes) -> bool:
        return b'"choices"' in line and _EXCEEDED not in line and b'"error"' not in line

    @staticmethod
    def is_greeting(data: bytes) -> bool:
        """Whether nothing is said yet: no choice, as in Azure's first chunk, or only who will speak."""
        is_short = len(data) <= MAX_EMPTY_EVENT_BYTES
        chunk: Any = try_decode(data) if is_short and b'"choices"' in data else None
        if not isinstance(chunk, dict) or chunk.get("error") or chunk.get("usage"):
            return False
        choices = chunk.get("choices")
        return isinstance(choices, list) and all(map(_is_silent, choices))

    @staticmethod
    def read_empty_answer(body: bytes) -> Overflow | None:
        """The overflow in an error, or in a completion without text whose `finish_reason` is EXCEEDED."""
        if ChatCodec.is_part_of_answer(body):
            return None
        answer: Any = try_decode(body)
        if isinstance(answer, list) and answer:
            answer = answer[0]
        if not isinstance(answer, dict):
            return None
        if "choices" not in answer:
            return read_overflow(200, body)
        choices = answer["choices"]
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        message = choice.get("message") or choice.get("delta")
        is_empty = not isinstance(message, dict) or not any(message.get(key) for key in _WRITTEN)
        usage = answer.get("usage")
        wrote = isinstance(usage, dict) and usage.get("completion_tokens")
        return Overflow(Kind.PROMPT) if choice.get("finish_reason") == EXCEEDED and is_empty and not wrote else None

    @staticmethod
    def write_answer(status: int, body: bytes) -> bytes | None:
        answer = try_decode(body)
        return write_event(body) if status == 200 or (isinstance(answer, dict) and "error" in answer) else None

    @staticmethod
    def join(events: list[bytes]) -> Completion:
        """The first choice. Raises UndecodableError for an error, or without an answer."""
        answers = [_decode_completion(data) for data in events]
        if any(answer.error != NULL for answer in answers) or all(answer.choices is None for answer in answers):
            raise UndecodableError("no completion")
        first = [choice for answer in answers for choice in answer.choices or () if choice.index == 0]
        said = [one for choice in first if (one := choice.message or choice.delta)]
        contents = [one.content or () for one in said]
        reason = next((choice.finish_reason for choice in reversed(first) if choice.finish_reason), None)
        usage = next((answer.usage for answer in reversed(answers) if answer.usage != NULL), NULL)
        return Completion(
            "".join(part if isinstance(part, str) else part.text or "" for content in contents for part in content),
            try_usage(usage) or Usage(),
            calls_tool=any(one.tool_calls for one in said),
            was_cut=reason == "length",
            was_filtered=reason == "content_filter",
        )


CHAT = ChatCodec()


def read_messages(messages: Iterable[Mapping[str, object]], **members: object) -> Request:
    """Make a request from messages in OpenAI's form, oldest first, and other members. Raises UndecodableError."""
    return CHAT.read(orjson.dumps({**members, "messages": list(messages)}))
