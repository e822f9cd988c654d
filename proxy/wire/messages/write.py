"""Writes the elements of a changed transcript.

Law: in a user element, results come before everything else, because Anthropic's API requires it. A block that no rule
touched keeps its bytes, and every block its cache marker. Of an assistant's own element only texts change: thinking,
signatures and calls keep their bytes and their order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec
import orjson

from trimtab.proxy.wire.content.cache_help import find_markers, mark
from trimtab.proxy.wire.content.parts import read_text, rename, replace_texts, write_answered, write_content
from trimtab.proxy.wire.json.decode import decode_items, read_members
from trimtab.proxy.wire.messages.blocks import RESULT, read_content, split_parts
from trimtab.proxy.wire.transcript.elements import Placed
from trimtab.rules.conversation import Message, Origin, Role

USER_SIDE = frozenset({Role.USER, Role.TOOL})


def shares_element(left: Message, right: Message) -> bool:
    """Whether neighbouring messages must be in one element: what a user says, and all results of one step."""
    return left.speaker in USER_SIDE and right.speaker in USER_SIDE


def write_element(raws: Sequence[bytes], placed: Sequence[Placed]) -> bytes:
    """The JSON of the element for these messages. `raws` are the client's own elements.

    The messages are one message of an assistant or a system, or some of the user's side.
    """
    # Strategy: the client's own element is the base, and keeps its other members. An assistant's or a system's is
    # changed text by text. On the user's side, the blocks are set together again, each from its own bytes: results
    # first, in their order, because Anthropic's API refuses a text before them. Source: its page on tool use.
    is_written = placed[0][0].is_written and placed[0][0].edited
    placed = [(message.as_said(), origin) for message, origin in placed]
    first = placed[0][0]
    base = next((raws[origin.start] for _, origin in placed if origin is not None), None)
    if base is not None and first.role not in USER_SIDE and not is_written:
        return _write_own(base, first) if first.edited else base
    if base is not None and _is_whole(base, placed):
        return base
    if base is None:
        members = {"role": msgspec.Raw(b'"user"' if first.role is Role.TOOL else orjson.dumps(first.role_name))}
    else:
        members = read_members(base)
    if len(placed) == 1 and first.role is not Role.TOOL:
        members["content"] = msgspec.Raw(_write_said(first, _find_own(raws, placed[0][1])))
    else:
        in_order = sorted(placed, key=lambda one: one[0].role is not Role.TOOL)
        blocks = (block for message, origin in in_order for block in _write_blocks(message, _find_own(raws, origin)))
        members["content"] = msgspec.Raw(b"[" + b",".join(blocks) + b"]")
    return msgspec.json.encode(members)


def _write_own(base: bytes, message: Message) -> bytes:
    """The element of an assistant whose texts were shortened, or of a system that took in the texts of others, too."""
    members = read_members(base)
    own = bytes(members["content"])
    if message.role is Role.ASSISTANT:
        content = replace_texts(own, iter(message.texts), {"text"})  # as they were read
    else:
        content = write_content(message, members["content"])
    if content == own:
        return base
    return msgspec.json.encode({**members, "content": msgspec.Raw(content)})


def _is_whole(base: bytes, placed: Sequence[Placed]) -> bool:
    message = placed[0][0]
    is_touched = message.edited or message.taken_in
    return len(placed) == 1 and not is_touched and message.role is Role.USER and b'"tool_result"' not in base


def _find_own(raws: Sequence[bytes], origin: Origin | None) -> bytes:
    """A message in the client's own bytes: the block of a result, or the content of another message.

    Empty for a message that a rule made. Raises one of DECODE_ERRORS.
    """
    if origin is None:
        return b""
    raw = raws[origin.start]
    parts = split_parts(raw, read_members(raw).get("content", msgspec.Raw(b"null")))
    if not parts:
        return read_content(raw)
    part = parts[origin.part]
    return part.blocks[0].raw if part.is_result else part.content


def _write_said(message: Message, own: bytes) -> bytes:
    if own and not message.edited and not message.taken_in:
        return own
    return write_content(_mark_media(message, own), _mend(own) if own else None)


def _mend(content: bytes) -> msgspec.Raw:
    return read_members(b'{"content":%b}' % content)["content"]


def _mark_media(message: Message, own: bytes) -> Message:
    """The message with the cache markers of its own media, which are its first ones."""
    items = decode_items(_mend(own)) if own[:1] == b"[" and message.media else []
    others = [item for item in map(bytes, items) if read_text(item) is None]
    media = [replace(part, raw=item) for part, item in zip(message.media, others, strict=False)]
    return replace(message, media=(*media, *message.media[len(media) :]))


def _write_blocks(message: Message, own: bytes) -> Iterator[bytes]:
    """The blocks of a message of the user's side, some of them in one piece."""
    if message.role is Role.TOOL:
        yield _write_result(message, own)
        return
    content = _write_said(message, own)
    inside = content[1:-1].strip() if content[:1] == b"[" else b'{"type":"text","text":%b}' % content
    if inside and content not in (b"null", b'""'):  # the API refuses an empty text among other blocks
        yield inside


def _write_result(message: Message, own: bytes) -> bytes:
    """The block of a result. A cache marker in `taken_in` is put on the block itself."""
    block = own
    if not own:
        call_id = orjson.Fragment(bytes(write_answered(message)))
        made = {"type": RESULT, "tool_use_id": call_id, "content": "\n\n".join(message.texts)}
        block = orjson.dumps({**made, "is_error": True})  # a rule makes a result only for a call without one
    elif message.edited:
        members = read_members(own)
        content = members.get("content", msgspec.Raw(b"null"))
        marked = _mark_media(replace(message, taken_in=()), bytes(content))
        rename(message, members, "tool_use_id")
        block = msgspec.json.encode({**members, "content": msgspec.Raw(write_content(marked, content))})
    for taken in message.taken_in:
        block = mark(block, find_markers(taken))
    return block
