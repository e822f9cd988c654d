"""Writes the elements of a changed transcript.

Law: in a user element, results come before everything else, because Anthropic's API requires it. A block that no rule
touched keeps its bytes. An assistant's own element is never altered.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec
import orjson

from proxy.wire.content.cache_markers import find_markers, mark
from proxy.wire.content.write import write_content
from proxy.wire.json.members import read_members
from proxy.wire.messages.blocks import RESULT, read_content_bytes
from proxy.wire.transcript.elements import Placed
from rules.conversation import Message, Role

_USER_SIDE = frozenset({Role.USER, Role.TOOL})


def shares_element(left: Message, right: Message) -> bool:
    """Whether neighbouring messages must be in one element: what a user says, and all results of one step."""
    return left.role in _USER_SIDE and right.role in _USER_SIDE


def write_element(raws: Sequence[bytes], placed: Sequence[Placed]) -> bytes:
    """The JSON of the element for these messages. `raws` are the client's own elements.

    The messages are one message of an assistant or a system, or some of the user's side.
    """
    first = placed[0][0]
    base = next((raws[origin.start] for _, origin in placed if origin is not None), None)
    if base is not None and (first.role not in _USER_SIDE or (first.raw == base and not _differs(first, placed))):
        return base
    members = {"role": msgspec.Raw(orjson.dumps(first.role_name))} if base is None else read_members(base)
    if len(placed) == 1 and first.role is not Role.TOOL:
        members["content"] = msgspec.Raw(_write_content(first))
    else:
        if base is None:
            members["role"] = msgspec.Raw(b'"user"')
        messages = sorted((message for message, _ in placed), key=lambda message: message.role is not Role.TOOL)
        blocks = (block for message in messages for block in _write_blocks(message))
        members["content"] = msgspec.Raw(b"[" + b",".join(blocks) + b"]")
    return msgspec.json.encode(members)


def _differs(message: Message, placed: Sequence[Placed]) -> bool:
    """Whether an element's only message is written in another way than the client did, or is not the only one."""
    return len(placed) > 1 or message.edited or bool(message.taken_in)


def _write_content(message: Message) -> bytes:
    """The content of a message: a string or an array of blocks."""
    if message.raw and not message.edited and not message.taken_in:
        return read_content_bytes(message.raw)
    return write_content(message, read_members(message.raw).get("content") if message.raw else None)


def _write_blocks(message: Message) -> Iterator[bytes]:
    """The blocks of a message of the user's side, some of them in one piece."""
    if message.role is Role.TOOL:
        yield _write_result(message)
        return
    content = _write_content(message)
    inside = content[1:-1].strip() if content[:1] == b"[" else b'{"type":"text","text":%b}' % content
    if inside and content != b"null":
        yield inside


def _write_result(message: Message) -> bytes:
    """The block of a result. A cache marker in `taken_in` is put on the block itself."""
    block = message.raw
    if not block:
        block = orjson.dumps({"type": RESULT, "tool_use_id": message.answers, "content": "\n\n".join(message.texts)})
    elif message.edited:
        members = read_members(block)
        content = write_content(replace(message, taken_in=()), members.get("content"))
        block = msgspec.json.encode({**members, "content": msgspec.Raw(content)})
    for taken in message.taken_in:
        block = mark(block, find_markers(taken))
    return block
