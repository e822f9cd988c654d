"""Splits an element of `messages` into its blocks, and takes cache markers off.

Law: no block is lost, and each has the client's own bytes. An element without its markers has the bytes that it has in
the client's next request, where the markers have moved on.
"""

import re
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from trimtab.proxy.wire.content.parts import begins
from trimtab.proxy.wire.json.decode import (
    DECODE_ERRORS,
    decode_items,
    decode_member,
    decode_members,
    mend,
    read_members,
)

RESULT, CALL = "tool_result", "tool_use"
MARKER = "cache_control"
KEY = b'"cache_control"'
_MEMBER = re.compile(rb',[ \t\r\n]{0,64}+"cache_control"[ \t\r\n]{0,64}+:[ \t\r\n]{0,64}+\{[^{}]{0,256}\}')


class Block(NamedTuple):
    """A block of content: the client's own bytes, its members and its type.

    clean: the bytes, repaired if need be. The members have the bytes of `clean`.
    """

    raw: bytes
    clean: bytes
    members: dict[str, msgspec.Raw]
    kind: str


class Part(NamedTuple):
    """The blocks of a user element that are one message: a result, or a run of other blocks."""

    is_result: bool
    blocks: Sequence[Block]

    @property
    def content(self) -> bytes:
        return b"[" + b",".join([block.raw for block in self.blocks]) + b"]"

    @property
    def clean_content(self) -> msgspec.Raw:
        return msgspec.Raw(b"[" + b",".join([block.clean for block in self.blocks]) + b"]")


def split_blocks(raw: bytes, content: msgspec.Raw) -> list[Block]:
    """The blocks of an element's content, which may be repaired. Raises one of DECODE_ERRORS."""
    # A repair keeps all offsets, so a block that was decoded from the mended text is at the same place in the own one.
    text, at = bytes(content), 0
    own = text if text in raw else find_content(raw)
    blocks: list[Block] = []
    for clean in map(bytes, decode_items(content)):
        at = text.find(clean, at) + len(clean)
        members = decode_members(clean) if clean[:1] == b"{" else {}
        blocks.append(Block(own[at - len(clean) : at], clean, members, _read_kind(members)))
    return blocks


def split_parts(raw: bytes, content: msgspec.Raw) -> list[Part]:
    """The parts of a user element; none if it has no results, so it is one message. Raises one of DECODE_ERRORS."""
    if not begins(content, b"[") or b'"tool_result"' not in raw:
        return []
    blocks = split_blocks(raw, content)
    if all(block.kind != RESULT for block in blocks):
        return []
    parts: list[Part] = []
    for is_result, run in groupby(blocks, key=lambda block: block.kind == RESULT):
        together = list(run)
        parts += [Part(is_result, [block]) for block in together] if is_result else [Part(is_result, together)]
    return parts


def find_content(raw: bytes) -> bytes:
    content = bytes(read_members(raw).get("content", b"null"))
    at = raw.find(content)
    at = mend(raw).find(content) if at < 0 else at
    return raw[at : at + len(content)]


def _read_kind(members: dict[str, msgspec.Raw]) -> str:
    kind = decode_member(members.get("type"))
    return kind if isinstance(kind, str) else ""


def strip_markers(raw: bytes) -> bytes:
    """An element without the cache markers of its blocks. One that has to be repaired keeps them."""
    if KEY not in raw:
        return raw
    try:
        content = decode_members(raw).get("content")
        return raw if content is None else _replace_once(raw, bytes(content), _strip_items(bytes(content)))
    except DECODE_ERRORS:
        return raw


def _strip_items(content: bytes) -> bytes:
    if content[:1] != b"[" or KEY not in content:
        return content
    pieces: list[bytes] = []
    done = 0
    for item in map(bytes, decode_items(content)):
        at = content.find(item, done)
        pieces += [content[done:at], _strip_block(item) if item[:1] == b"{" and KEY in item else item]
        done = at + len(item)
    return b"".join((*pieces, content[done:]))


def _strip_block(block: bytes) -> bytes:
    """A block without its marker, and a result without those in its content."""
    members = decode_members(block)
    if MARKER in members:
        block, members = _strip_member(block, members)
    if _read_kind(members) == RESULT and "content" in members:
        content = bytes(members["content"])
        block = _replace_once(block, content, _strip_items(content))
    return block


def _strip_member(block: bytes, members: dict[str, msgspec.Raw]) -> tuple[bytes, dict[str, msgspec.Raw]]:
    """The block without its marker, and its members. If the marker cannot be cut out, the block is encoded again."""
    left = {name: value for name, value in members.items() if name != MARKER}
    places = [match.span() for match in _MEMBER.finditer(block)][-1:]  # clients write it last
    for start, stop in places:
        without = block[:start] + block[stop:]
        if decode_members(without) == left:
            return without, left
    return msgspec.json.encode(left), left


def _replace_once(text: bytes, old: bytes, new: bytes) -> bytes:
    return text if old == new else text.replace(old, new, 1)
