"""The dialect of OpenAI's Responses API: POST /v1/responses.

Law: a message that no rule touched keeps its bytes. In an edited message, the members other than its content or output
keep theirs. Of what the model said only the texts of its messages and long arguments of its calls change. With an item
that is taken out goes one comma; all other bytes stay. Of a request that continues a conversation, a question copies
each member unchanged that the upstream renders into the prompt, or by which it finds its prompt cache. Members that
only say how to respond are left out.

Sources: OpenAI's references of the Responses API and of prompt caching; the request models of vLLM and llama.cpp.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from operator import attrgetter
from typing import Any

import msgspec
import orjson

from trimtab.proxy.wire.answering import CACHE_KEY, Question
from trimtab.proxy.wire.answers.sse import MAX_EVENT_BYTES
from trimtab.proxy.wire.codec import SHAPE, Codec, Counting, Request
from trimtab.proxy.wire.content import (
    count_json,
    read_content,
    read_media,
    replace_texts,
    write_canonical,
    write_content,
)
from trimtab.proxy.wire.json import (
    Span,
    cut,
    decode_items,
    decode_member,
    decode_members,
    decode_or_none,
    find_member,
    holds,
    mend,
    read_id,
    read_members,
    write_compact,
)
from trimtab.proxy.wire.responses import answer, recall, units
from trimtab.proxy.wire.responses.results import (
    LOCAL_TYPES,
    Said,
    find_id,
    lacks_count,
    read_output,
    write_call,
    write_missing_result,
    write_result,
)
from trimtab.proxy.wire.responses.units import (
    COMPACTIONS,
    REFERENCE,
    RESULT_TYPES,
    Kind,
    find_served,
    read_head,
    read_type,
    tell_kind,
)
from trimtab.proxy.wire.tools import ToolList, as_list, read_choice, read_format
from trimtab.proxy.wire.transcript.body import Form, UndecodableError, Unsent, find_transcript
from trimtab.proxy.wire.transcript.decoding import discount_compacted
from trimtab.proxy.wire.transcript.elements import WriteElement, write_outside
from trimtab.rules.conversation import Conversation, Decision, Media, Message, Role, Shape
from trimtab.rules.prefix import digest_message
from trimtab.rules.tokens.messages import ToolsAndFormat, as_counted, as_schema, count_message

_ROLES = {"system": Role.SYSTEM, "developer": Role.SYSTEM, "user": Role.USER}
_CONTROLS = frozenset({"additional_tools", "configuration_update"})
"""Types of items that hold for all that comes after them, as system messages do."""

Items = Sequence[tuple[bytes, dict[str, msgspec.Raw]]]


def decode_unit(counting: Counting, unit: bytes) -> tuple[Message, ...]:
    items = _read_items(unit)
    if len(items) == 1:
        members = items[0][1]
        item_type = read_type(decode_or_none(members.get("type")))
        kind = tell_kind(item_type, decode_or_none(members.get("role")))
        if kind is Kind.RESULT:
            return (_decode_result(unit, item_type or "", members, counting),)
        if kind in {Kind.ALONE, Kind.UNKNOWN} and item_type not in COMPACTIONS:
            return (_decode_alone(unit, members, counting),)
    return (_decode_said(unit, items, counting),)


def _read_items(unit: bytes) -> Items:
    """Each item of a unit with its members, repaired if need be. Raises one of DECODE_ERRORS."""
    listed = b"[" + unit + b"]"
    try:
        raws = list(map(bytes, decode_items(mend(listed) if b"\xed" in unit else listed)))
    except msgspec.DecodeError:
        raws = list(map(bytes, decode_items(mend(listed))))
    return [(raw, decode_members(raw)) for raw in raws]


def _decode_said(unit: bytes, items: Items, counting: Counting) -> Message:
    said = Said(counting.count, counting.costs)
    for raw, members in items:
        said.add(raw, members)
    message = said.message(unit)
    tokens = said.sealed_tokens
    if message.texts or message.tool_calls or message.media or said.extra_texts or not tokens:
        calls = [*map(as_counted, message.tool_calls)]
        tokens += count_message(message, counting.count, counting.costs, said.extra_texts, calls=calls)
    return replace(message, tokens=tokens, digest=digest_message(message, said.canonical))


def _decode_result(raw: bytes, item_type: str, members: dict[str, msgspec.Raw], counting: Counting) -> Message:
    output = read_output(item_type, members, counting.count, counting.costs)
    name = decode_or_none(members.get("name"))
    message = Message(
        Role.TOOL,
        output.texts,
        answers=read_id(find_id(item_type, members)),
        name=name if isinstance(name, str) else None,
        media=output.media,
        raw=raw,
        is_error=output.is_error,
        has_uncounted=lacks_count(members),
        form=item_type,
        served=find_served(item_type, members),
    )
    return _finish(message, output.canonical, counting)


def _decode_alone(raw: bytes, members: dict[str, msgspec.Raw], counting: Counting) -> Message:
    """A message of a user or of the system, or an item of another kind, which is counted by its JSON."""
    item_type, wire_role = read_type(decode_or_none(members.get("type"))), decode_or_none(members.get("role"))
    if item_type in (None, "message") and isinstance(wire_role, str):
        role = _ROLES.get(wire_role, Role.OTHER)
        texts, parts = read_content(members.get("content"))
        media = tuple(read_media(part, before, counting.count, counting.costs) for part, before in parts)
        message = Message(role, texts, media=media, raw=raw, wire_role="" if wire_role == role else wire_role)
        canonical = tuple(write_canonical(part) for part, _ in parts)
        return _finish(replace(message, has_uncounted=lacks_count(members)), canonical, counting)
    item_type = REFERENCE if item_type is None else item_type
    role = Role.SYSTEM if item_type in _CONTROLS else Role.OTHER
    message = Message(role, raw=raw, wire_role=item_type)
    if item_type in LOCAL_TYPES:
        return replace(message, digest=digest_message(message, (write_canonical(raw),)))
    if role is Role.SYSTEM:
        message = replace(message, texts=(raw.decode("utf-8", "replace"),), has_fixed_texts=True, stays=True)
    else:
        cost = count_json(raw, decode_or_none(msgspec.Raw(raw)), counting.count)
        part = Media(raw, cost.tokens, guessed_tokens=cost.guessed)
        message = replace(message, media=(part,), has_uncounted=item_type == REFERENCE)
        message = replace(message, served=find_served(item_type, members))
    return _finish(message, (write_canonical(raw),), counting)


def _finish(message: Message, canonical: Sequence[bytes], counting: Counting) -> Message:
    tokens = count_message(message, counting.count, counting.costs)
    return replace(message, tokens=tokens, digest=digest_message(message, canonical))


def encode_message(message: Message, call_types: Mapping[str, str]) -> bytes:
    """A message's items: their own bytes, or edited. call_types: by id, for a result that a rule made."""
    if not message.edited:
        return message.raw
    if message.raw and message.role is Role.ASSISTANT:
        return _write_said(message)
    message = message.as_said()
    members = read_members(message.raw) if message.raw else {}
    if message.role is Role.TOOL:
        if not members:
            return write_missing_result(message, call_types.get(message.answers or "", "function_call"))
        return msgspec.json.encode(write_result(message, members, str(decode_or_none(members.get("type")))))
    if not members:  # a message that a rule made; its content has parts, because some servers read only those
        role = msgspec.Raw(orjson.dumps(message.role_name))
        members = {"type": msgspec.Raw(b'"message"'), "role": role, "content": msgspec.Raw(b"[]")}
    text_type = "output_text" if message.role is Role.ASSISTANT else "input_text"
    members["content"] = msgspec.Raw(write_content(message, members.get("content"), text_type))
    return msgspec.json.encode(members)


def _write_said(message: Message) -> bytes:
    """The items of a unit with new texts in its messages and new arguments of its calls. Others keep their bytes."""
    texts, calls, in_program = iter(message.texts), iter(message.tool_calls), False
    written: list[bytes] = []
    for raw, members in _read_items(message.raw):
        kind = tell_kind(*read_head(raw))
        in_program = (in_program or kind is Kind.PROGRAM) and kind is not Kind.PROGRAM_END
        if kind is Kind.CALL and not in_program:
            written.append(write_call(raw, members, next(calls)))
            continue
        content = bytes(members.get("content", b"")) if kind is Kind.SPEECH else b""
        said = replace_texts(content, texts)
        written.append(raw if said == content else msgspec.json.encode({**members, "content": msgspec.Raw(said)}))
    return b",".join(written)


def find_call_types(messages: Sequence[Message]) -> dict[str, str]:
    found: dict[str, str] = {}
    for message in messages:
        for _, members in _read_items(message.raw) if message.tool_calls and message.raw else ():
            item_type = read_type(decode_or_none(members.get("type")))
            if item_type in RESULT_TYPES:
                found[read_id(find_id(item_type, members))] = item_type
    return found


_TEXT = b'{"role":"user","content":'
_SYSTEM = b'{"role":"system","content":'
NOTHING = (b"", b"null", b'""')
_COUNTED = frozenset({"input", "instructions", "tools", "tool_choice", "text"})
_WITHOUT_TOKENS = frozenset({
    "model", "stream", "stream_options", "max_output_tokens", "max_tool_calls", "temperature", "top_p", "top_k",
    "top_logprobs", "min_p", "seed", "stop", "presence_penalty", "frequency_penalty", "user", "metadata", "store",
    "include", "service_tier", "parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention",
    "prompt_cache_options", "safety_identifier", "reasoning", "background", "client_metadata", "moderation",
    "cache_prompt", "id_slot",
})  # fmt: skip
"""Members that no server puts into the prompt. Source: the API references of OpenAI, vLLM and llama.cpp. Any other
member may add to the prompt or take from it: `prompt`, `context_management`, `truncation`, and future ones."""
_NOT_READ = frozenset({"type", "strict"})  # Members of a function that the model does not read
_READ_ANYWAY = frozenset({Role.SYSTEM, Role.USER})
"""Roles of the messages before a compaction item that the model still reads. Source: OpenAI's guide on compaction: a
compacted window begins with the user's messages; items of the model and results before it may be left out."""
FIXED = ("instructions", "previous_response_id", "conversation", "tools", "tool_choice", "text")
COUNTED_FIXED = slice(3, None)
FORM = Form(
    "input",
    FIXED,
    ("max_output_tokens", "reasoning"),
    long=("tools", "text"),
    elements=list[msgspec.Raw] | str | None,
)
RENDERED = frozenset({
    "instructions", "tools", "tool_choice", "parallel_tool_calls", "text", "reasoning", "truncation", "prompt",
    "include", "context_management", "max_tool_calls", "chat_template", "chat_template_kwargs",
})  # fmt: skip
"""Members that are part of the prompt, or of hidden instructions in it, or change which items are."""
CACHED = frozenset({
    "model", "service_tier", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "prompt_cache_options", "store", "client_metadata", "cache_salt", "cache_prompt", "id_slot", "metadata",
})  # fmt: skip
"""Members that name the model, the account and the prompt cache, or say what the upstream may store."""
OF_SESSION = frozenset({
    "instructions", "include", "service_tier", "user", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "store", "client_metadata", "cache_salt", "metadata",
})  # fmt: skip
"""Members by which an upstream knows the account and the session, whatever is asked. ChatGPT's own backend accepts a
login only with `instructions` and without `store`."""
_HELD = ("previous_response_id", "conversation")


def read_tools_and_format(tools: Any, tool_choice: Any, text: Any) -> ToolsAndFormat:
    """What the members outside the transcript cost, except the instructions; None for a missing one."""
    listed = [one for tool in as_list(tools) for one in _flatten(tool)]
    # Without the members that only say how it is written here; clients of chat completions may nest it.
    functions = [
        tool["function"]
        if isinstance(tool.get("function"), dict)
        else {name: value for name, value in tool.items() if name not in _NOT_READ}
        for tool in listed
        if _is_function(tool)
    ]
    return ToolsAndFormat(
        functions=functions,
        functions_json=write_compact([{"type": "function", "function": function} for function in functions]),
        others=[write_compact(tool) for tool in listed if not _is_function(tool)],
        choice=read_choice(tool_choice),
        format_texts=tuple(read_format(as_schema(as_schema(text).get("format")))),
    )


def _flatten(tool: Any) -> Iterator[Any]:
    """The tools to read: of a namespace, itself and then its tools; of a deferred one, name and description only."""
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
    write = make_writer(after.messages)
    items = [write([(message, None)]) for message in after.messages]
    content = bytes(decode_members(items[0]).get("content", b"")) if len(items) == 1 else b""
    written = content if content[:1] == b'"' else b"[" + b",".join(items) + b"]"
    return (request.body[: span.start], written, request.body[span.stop :]), span


def make_writer(messages: Sequence[Message]) -> WriteElement:
    """Writes messages as items. The types of all calls are looked up once, and only if a result must be made."""
    find_types = cache(partial(find_call_types, messages))
    return lambda placed: encode_message(placed[0][0], {} if placed[0][0].raw else find_types())


RULE = "local_items"  # Name of the rule in decisions

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
    max_first_event_bytes = MAX_EVENT_BYTES  # `response.created` repeats the tools and the instructions
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
    def describe(members: Any) -> tuple[Any, bool, bool]:
        # A stream always ends with the usage.
        return members.max_output_tokens, isinstance(members.reasoning, dict), members.stream is True

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
        """Whether all are counted or cost nothing; null or off has no effect. A server that truncates may read less."""
        used = {name for name, value in members.items() if bytes(value) not in (b"null", b'"disabled"')}
        return used <= _COUNTED | _WITHOUT_TOKENS

    def list_tools(self, request: Request, /) -> tuple[ToolList, ...]:
        tools, tool_choice, _ = request.fixed[COUNTED_FIXED]
        return (ToolList(b'"tools"', tools, tool_choice, (b'"tool_choice"', b'"parallel_tool_calls"')),)

    def clean(self, request: Request, unsent: Unsent, /) -> tuple[bytes, tuple[Decision, ...]]:
        """The body without the client's own items, if understood. The decision counts items, which cost nothing."""
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
            place = find_transcript(request.kept_body) or find_member(body, self.form.key)
            return (body,), place or Span(len(body), len(body))
        return encode_text(request, after) or super().encode_transcript(request, before, after)

    def make_writer(self, _: Request, messages: Sequence[Message]) -> WriteElement:
        return make_writer(messages)

    def keep_nothing(self, question: Question) -> dict[str, Any]:
        return {} if STORE in question.refused else {STORE: False}


RESPONSES = ResponsesCodec()
