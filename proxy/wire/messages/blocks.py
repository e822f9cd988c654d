"""Decodes one element of `messages`: to one message, or to several if a user element holds tool results.

Law: no block is lost. The results of a user element are messages of their own; each run of other blocks is one more.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

import msgspec

from proxy.wire.codec import Counting, UndecodableError
from proxy.wire.content.cache_markers import CACHE_MARKERS, unmark
from proxy.wire.content.image import write_line
from proxy.wire.content.read import begins, read_content, read_text, write_canonical
from proxy.wire.json.members import decode_items, decode_members, read_members
from proxy.wire.json.repair import decode_member, mend
from proxy.wire.messages.cost import THINKING, count_block, count_said
from rules.conversation import Media, Message, Role, ToolCall
from rules.prefix import digest_message

_ROLES = {"system": Role.SYSTEM, "user": Role.USER, "assistant": Role.ASSISTANT}
RESULT, CALL = "tool_result", "tool_use"
_COUNTED = frozenset({"role", "content"})
_COUNTED_OF_BLOCK = frozenset(
    {
        "type", "text", "citations", "thinking", "signature", "data", "id", "name", "input", "tool_use_id", "content",
        "is_error", "caller", "toolset_name", *CACHE_MARKERS,
    }
)  # fmt: skip
"""Members of texts, thinking, calls and results that are counted or cost no tokens. Citations repeat what is counted
elsewhere. Source: Anthropic's pages on citations and on programmatic tool calling."""
_READ = frozenset({"text", CALL, RESULT, *THINKING})
"""Types of blocks of which only some members are counted. Of all other blocks, the whole JSON is."""
TOLERATED_BYTES = 32
"""A member up to this size that is not counted is ignored. Chosen: it can be null, empty, or a number."""
_NULL = msgspec.Raw(b"null")


class _Block(NamedTuple):
    """A block of content: the client's own bytes, its members (repaired if need be), and its type.

    clean: the bytes, repaired if need be.
    """

    raw: bytes
    clean: bytes
    members: dict[str, msgspec.Raw]
    kind: str


def decode_element(counting: Counting, raw: bytes) -> tuple[Message, ...]:
    """The messages of one element, with their token counts. Raises UndecodableError or one of DECODE_ERRORS."""
    members = read_members(raw)
    wire_role = decode_member(members.get("role"))
    if not isinstance(wire_role, str):
        problem = "a message has no role"
        raise UndecodableError(problem)
    role, content = _ROLES.get(wire_role, Role.OTHER), members.get("content", _NULL)
    made = Message(
        role, raw=raw, wire_role="" if wire_role == role else wire_role, has_uncounted=_is_uncounted(members, _COUNTED)
    )
    has_blocks = begins(content, b"[")
    if role is Role.ASSISTANT and has_blocks:
        return (_read_assistant(made, _split(raw, content), counting),)
    if role is Role.USER and has_blocks and b'"tool_result"' in raw:
        blocks = _split(raw, content)
        if any(block.kind == RESULT for block in blocks):
            return tuple(_read_results(made, blocks, counting))
    return (_read_said(made, content, counting),)


def decode_system(counting: Counting, content: bytes) -> tuple[Message]:
    """The system message for the value of the body's member `system`. Raises one of DECODE_ERRORS."""
    value = read_members(b'{"content":%b}' % content)["content"]
    return (_read_said(Message(Role.SYSTEM, raw=content), value, counting),)


def read_content_bytes(raw: bytes) -> bytes:
    """The value of an element's member `content`, in the client's own bytes. Raises one of DECODE_ERRORS."""
    content = bytes(read_members(raw).get("content", b"null"))
    at = raw.find(content)
    at = mend(raw).find(content) if at < 0 else at
    return raw[at : at + len(content)]


def _split(raw: bytes, content: msgspec.Raw) -> list[_Block]:
    """The blocks of an element's content. `content` may be repaired; each block also gets the client's own bytes."""
    text, at = bytes(content), 0
    own = text if text in raw else read_content_bytes(raw)
    blocks: list[_Block] = []
    for clean in map(bytes, decode_items(content)):
        at = text.find(clean, at) + len(clean)
        members = decode_members(clean) if clean[:1] == b"{" else {}
        kind = decode_member(members.get("type"))
        blocks.append(_Block(own[at - len(clean) : at], clean, members, kind if isinstance(kind, str) else ""))
    return blocks


def _read_results(made: Message, blocks: Sequence[_Block], counting: Counting) -> Iterator[Message]:
    """The messages of a user element: one for each result, one for each run of other blocks."""
    for is_result, run in groupby(blocks, key=lambda block: block.kind == RESULT):
        if is_result:
            yield from (_read_result(made, block, counting) for block in run)
            continue
        others = list(run)
        raw = b'{"role":"user","content":[%b]}' % b",".join(block.raw for block in others)
        content = msgspec.Raw(b"[%b]" % b",".join(block.clean for block in others))
        yield _read_said(replace(made, raw=raw), content, counting)


def _read_result(made: Message, block: _Block, counting: Counting) -> Message:
    answered = decode_member(block.members.get("tool_use_id"))
    message = replace(
        made,
        role=Role.TOOL,
        raw=block.raw,
        answers=answered if isinstance(answered, str) else "",
        is_error=bytes(block.members.get("is_error", b"")) == b"true",
        has_uncounted=made.has_uncounted or _is_uncounted(block.members, _COUNTED_OF_BLOCK),
    )
    return _read_said(message, block.members.get("content", _NULL), counting)


def _read_said(made: Message, content: msgspec.Raw, counting: Counting) -> Message:
    """The message with texts and media of its content, and its tokens."""
    texts, parts = read_content(content)
    listed = map(bytes, decode_items(content)) if begins(content, b"[") else ()
    blocks = [decode_members(part) for part in listed if part[:1] == b"{"]
    message = replace(
        made,
        texts=texts,
        media=tuple(_read_media(part, before, counting) for part, before in parts),
        has_uncounted=made.has_uncounted or any(map(_has_uncounted, blocks)),
        keeps_before=any(map(_is_compaction, blocks)),
    )
    tokens = count_said(message, (), counting.count, counting.costs)
    digest = digest_message(message, (write_canonical(part) for part, _ in parts))
    return replace(message, tokens=tokens, digest=digest)


def _read_assistant(made: Message, blocks: Sequence[_Block], counting: Counting) -> Message:
    """The one message of an assistant element: its texts and calls; thinking is only counted."""
    thinking = [block.members for block in blocks if block.kind in THINKING]
    texts = [read_text(block.clean) if block.kind == "text" else None for block in blocks]
    others = [
        block.clean
        for block, text in zip(blocks, texts, strict=True)
        if text is None and block.kind != CALL and block.kind not in THINKING
    ]
    message = replace(
        made,
        texts=tuple(text for text in texts if text is not None),
        tool_calls=tuple(_read_call(block.members) for block in blocks if block.kind == CALL),
        media=tuple(_read_media(part, "", counting) for part in others),
        has_reasoning=bool(thinking),
        has_uncounted=made.has_uncounted or any(_has_uncounted(block.members) for block in blocks),
        keeps_before=any(_is_compaction(block.members) for block in blocks),
    )
    tokens = count_said(message, thinking, counting.count, counting.costs)
    return replace(message, tokens=tokens, digest=digest_message(message, map(write_canonical, others)))


def _read_call(members: dict[str, msgspec.Raw]) -> ToolCall:
    arguments = bytes(members.get("input", b"{}")).decode("utf-8", "replace")
    return ToolCall(_as_text(members.get("id")), _as_text(members.get("name")), arguments)


def _read_media(part: bytes, before: str, counting: Counting) -> Media:
    """A block that is not text, with its token count and the line that may replace it. `before`: the text before it."""
    unmarked = unmark(part)
    line = write_line(unmarked, before)
    tokens = count_block(unmarked, counting.count, counting.costs)
    return Media(part, tokens, line, counting.count(line) if line else 0)


def _is_compaction(members: dict[str, msgspec.Raw]) -> bool:
    """Whether a block stands for everything before it. One without content is from a compaction that failed."""
    return bytes(members.get("type", b"")) == b'"compaction"' and bytes(members.get("content", b"null")) != b"null"


def _has_uncounted(members: dict[str, msgspec.Raw]) -> bool:
    kind = decode_member(members.get("type"))
    return isinstance(kind, str) and kind in _READ and _is_uncounted(members, _COUNTED_OF_BLOCK)


def _is_uncounted(members: dict[str, msgspec.Raw], counted: frozenset[str]) -> bool:
    """Whether there are members that are not counted but that a server may render."""
    return any(len(bytes(members[name])) > TOLERATED_BYTES for name in members.keys() - counted)


def _as_text(value: msgspec.Raw | None) -> str:
    text = decode_member(value)
    return text if isinstance(text, str) else ""
