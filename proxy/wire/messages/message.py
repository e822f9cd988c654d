"""Decodes one element of `messages`: to one message, or to several if a user element holds tool results.

Law: the results of a user element are messages of their own; each run of other blocks is one more. The bytes of a
message (`raw`) are the client's own without cache markers, so that a message stays the same when its markers move.
"""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from trimtab.proxy.wire.codec import Counting, UndecodableError
from trimtab.proxy.wire.content.cache_help import CACHE_MARKERS
from trimtab.proxy.wire.content.media import write_line
from trimtab.proxy.wire.content.parts import begins, has_uncounted, read_content, read_text, write_canonical
from trimtab.proxy.wire.content.server_tools import find_referenced, find_served
from trimtab.proxy.wire.json.decode import decode_items, decode_member, decode_members, read_id, read_members, write_id
from trimtab.proxy.wire.messages.blocks import CALL, RESULT, Block, Part, split_blocks, split_parts, strip_markers
from trimtab.proxy.wire.messages.cost import THINKING, count_block, count_said
from trimtab.rules.conversation import NOT_SERVED, Media, Message, Role, ToolCall
from trimtab.rules.prefix import digest_message

_ROLES = {"system": Role.SYSTEM, "user": Role.USER, "assistant": Role.ASSISTANT}
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
_NULL = msgspec.Raw(b"null")


def decode_element(counting: Counting, marked: bytes) -> tuple[Message, ...]:
    """The messages of one element, with their token counts. Raises UndecodableError or one of DECODE_ERRORS."""
    raw = strip_markers(marked)
    members = read_members(raw)
    wire_role = decode_member(members.get("role"))
    if not isinstance(wire_role, str):
        problem = "a message has no role"
        raise UndecodableError(problem)
    role, content = _ROLES.get(wire_role, Role.OTHER), members.get("content", _NULL)
    made = Message(
        role,
        raw=raw,
        wire_role="" if wire_role == role else wire_role,
        has_uncounted=has_uncounted(members, _COUNTED),
        # Such a message changes a setting for all that comes after it.
        stays=role is Role.SYSTEM and "output_config" in members,
    )
    if role is Role.ASSISTANT and begins(content, b"["):
        return (_read_assistant(made, split_blocks(raw, content), counting),)
    parts = split_parts(raw, content) if role is Role.USER else []
    return tuple([_read_part(made, part, counting) for part in parts]) or (_read_said(made, content, counting),)


def decode_system(counting: Counting, content: bytes) -> tuple[Message]:
    """The system message for the value of the body's member `system`. Raises one of DECODE_ERRORS."""
    value = read_members(b'{"content":%b}' % content)["content"]
    return (_read_said(Message(Role.SYSTEM, raw=content), value, counting),)


def _read_part(made: Message, part: Part, counting: Counting) -> Message:
    if not part.is_result:
        return _read_said(replace(made, raw=part.content), part.clean_content, counting)
    (block,) = part.blocks
    message = replace(
        made,
        role=Role.TOOL,
        raw=block.raw,
        answers=read_id(decode_member(block.members.get("tool_use_id"))),
        is_error=bytes(block.members.get("is_error", b"")) == b"true",
        has_uncounted=made.has_uncounted or has_uncounted(block.members, _COUNTED_OF_BLOCK),
    )
    return _read_said(message, block.members.get("content", _NULL), counting)


def _read_said(made: Message, content: msgspec.Raw, counting: Counting) -> Message:
    texts, parts = read_content(content)
    listed = map(bytes, decode_items(content)) if begins(content, b"[") else ()
    blocks = [decode_members(part) for part in listed if part[:1] == b"{"]
    message = replace(
        made,
        texts=texts,
        media=tuple([_read_media(part, before, counting) for part, before in parts]),
        has_uncounted=made.has_uncounted or any(map(_is_partly_counted, blocks)),
        keeps_before=any(map(_is_compaction, blocks)),
        served=NOT_SERVED if made.role is Role.TOOL else find_served(made.raw, blocks),
        loads=find_referenced(made.raw),
    )
    tokens = count_said(message, (), counting.count, counting.costs)
    digest = digest_message(message, (write_canonical(part) for part, _ in parts))
    return replace(message, tokens=tokens, digest=digest)


def _thinks_behind_text(blocks: Sequence[Block]) -> bool:
    """Whether thinking comes after a text. It may be bound to that text."""
    kinds = [block.kind for block in blocks]
    return "text" in kinds and any(kind in THINKING for kind in kinds[kinds.index("text") :])


def _read_assistant(made: Message, blocks: Sequence[Block], counting: Counting) -> Message:
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
        texts=tuple([text for text in texts if text is not None]),
        tool_calls=tuple([_read_call(block.members) for block in blocks if block.kind == CALL]),
        media=tuple([_read_media(part, "", counting) for part in others]),
        has_reasoning=bool(thinking),
        has_fixed_texts=_thinks_behind_text(blocks),
        has_uncounted=made.has_uncounted or any(_is_partly_counted(block.members) for block in blocks),
        keeps_before=any(_is_compaction(block.members) for block in blocks),
        served=find_served(made.raw, (block.members for block in blocks)),
        loads=find_referenced(made.raw),
    )
    tokens = count_said(message, thinking, counting.count, counting.costs)
    return replace(message, tokens=tokens, digest=digest_message(message, map(write_canonical, others)))


def _read_call(members: dict[str, msgspec.Raw]) -> ToolCall:
    arguments = bytes(members.get("input", b"{}")).decode("utf-8", "replace")
    call_id = decode_member(members.get("id"))
    return ToolCall(read_id(call_id), _as_text(members.get("name")), arguments, write_id(call_id))


def _read_media(part: bytes, before: str, counting: Counting) -> Media:
    """A block that is not text, with its token count and the line that may replace it. `before`: the text before it."""
    line = write_line(part, before)
    cost = count_block(part, counting.count, counting.costs)
    return Media(part, cost.tokens, line, counting.count(line) if line else 0, guessed_tokens=cost.guessed)


def _is_compaction(members: dict[str, msgspec.Raw]) -> bool:
    """Whether a block stands for everything before it. One without content is from a compaction that failed."""
    return bytes(members.get("type", b"")) == b'"compaction"' and bytes(members.get("content", b"null")) != b"null"


def _is_partly_counted(members: dict[str, msgspec.Raw]) -> bool:
    kind = decode_member(members.get("type"))
    return isinstance(kind, str) and kind in _READ and has_uncounted(members, _COUNTED_OF_BLOCK)


def _as_text(value: msgspec.Raw | None) -> str:
    text = decode_member(value)
    return text if isinstance(text, str) else ""
