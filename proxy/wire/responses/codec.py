"""The dialect of OpenAI's Responses API: POST /v1/responses.

What a request has besides its items: which members are read, counted, and copied into a question behind it. It also
takes items out that belong to the client alone.

Law: with an item that is taken out goes one comma; all other bytes stay. Of a request that continues a conversation, a
question copies each member unchanged that the upstream renders into the prompt, or by which it finds its prompt cache.
So the question reads the cache of the conversation. Members that only say how to respond are left out.

Sources: OpenAI's references of the Responses API and of prompt caching; the request models of vLLM and llama.cpp.
"""

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec
import orjson

from trimtab.proxy.wire.codec import SHAPE, Codec, Request
from trimtab.proxy.wire.json import (
    Span,
    cut,
    decode_member,
    decode_members,
    find_member,
    holds,
    read_members,
    write_compact,
)
from trimtab.proxy.wire.parameters import CACHE_KEY, Question
from trimtab.proxy.wire.responses import answer, recall, units
from trimtab.proxy.wire.responses.message import decode_unit, encode_message, find_call_types
from trimtab.proxy.wire.responses.units import REFERENCE, read_head
from trimtab.proxy.wire.tools import ToolList, as_list, read_choice, read_format
from trimtab.proxy.wire.transcript.body import Asked, UndecodableError, Unsent, find_transcript, make_form
from trimtab.proxy.wire.transcript.decoding import discount_compacted
from trimtab.proxy.wire.transcript.elements import Placed, WriteElement, write_outside
from trimtab.rules.conversation import Conversation, Decision, Message, Role, Shape
from trimtab.rules.tokens.messages import ToolsAndFormat
from trimtab.rules.tokens.tool_schemas import as_schema

_TEXT = b'{"role":"user","content":'
_SYSTEM = b'{"role":"system","content":'
NOTHING = (b"", b"null", b'""')
_COUNTED = frozenset({"input", "instructions", "tools", "tool_choice", "text"})
_WITHOUT_TOKENS = frozenset(
    {
        "model", "stream", "stream_options", "max_output_tokens", "max_tool_calls", "temperature", "top_p", "top_k",
        "top_logprobs", "min_p", "seed", "stop", "presence_penalty", "frequency_penalty", "user", "metadata", "store",
        "include", "service_tier", "parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention",
        "prompt_cache_options", "safety_identifier", "reasoning", "background", "client_metadata", "moderation",
        "cache_prompt", "id_slot",
    }
)  # fmt: skip
"""Members that no server puts into the prompt. Source: the API references of OpenAI, vLLM and llama.cpp. Any other
member may add to the prompt or take from it: `prompt`, `context_management`, `truncation`, and future ones."""
_NOT_READ = frozenset({"type", "strict"})
"""Members of a function that say how it is written and enforced here; the model does not read them."""
_READ_ANYWAY = frozenset({Role.SYSTEM, Role.USER})
"""Roles of the messages before a compaction item that the model still reads. Source: OpenAI's guide on compaction: a
compacted window begins with the user's messages; items of the model and results before it may be left out."""
FIXED = ("instructions", "previous_response_id", "conversation", "tools", "tool_choice", "text")
COUNTED_FIXED = slice(3, None)
FORM = make_form(
    "input",
    FIXED,
    ("max_output_tokens", "reasoning"),
    long=("tools", "text"),
    elements=list[msgspec.Raw] | str | None,
)
RENDERED = frozenset(
    {
        "instructions", "tools", "tool_choice", "parallel_tool_calls", "text", "reasoning", "truncation", "prompt",
        "include", "context_management", "max_tool_calls", "chat_template", "chat_template_kwargs",
    }
)  # fmt: skip
"""Members that are part of the prompt, or of hidden instructions in it, or change which items are."""
CACHED = frozenset(
    {
        "model", "service_tier", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
        "prompt_cache_options", "store", "client_metadata", "cache_salt", "cache_prompt", "id_slot", "metadata",
    }
)  # fmt: skip
"""Members that name the model, the account and the prompt cache, or say what the upstream may store."""
OF_SESSION = frozenset(
    {
        "instructions", "include", "service_tier", "user", "safety_identifier", "prompt_cache_key",
        "prompt_cache_retention", "store", "client_metadata", "cache_salt", "metadata",
    }
)  # fmt: skip
"""Members by which an upstream knows the account and the session, whatever is asked. ChatGPT's own backend accepts a
login only with `instructions` and without `store`."""
_HELD = ("previous_response_id", "conversation")


def read_tools_and_format(tools: Any, tool_choice: Any, text: Any) -> ToolsAndFormat:
    """What the members outside the transcript cost, except the instructions; None for a missing one."""
    listed = [one for tool in as_list(tools) for one in _flatten(tool)]
    functions = [_as_function(tool) for tool in listed if _is_function(tool)]
    return ToolsAndFormat(
        functions=functions,
        functions_json=write_compact([{"type": "function", "function": function} for function in functions]),
        others=[write_compact(tool) for tool in listed if not _is_function(tool)],
        choice=read_choice(tool_choice),
        format_texts=tuple(read_format(as_schema(as_schema(text).get("format")))),
    )


def _flatten(tool: Any) -> Iterator[Any]:
    """A tool; of a namespace its own name and description, and then its tools.

    Of a tool that the model has yet to search for, it reads only the name and the description.
    """
    inner = as_schema(tool).get("tools")
    if as_schema(tool).get("type") == "namespace" and isinstance(inner, list):
        yield {name: value for name, value in tool.items() if name != "tools"}
        listed = inner
    else:
        listed = [tool]
    for one in listed:
        if as_schema(one).get("defer_loading") is True:
            yield {name: one[name] for name in ("name", "description") if name in one}
        else:
            yield one


def _is_function(tool: Any) -> bool:
    return as_schema(tool).get("type") == "function"


def _as_function(tool: dict[str, Any]) -> dict[str, Any]:
    """A function without the members that only say how it is written here; clients of chat completions may nest it."""
    inner = tool.get("function")
    return inner if isinstance(inner, dict) else {name: value for name, value in tool.items() if name not in _NOT_READ}


def _lacks_calls(messages: Sequence[Message]) -> bool:
    """Whether references may stand for what results answer, or for items of unknown kind: then nothing may be cut."""
    if any(message.wire_role == REFERENCE for message in messages):
        return True
    if not any(message.has_uncounted and REFERENCE.encode() in message.raw for message in messages):
        return False
    asked: set[str] = set()
    for message in messages:
        if message.answers is not None and message.answers not in asked:
            return True
        asked.update(call.id for call in message.tool_calls)
    return False


def encode_text(request: Request, after: Conversation) -> tuple[tuple[bytes, ...], Span] | None:
    """The body whose input is a text, and where that was; None if it has items."""
    span = find_member(request.body, FORM.key) if request.raws[0].startswith(_TEXT) else None
    if span is None or request.body[span.start : span.start + 1] != b'"':
        return None
    write = Writer(after.messages)
    items = [write([(message, None)]) for message in after.messages]
    content = bytes(decode_members(items[0]).get("content", b"")) if len(items) == 1 else b""
    written = content if content[:1] == b'"' else b"[" + b",".join(items) + b"]"
    return (request.body[: span.start], written, request.body[span.stop :]), span


class Writer:
    """Writes messages as items. The types of all calls are looked up once, and only if a result must be made."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._call_types: dict[str, str] | None = None

    def __call__(self, placed: Sequence[Placed]) -> bytes:
        ((message, _),) = placed
        if self._call_types is None and not message.raw:
            self._call_types = find_call_types(self._messages)
        return encode_message(message, self._call_types or {})


RULE = "local_items"
"""Name of the rule in decisions."""


STORE = "store"


class ResponsesCodec(Codec):
    name = "responses"
    transcript = "input"
    outside = "instructions"
    ending = "/responses"
    path = f"/v1{ending}"

    form = FORM
    fixed = attrgetter(*FIXED)
    counted_fixed = COUNTED_FIXED
    empty = NOTHING
    markers = frozenset({"cache_breakpoint"})
    find_units = staticmethod(units.find_units)
    decode_unit = staticmethod(decode_unit)
    read_tools_and_format = staticmethod(read_tools_and_format)
    recall_tool = recall.TOOL
    one_answer = recall.ONE_ANSWER
    sifter = recall.ResponsesSifter

    carries = True
    read_answer = staticmethod(answer.read_answer)
    is_end = staticmethod(answer.is_end)
    is_part_of_answer = staticmethod(answer.is_part_of_answer)
    is_greeting = staticmethod(answer.is_greeting)
    read_empty_answer = staticmethod(answer.read_empty_answer)
    write_failure = staticmethod(answer.write_failure)
    write_answer = staticmethod(answer.write_answer)
    join = staticmethod(answer.join)

    limits = refusable_limits = ("max_output_tokens",)
    refusable = (STORE, CACHE_KEY)
    taken_over = RENDERED | CACHED
    of_session = OF_SESSION
    choices = frozenset({"tool_choice"})
    provider_note = answer.NOTE

    @staticmethod
    def describe(members: Any) -> Asked:
        # A stream always ends with the usage.
        return Asked(members.max_output_tokens, isinstance(members.reasoning, dict), members.stream is True)

    def list_text(self, members: Any, /) -> tuple[bytes, ...]:
        """A text in place of items is one item."""
        said = members.input
        return (_TEXT + msgspec.json.encode(said) + b"}",) if isinstance(said, str) else ()

    def list_outside(self, request: Request, /) -> tuple[bytes, ...]:
        instructions = request.fixed[0]
        return (_SYSTEM + instructions + b"}",) if instructions else ()

    def write_outside(self, after: Conversation, /) -> bytes | None:
        return write_outside(after, lambda raw: bytes(read_members(raw)["content"]))

    def look_at(self, request: Request, messages: tuple[Message, ...], /) -> tuple[tuple[Message, ...], Shape, bool]:
        """What is before a compaction item counts nothing, except what the model still reads."""
        continues = any(request.fixed[1:3]) or _lacks_calls(messages)
        return discount_compacted(messages, _READ_ANYWAY), SHAPE, continues

    def knows_members(self, members: Mapping[str, msgspec.Raw]) -> bool:
        """Whether each member of a body is counted, or known to cost no tokens. One that is null or off has no effect.

        A server that truncates the transcript itself may read less than is counted.
        """
        used = {name for name, value in members.items() if bytes(value) not in (b"null", b'"disabled"')}
        return used <= _COUNTED | _WITHOUT_TOKENS

    def list_tools(self, request: Request, /) -> tuple[ToolList, ...]:
        tools, tool_choice, _ = request.fixed[COUNTED_FIXED]
        return (ToolList(b'"tools"', tools, tool_choice, (b'"tool_choice"', b'"parallel_tool_calls"')),)

    def clean(self, request: Request, unsent: Unsent, /) -> tuple[bytes, tuple[Decision, ...]]:
        """The body without the client's own items, and a decision; itself if it holds none or is not understood.

        The decision counts items, because nothing is decoded yet. They cost no tokens.
        """
        if not any(holds(request.body, orjson.dumps(name)) for name in unsent.local_items):
            return request.body, ()
        local = frozenset(unsent.local_items)
        gone = [at for at, raw in enumerate(request.raws) if read_head(raw)[0] in local]
        if not gone:
            return request.body, ()
        try:
            spans = request.find_array().elements
        except UndecodableError:
            return request.body, ()
        return cut(request.body, spans, gone), (
            Decision(RULE, f"{len(gone)} items of the client's own", 0, 0, len(gone), gone[0]),
        )

    @staticmethod
    def prescribes_form(members: dict[str, msgspec.Raw]) -> bool:
        if any(decode_member(members.get(name)) for name in _HELD):
            return True
        text = decode_member(members.get("text"))
        form = text.get("format") if isinstance(text, dict) else None
        return form is not None and not (isinstance(form, dict) and form.get("type") == "text")

    @staticmethod
    def read_thinking(members: dict[str, msgspec.Raw]) -> int | None:
        """0 if the request sets how the model reasons. Such models accept no temperature."""
        return 0 if isinstance(decode_member(members.get("reasoning")), dict) else None

    @staticmethod
    def encode_message(said: Message) -> bytes:
        return encode_message(said, {})

    def encode_transcript(
        self, request: Request, before: Conversation, after: Conversation
    ) -> tuple[tuple[bytes, ...], Span]:
        """A transcript that is a text stays one if that can hold it."""
        body = request.body
        if not request.raws or after.messages == before.messages:
            place = find_transcript(request.beginning) or find_member(body, self.form.key)
            return (body,), place or Span(len(body), len(body))
        return encode_text(request, after) or super().encode_transcript(request, before, after)

    def make_writer(self, _: Request, messages: Sequence[Message]) -> WriteElement:
        return Writer(messages)

    def keep_nothing(self, question: Question) -> dict[str, Any]:
        return {} if STORE in question.refused else {STORE: False}


RESPONSES = ResponsesCodec()
