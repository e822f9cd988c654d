"""Splits an element of `messages` into its blocks; takes the client's cache markers off them, and adds one at a cut.

A client puts its newest marker at the end of its transcript and moves it with each request. Anthropic's API looks back
at most 20 blocks from a marker for what it has cached. A cut removes more, so the first request after it would find
nothing, and the summary would be cached only by chance. So the summary's last block gets a marker of its own.

Law: no block is lost, and each has the client's own bytes. An element without its markers has the bytes that it has in
the client's next request, where the markers have moved on. The marker is a function of the request and of the
transcript that is forwarded. It is only added if the client itself marks messages, or lets the API mark the last one,
or if the provider is known to take it. There are never more than four, and it stays in place as long as the cut does.
It is a copy of the client's next marker, or else of the last one before it, so entries of one hour stay before those of
five minutes.

Source: Anthropic's page on prompt caching.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

import msgspec

from trimtab.proxy.wire.cache_help import MAX_MARKERS, Helped, find_summary
from trimtab.proxy.wire.codec import Request
from trimtab.proxy.wire.content import begins, replace_items
from trimtab.proxy.wire.json import (
    DECODE_ERRORS,
    decode_items,
    decode_member,
    decode_members,
    mend,
    read_members,
    try_decode,
)
from trimtab.proxy.wire.transcript.body import read_outside
from trimtab.rules.conversation import Conversation
from trimtab.rules.tokens.messages import as_schema

RESULT, CALL = "tool_result", "tool_use"
MARKER = "cache_control"
KEY = b'"cache_control"'
_MEMBER = re.compile(rb',[ \t\r\n]{0,64}+"cache_control"[ \t\r\n]{0,64}+:[ \t\r\n]{0,64}+\{[^{}]{0,256}\}')


class Block(NamedTuple):
    """A block of content, in the client's own bytes. clean: repaired if need be, as the members are."""

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
    return replace_items(content, lambda item: _strip_block(item) if item[:1] == b"{" and KEY in item else item)


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


DEFAULT = b'{"type":"ephemeral"}'
_MARKER = re.compile(rb'"cache_control"[ \t\r\n]{0,64}+:[ \t\r\n]{0,64}+(\{[^{}]{0,256}\})')
"""A marker with its value. A text cannot match, because quotes in a text are escaped."""
_HEADS = ("tools", "system")  # Members with markers before the messages, in the order of the prompt


class Markers(NamedTuple):
    """The client's markers, each by its JSON value.

    heads: those of the tools and of the system prompt.
    placed: those in messages, in order, each with the number of its element and of the part of it.
    automatic: the one that the API puts on the last block, if the client asks for it.
    """

    heads: Sequence[bytes]
    placed: Sequence[tuple[int, int, bytes]]
    automatic: Sequence[bytes]


def find_client_markers(outside: Mapping[str, msgspec.Raw], raws: Iterable[bytes]) -> Markers:
    """The markers of a request. outside: the members of its body; raws: its elements."""
    heads = [value for name in _HEADS for value in _find_values(bytes(outside.get(name, b"")))]
    placed = [(at, *found) for at, raw in enumerate(raws) if KEY in raw for found in _find_in_parts(raw)]
    own = b'"cache_control":' + bytes(outside.get("cache_control", b"null"))
    return Markers(heads, placed, _find_values(own))


def _find_in_parts(raw: bytes) -> Iterator[tuple[int, bytes]]:
    try:
        parts = split_parts(raw, read_members(raw).get("content", msgspec.Raw(b"null")))
    except DECODE_ERRORS:
        parts = []
    contents = [part.content for part in parts] or [raw]
    yield from ((number, value) for number, content in enumerate(contents) for value in _find_values(content))


def drop_taken_in(after: Conversation) -> Conversation:
    """The conversation without what messages took in; that has no markers (see message.py)."""
    if not any(message.taken_in for message in after.messages):
        return after
    return after.edit([replace(message, taken_in=()) if message.taken_in else message for message in after.messages])


def mark_end(markers: Markers, after: Conversation, at: int, *, is_wanted: bool = False) -> Conversation:
    """The conversation with a marker at the end of message `at`, if the client marks or `is_wanted`; at most four."""
    messages = list(after.messages)
    starts = {start for start, _, _ in markers.placed}
    places = {
        (origin.start, origin.part): index
        for index, origin in enumerate(after.origins)
        if origin is not None and origin.start in starts
    }
    kept = [(places[start, part], value) for start, part, value in markers.placed if (start, part) in places]
    own = sum(len(message.taken_in) for message in messages)
    if len(markers.heads) + len(kept) + len(markers.automatic) + own >= MAX_MARKERS or messages[at].taken_in:
        return after
    later = [*(value for index, value in kept if index > at), *markers.automatic]
    copied = later[:1] or [value for _, _, value in markers.placed[-1:]]
    if is_wanted and not copied:
        copied = [markers.heads[-1] if markers.heads else DEFAULT]
    messages[at] = replace(messages[at], taken_in=tuple(b'{"cache_control":%b}' % value for value in copied))
    return after.edit(messages)


def _find_values(text: bytes) -> list[bytes]:
    found = (match[1] for match in _MARKER.finditer(text)) if KEY in text else ()
    return [value for value in found if as_schema(try_decode(value)).get("type") == "ephemeral"]


def find_markers(request: Request) -> Markers:
    outside: dict[str, msgspec.Raw] = {}
    with suppress(*DECODE_ERRORS):  # if the body has to be repaired, only the markers of its messages are found
        outside = read_outside(request.body, request.kept_body)
    return find_client_markers(outside, request.raws)


def place_marker(request: Request, after: Conversation) -> Conversation:
    """The conversation to write, with a marker at the end of its summary, if there must be one."""
    plain, at = drop_taken_in(after), find_summary(after.messages)
    is_wanted = "cache_control" in request.cache.adds
    return plain if at is None else mark_end(find_markers(request), plain, at, is_wanted=is_wanted)


def help_cache(request: Request, after: Conversation, pieces: tuple[bytes, ...]) -> Helped:
    """The body itself. `encode` has put the marker there; this finds out whether the client asked for it."""
    at = find_summary(after.messages) if "cache_control" in request.cache.adds else None
    if at is None:
        return Helped(pieces)
    markers, plain = find_markers(request), drop_taken_in(after)
    is_added = mark_end(markers, plain, at, is_wanted=True) is not plain
    is_own = bool(markers.placed or markers.automatic)
    return Helped(pieces, ("cache_control",) if is_added and not is_own else ())
