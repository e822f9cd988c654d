"""The dialect of Anthropic's Messages API: POST /v1/messages, and POST /v1/messages/count_tokens.

Law: `system` is a message of the conversation. If a rule has shortened its texts, only these change in it. Of a request
that continues a conversation, a question copies each member unchanged that the upstream renders into the prompt, or by
which it finds its prompt cache. Members that only say how to respond are left out.

Source: Anthropic's API reference, and its pages on what invalidates the prompt cache, on preserved thinking and on
prefix checks.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import structs

from trimtab.proxy.wire.codec import Codec, Counting, Request, leave_out_thinking
from trimtab.proxy.wire.json import (
    DECODE_ERRORS,
    Span,
    decode_items,
    decode_member,
    find_member,
    match_array,
    read_members,
    splice,
)
from trimtab.proxy.wire.messages import answer, blocks, message, recall
from trimtab.proxy.wire.messages.blocks import split_blocks
from trimtab.proxy.wire.messages.message import THINKING, USER_SIDE, decode_system, shares_element, write_element
from trimtab.proxy.wire.routing import binds_thinking
from trimtab.proxy.wire.tools import ToolList
from trimtab.proxy.wire.transcript.body import (
    Adapted,
    Edit,
    Form,
    Unsent,
    find_edit,
    find_transcript,
    replace_outside,
)
from trimtab.proxy.wire.transcript.decoding import discount_compacted
from trimtab.proxy.wire.transcript.elements import WriteElement, take_off_outside, write_outside
from trimtab.rules.conversation import Conversation, Decision, Message, Shape
from trimtab.rules.tokens.messages import as_schema

FIXED = ("system", "tools", "tool_choice", "output_config", "output_format", "thread")
COUNTED_FIXED = slice(1, -1)  # `FIXED` without `system`, which may change with each request, and `thread`
FORM = Form("messages", FIXED, ("max_tokens", "thinking"), long=("system", "tools"))
_THINKS = frozenset({"enabled", "adaptive"})
SHAPE = Shape(has_system_messages=False, joins_systems=True, seals_reasoning=True)
SHAPE_WITH_THINKING = structs.replace(SHAPE, alternates=False)
"""With thinking, the last message of an assistant must begin with thinking, which nobody can write for the model. So no
line of an assistant is inserted. Anthropic's API joins user messages that follow each other. Source: its pages on
extended thinking and on the Messages API. Between the other messages, it accepts no two system messages in a row, and
after one only an answer or the end. Source: its page on mid-conversation system messages."""
COUNTED = frozenset({"messages", "system", "tools", "tool_choice", "output_config", "output_format"})
WITHOUT_TOKENS = frozenset({
    "model", "stream", "max_tokens", "temperature", "top_p", "top_k", "stop_sequences", "metadata", "service_tier",
    "cache_control", "thinking", "speed", "inference_geo", "diagnostics", "billing_policy", "user_profile_id",
    "fallbacks", "fallback_credit_token", "anthropic_version", "anthropic_beta", "betas",
})  # fmt: skip
"""Members that no server puts into the prompt. Source: Anthropic's and Bedrock's API references. Any other member may
be part of the prompt or change it: `mcp_servers`, `container`, `context_management`, and future ones."""
TAKEN_OVER = frozenset({
    "model", "system", "tools", "tool_choice", "thinking", "output_config", "mcp_servers", "container",
    "context_management", "cache_control", "metadata", "service_tier", "speed", "inference_geo",
    "anthropic_version", "anthropic_beta", "user_profile_id", "billing_policy",
})  # fmt: skip
"""Members that are part of the prompt or of hidden instructions in it, or name the account and the cache."""
OF_SESSION = frozenset({
    "system", "metadata", "service_tier", "speed", "inference_geo", "anthropic_version", "anthropic_beta",
    "user_profile_id", "billing_policy",
})  # fmt: skip
"""Members by which an upstream knows the account and the session, whatever is asked. Anthropic accepts the login of
Claude Code only with its system prompt."""

_MARK = b"system:"  # Begins the key of a decoded system message, so that it is not taken for an element


# Claude Code begins its system prompt with a line `x-anthropic-billing-header: cc_version=...; cch=...;`. Both values
# change with each request, and the model does not need them. Anthropic's own servers know the line. On other servers,
# the prompt cache finds nothing because of it, and Amazon Bedrock refuses it. So the whole line is removed, and a block
# that holds nothing else with it. Only texts of `system` that begin with that line change. Source:
# anthropics/claude-code#68900; the fixes of sgl-project/sglang#29169, EasyMetaAu/helm-api#208 and
# MadAppGang/claudish#167 remove the line as well.
_HEADER = rb"x-anthropic-billing-header:"
_LINE = re.compile(rb'"' + _HEADER + rb'(?>(?: {0,9}[\w.-]{1,64}=[^"\\;\s]{0,256};){1,32}) {0,9}(?:\\r)?(?:\\n)?')
"""The beginning of a JSON string: the header, its fields, and the end of the line if nothing else is on it."""
_BLANK = re.compile(rb'(?: |\\[rnt]|){0,2000}+"')  # The end of a JSON string that goes on with only white space


def _drop_lines(value: bytes) -> bytes:
    """`system` without the line of its text, or of each of its first blocks. Raises one of DECODE_ERRORS."""
    if value[:1] != b"[":
        return _LINE.sub(b'"', value, count=1) if _LINE.match(value) else value
    blocks = list(map(bytes, decode_items(value)))
    array = match_array(value, 0, blocks)
    spans = [] if array is None else array.elements
    edits, gone = list[tuple[Span, bytes]](), list[int]()
    for at, (block, span) in enumerate(zip(blocks, spans, strict=False)):
        text = find_member(block, b'"text"') if block[:1] == b"{" else None
        line = None if text is None else _LINE.match(block, text.start)
        if line is None:
            break  # a later block may quote the line
        if _BLANK.match(block, line.end()):
            gone.append(at)
        else:
            edits.append((Span(span.start + line.start() + 1, span.start + line.end()), b""))
    last = max((at for at in range(len(spans)) if at not in gone), default=-1)
    for at in gone:  # with the comma behind it; with that before it if no block stays behind it
        start = spans[at].start if at < last or at == 0 else spans[at - 1].stop
        edits.append((Span(start, spans[at + 1].start if at < last else spans[at].stop), b""))
    return splice(value, edits)


# Newer models bind each block of thinking to everything before it. After a cut, the thinking behind the cut no longer
# fits what is before it, and the API refuses the request. With a setting it drops such blocks instead. A request that
# turns thinking off cannot have the setting. So the blocks are left out, all of them, as the API demands. Law of that:
# only a request of a session in which something before an answer was changed is touched, and of it only the member
# `thinking` and one header, or the blocks of thinking. What was asked for once is asked for in all later requests of
# the session. A setting of the client stays, and the API's refusal of it is the client's.
HEADER, BETA = "anthropic-beta", "thinking-binding-controls-2026-08-01"
_THINKING = b'"thinking"'
_BINDING = b'"block_binding":{"prefix_mismatch_behavior":"drop_block"}'
_SETTING = b'{"type":"adaptive",' + _BINDING + b"}"
"""The setting for a request without the member: such models think even if a request does not say so."""
_TAKES_SETTING = ("adaptive", "enabled", None)
_SILENT = b'[{"type":"text","text":"(no answer)"}]'
"""What stands for an answer that was only thinking: the API refuses a message without content."""


def is_bound(request: Request, transcript: Conversation) -> bool:
    """Whether a request's model binds its thinking to what is before it, there is any, and its upstream may be told."""
    return (
        request.takes_binding
        and binds_thinking(request.model)
        and any(message.has_reasoning for message in transcript.messages)
    )


def is_off(value: bytes) -> bool:
    return _read_setting(value).get("type") == "disabled"


def allow_drops(value: bytes) -> bytes | None:
    """A value of `thinking`, which may be missing, with the setting; None if it cannot have it, or has one."""
    if not value:
        return _SETTING
    setting = _read_setting(value)
    if value[:1] != b"{" or "block_binding" in setting or setting.get("type") not in _TAKES_SETTING:
        return None
    rest = value[1:].lstrip()
    return b"{" + _BINDING + (b"" if rest[:1] == b"}" else b",") + rest


def _read_setting(value: bytes) -> dict[str, Any]:
    try:
        return as_schema(decode_member(msgspec.Raw(value or b"null")))
    except DECODE_ERRORS:
        return {}


def drop_thinking(raw: bytes) -> bytes:
    if b"thinking" not in raw:
        return raw
    members = read_members(raw)
    content = members.get("content", msgspec.Raw(b"null"))
    if bytes(members.get("role", b"")) != b'"assistant"' or bytes(content)[:1] != b"[":
        return raw
    blocks = split_blocks(raw, content)
    kept = [block.raw for block in blocks if block.kind not in THINKING]
    if len(kept) == len(blocks):
        return raw
    left = b"[" + b",".join(kept) + b"]" if kept else _SILENT
    return msgspec.json.encode({**members, "content": msgspec.Raw(left)})


def bind_question(request: Request, prefix: Conversation, members: dict[str, msgspec.Raw]) -> Sequence[bytes]:
    """The elements to ask behind. Thinking in them that no longer fits may be dropped: `members` then say so.

    Raises one of DECODE_ERRORS.
    """
    if not request.breaks_past or not is_bound(request, prefix):
        return request.raws
    setting = bytes(members.get("thinking", b""))
    if is_off(setting):
        return [drop_thinking(raw) for raw in request.raws]
    if (allowed := allow_drops(setting)) is not None:
        members["thinking"] = msgspec.Raw(allowed)
    return request.raws


class MessagesCodec(Codec):
    name = "messages"
    transcript = "messages"
    outside = "system"

    def __init__(self, ending: str = "", *, is_count: bool = False) -> None:
        self.ending = f"/messages{ending}"
        self.path = f"/v1{self.ending}"
        self.is_count = is_count

    form = FORM
    fixed = attrgetter(*FIXED)
    counted_fixed = COUNTED_FIXED
    shares = staticmethod(shares_element)
    decode_unit = staticmethod(message.decode_element)
    read_tools_and_format = staticmethod(message.read_tools_and_format)
    recall_tool = recall.TOOL
    sifter = recall.MessagesSifter
    help_cache = staticmethod(blocks.help_cache)

    read_answer = staticmethod(answer.read_answer)
    is_end = staticmethod(answer.is_end)
    is_part_of_answer = staticmethod(answer.is_part_of_answer)
    is_greeting = staticmethod(answer.is_greeting)
    is_ping = staticmethod(answer.is_ping)
    read_empty_answer = staticmethod(answer.read_empty_answer)
    error_type = "api_error"
    describe_error = staticmethod(answer.describe_error)
    write_error_body = staticmethod(answer.write_error_body)
    write_failure = staticmethod(answer.write_failure)
    write_answer = staticmethod(answer.write_answer)
    join = staticmethod(answer.join)

    limits = ("max_tokens",)
    refusable_limits = ()  # the limit is required
    taken_over = TAKEN_OVER
    of_session = OF_SESSION
    choices = frozenset({"tool_choice"})
    provider_note = answer.NOTE

    @staticmethod
    def describe(members: Any) -> tuple[Any, bool, bool]:
        thinking = as_schema(members.thinking).get("type")
        return members.max_tokens, isinstance(thinking, str) and thinking in _THINKS, True

    @staticmethod
    def list_outside(request: Request) -> list[bytes]:
        system = request.fixed[0]
        return [_MARK + system] if system not in (b"", b'""', b"[]") else []

    @staticmethod
    def decode_outside(counting: Counting, marked: bytes) -> tuple[Message, ...]:
        return decode_system(counting, marked[len(_MARK) :])

    @staticmethod
    def write_outside(after: Conversation) -> bytes | None:
        return write_outside(after, lambda raw: bytes(read_members(b'{"content":%b}' % raw)["content"]))

    @staticmethod
    def look_at(request: Request, messages: tuple[Message, ...]) -> tuple[tuple[Message, ...], Shape, bool]:
        """Anthropic's API ignores what is before its compaction. Source: its page on compaction."""
        shape, thread = SHAPE_WITH_THINKING if request.is_reasoning else SHAPE, request.fixed[-1]
        continues = b"continue" in thread and as_schema(decode_member(msgspec.Raw(thread))).get("type") == "continue"
        return discount_compacted(messages), shape, continues

    @staticmethod
    def knows_members(members: Mapping[str, msgspec.Raw]) -> bool:
        unknown = members.keys() - COUNTED - WITHOUT_TOKENS
        if unknown != {"context_management"}:
            return not unknown
        # A server may edit only thinking: messages with thinking are not used to calibrate anyway.
        edits = as_schema(decode_member(members["context_management"])).get("edits")
        kinds = [as_schema(edit).get("type") for edit in edits] if isinstance(edits, list) else [None]
        return all(isinstance(kind, str) and kind.startswith("clear_thinking_") for kind in kinds)

    @staticmethod
    def list_tools(request: Request) -> tuple[ToolList, ...]:
        return (ToolList(b'"tools"', request.fixed[1], request.fixed[2], (b'"tool_choice"',)),)

    @staticmethod
    def clean(request: Request, unsent: Unsent) -> tuple[bytes, tuple[Decision, ...]]:
        """The body without the lines that change with each request; itself if it has none, or if they must be sent."""
        system = request.fixed[0]
        if not unsent.nonces or _HEADER not in system:
            return request.body, ()
        try:
            known = find_transcript(request.kept_body)
            place = find_member(request.body, b'"system"', *([] if known is None else [known]))
            rest = request.body
            if place is not None:
                rest = splice(rest, [(place, _drop_lines(rest[place.start : place.stop]))])
        except DECODE_ERRORS:
            return request.body, ()
        if not (removed := len(request.body) - len(rest)):
            return request.body, ()
        return rest, (Decision("nonce", f"{removed} bytes of system that change with each request", 0, 0, 1, 0),)

    def adapt(
        self, request: Request, before: Conversation, after: Conversation, pieces: tuple[bytes, ...], /
    ) -> Adapted:
        """The body with the setting, if its model binds the thinking in `before`. Raises UndecodableError."""
        if not is_bound(request, before):
            return Adapted(pieces)
        array = request.find_array()
        within = Span(array.start, array.stop)
        place = find_member(request.body, _THINKING, within)
        value = b"" if place is None else request.body[place.start : place.stop]
        if is_off(value):
            return leave_out_thinking(request, pieces, drop_thinking)
        if (allowed := allow_drops(value)) is None:
            return Adapted(pieces)
        if place is None:
            at = pieces[-1].rindex(b"}")
            written = (*pieces[:-1], b'%b,"thinking":%b%b' % (pieces[-1][:at], allowed, pieces[-1][at:]))
        else:
            system = self.write_outside(after)
            done = None if system is None else find_edit(request.body, b'"system"', within, system)
            written = replace_outside(request.body, array.start, pieces, Edit(place, allowed), done)
        decision = Decision("thinking", "the server may drop thinking that no longer fits", 0, 0, 0, 0)
        return Adapted(written, ((HEADER, BETA),), (decision,))

    @staticmethod
    def prescribes_form(members: dict[str, msgspec.Raw]) -> bool:
        output, form, compaction = (
            decode_member(members.get(name)) for name in ("output_config", "output_format", "compaction")
        )
        return as_schema(output).get("format") is not None or form is not None or compaction is not None

    @staticmethod
    def read_thinking(members: dict[str, msgspec.Raw]) -> int | None:
        thinking = as_schema(decode_member(members.get("thinking")))
        budget = thinking.get("budget_tokens")
        if thinking.get("type") not in _THINKS:
            return None
        return budget if type(budget) is int and budget > 0 else 0

    @staticmethod
    def encode_message(said: Message) -> bytes:
        return write_element((), ((said, None),))

    def encode_transcript(
        self, request: Request, before: Conversation, after: Conversation
    ) -> tuple[tuple[bytes, ...], Span]:
        return super().encode_transcript(request, before, blocks.place_marker(request, after))

    def make_writer(self, request: Request, _: Sequence[Message]) -> WriteElement:
        return partial(write_element, request.raws)

    def write_behind(
        self,
        request: Request,
        prefix: Conversation,
        asked: tuple[Message, ...],
        members: dict[str, msgspec.Raw],
        **_: bool,
    ) -> Iterable[bytes]:
        marked = blocks.place_marker(request, take_off_outside(prefix))
        if marked.messages and marked.messages[-1].speaker in USER_SIDE:
            marked = blocks.mark_end(blocks.find_markers(request), marked, len(marked.messages) - 1)
        bound = replace(request, raws=tuple(bind_question(request, prefix, members)))
        return super().write_behind(bound, marked, asked, members, is_apart=True)


MESSAGES = MessagesCodec()
COUNT_TOKENS = MessagesCodec("/count_tokens", is_count=True)
