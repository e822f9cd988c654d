"""Gives a request the tool of recall, and its transcript what the tool has found.

Law: the declaration is the first of the client's tools, always with the same bytes. A request that forces a call does
not get it, nor one for several answers or for one that is fetched later, nor one without tools unless that is wanted.
All other bytes stay. A server whose chat template leaves out tools does not get it; its prompt is the same with it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from trimtab.proxy.wire.answers.recall import NAME
from trimtab.proxy.wire.codec import Codec, Counting, Request
from trimtab.proxy.wire.json import DECODE_ERRORS, Span, find_member, splice
from trimtab.proxy.wire.transcript.body import (
    PrefixMatch,
    UndecodableError,
    find_elements,
    find_transcript,
    read_outside,
)
from trimtab.rules.conversation import CountTokens, Decision, Role, count_leading
from trimtab.rules.pipeline.appended import RECALL, Pin
from trimtab.rules.pipeline.plan import Plan

RECALL_TOOL = "recall_tool"
"""Name of the decision."""
_NAME = f'"{NAME}"'.encode()


def name_outcome(decisions: Iterable[Decision]) -> str:
    """What was done to a request, by the decisions about it: RECALL if all of them only add what is fetched back."""
    rules = {decision.rule for decision in decisions}
    return "unchanged" if not rules else RECALL if rules <= {RECALL, RECALL_TOOL} else "compacted"


class Place(NamedTuple):
    """Where a text stands: the hash of what the model had answered, and the client's last call beside ours.

    The id of a call alone repeats in other sessions, with some models in each turn.
    """

    before: bytes
    call_id: str


def declare(
    request: Request,
    counting: Counting,
    find_match: Callable[[str, bytes], PrefixMatch | None],
    *,
    without_tools: bool = False,
) -> Request:
    """The request with the tool; itself if it must not have it. Raises UndecodableError.

    without_tools: also if it has no other tools.
    """
    if counting.costs.drops_tools:
        return request
    codec = request.codec
    body = _splice_tool(request, without_tools=without_tools)
    if body is request.body:
        return request
    left = codec.read(body, find_match(codec.name, body))
    tokens = codec.count_outside(left, counting).tools_tokens - codec.count_outside(request, counting).tools_tokens
    return request.reduce_to(left, (Decision(RECALL_TOOL, "the tool to search what was cut", 0, tokens, 0, 0),))


def _splice_tool(request: Request, *, without_tools: bool) -> bytes:
    codec, body = request.codec, request.body
    tools = next(iter(codec.list_tools(request)), None)
    if not codec.recall_tool or tools is None or _NAME in tools.raw:
        return body
    transcript = find_transcript(request.kept_body)
    try:
        request.find_array()  # the answers to calls must find their place
        is_forced = bool(tools.choice) and codec.forces_call("tool_choice", msgspec.Raw(tools.choice))
        if is_forced or not _gets_one_answer(request):
            return body
        place = find_member(body, tools.key, *([] if transcript is None else [transcript]))
    except (*DECODE_ERRORS, UndecodableError):
        return body
    if place is None:
        start = body.index(b"{") + 1
        added = tools.key + b":[" + codec.recall_tool + b"],"
        return splice(body, [(Span(start, start), added)]) if without_tools and not tools.raw else body
    is_empty = tools.raw[1:].lstrip()[:1] in {b"]", b""}
    if tools.raw[:1] != b"[" or body[place.start : place.stop] != tools.raw or (is_empty and not without_tools):
        return body
    start = place.start + 1
    return splice(body, [(Span(start, start), codec.recall_tool + (b"" if is_empty else b","))])


def _gets_one_answer(request: Request) -> bool:
    lone = request.codec.one_answer
    members = read_outside(request.body, request.kept_body) if lone else {}
    return all(bytes(members[key]) in values for key, values in lone.items() if key in members)


def append(codec: Codec, body: bytes, elements: Sequence[bytes]) -> bytes:
    request = codec.read(body)
    end = find_elements(codec.form, body, request.raws).stop - 1
    comma = b"," if request.raws else b""
    return splice(body, [(Span(end, end), comma + b",".join(elements))])


def find_head(plan: Plan) -> bytes:
    """The hash of how a session begins: up to its first message that is not the system's."""
    messages = plan.conversation.messages
    return plan.hashes[min(count_leading(messages) + 1, len(messages))]


def find_answers(plan: Plan, find: Callable[[Place], str | None]) -> list[tuple[int, str]]:
    """What was found, each with the message behind which it stands; the newest first. find: None for nothing."""
    found: list[tuple[int, str]] = []
    asked = len(plan.conversation.messages)
    for at in range(asked - 1, -1, -1):
        message = plan.conversation.messages[at]
        if message.role is not Role.TOOL or not message.answers or not message.texts:
            continue
        asked = min(asked, at)
        while asked and plan.conversation.messages[asked].role is not Role.ASSISTANT:
            asked -= 1
        line = find(Place(plan.hashes[asked], message.answers))
        if line is not None:
            found.append((at, line))
    return found


def add_answers(plan: Plan, found: Sequence[tuple[int, str]], count: CountTokens) -> Plan:
    """The plan with what `find_answers` has found. Of more than fits, the newest."""
    pins: list[Pin] = []
    left_tokens = plan.fitting - plan.reserved_tokens
    for at, line in found:
        if (tokens := count(f"\n{line}")) <= left_tokens:
            left_tokens -= tokens
            pins.insert(0, Pin(at, line, tokens))
    return replace(plan, recalled=(*plan.recalled, *pins), is_empty=False) if pins else plan
