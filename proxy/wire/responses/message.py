"""Decodes the units of a transcript to messages, and encodes messages as items.

Law: a message that no rule touched keeps its bytes. In an edited message, the members other than its content or output
keep theirs. Of what the model said only the texts of its messages and long arguments of its calls change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import orjson

from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.content import (
    count_json,
    read_content,
    read_media,
    replace_texts,
    write_canonical,
    write_content,
)
from trimtab.proxy.wire.json import decode_items, decode_members, decode_or_none, mend, read_members
from trimtab.proxy.wire.responses.results import (
    LOCAL_TYPES,
    Said,
    lacks_count,
    read_answered_id,
    read_call_id,
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
from trimtab.rules.conversation import Media, Message, Role
from trimtab.rules.prefix import digest_message
from trimtab.rules.tokens.messages import as_counted, count_message

_ROLES = {"system": Role.SYSTEM, "developer": Role.SYSTEM, "user": Role.USER}
_CONTROLS = frozenset({"additional_tools", "configuration_update"})
"""Types of items that hold for all that comes after them, as system messages do."""
_TEXT_TYPES = {Role.ASSISTANT: "output_text"}

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
        counted = replace(message, tool_calls=tuple(map(as_counted, message.tool_calls)))
        tokens += count_message(counted, counting.count, counting.costs, said.extra_texts)
    return replace(message, tokens=tokens, digest=digest_message(message, said.canonical))


def _decode_result(raw: bytes, item_type: str, members: dict[str, msgspec.Raw], counting: Counting) -> Message:
    output = read_output(item_type, members, counting.count, counting.costs)
    name = decode_or_none(members.get("name"))
    message = Message(
        Role.TOOL,
        output.texts,
        answers=read_answered_id(item_type, members),
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
    """The JSON of the items of a message: their own bytes, with new content if a rule edited it.

    call_types: the type of each call by its id. A result that a rule made has the form that fits its call.
    """
    if not message.edited:
        return message.raw
    if message.raw and message.role is Role.ASSISTANT:
        return _write_said(message)
    message = message.as_said()
    if not message.raw and message.role is Role.TOOL:
        return write_missing_result(message, call_types.get(message.answers or "", "function_call"))
    if message.role is Role.TOOL:
        members = read_members(message.raw)
        return msgspec.json.encode(write_result(message, members, str(decode_or_none(members.get("type")))))
    text_type = _TEXT_TYPES.get(message.role, "input_text")
    members = read_members(message.raw) if message.raw else _begin_members(message)
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


def _begin_members(message: Message) -> dict[str, msgspec.Raw]:
    """The members of a message that a rule made. Its content has parts, because some servers read only those."""
    role = msgspec.Raw(orjson.dumps(message.role_name))
    return {"type": msgspec.Raw(b'"message"'), "role": role, "content": msgspec.Raw(b"[]")}


def find_call_types(messages: Sequence[Message]) -> dict[str, str]:
    found: dict[str, str] = {}
    for message in messages:
        for _, members in _read_items(message.raw) if message.tool_calls and message.raw else ():
            item_type = read_type(decode_or_none(members.get("type")))
            if item_type in RESULT_TYPES:
                found[read_call_id(item_type, members)] = item_type
    return found
