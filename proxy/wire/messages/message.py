"""Decodes, counts and writes one element of `messages`: one message, or several if a user element holds tool results.

Law: the results of a user element are messages of their own; each run of other blocks is one more. The bytes of a
message (`raw`) are the client's own without cache markers, so that a message stays the same when its markers move.
Counting never raises on decoded JSON: a value of an unexpected type is counted by its JSON.

All thinking is counted, in every assistant message. This assumes what models from Opus 4.5 on do: they keep it, unless
`context_management` clears it. Older models drop the thinking before the last user message that has more than results,
so for them the count is an upper bound. For the turn that is under way it is never too low. Thinking that is shown
shortened or not at all is in the signature; it is estimated by the signature's length.

Source: Anthropic's pages on context windows, on thinking and on context editing (`clear_thinking_20251015`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import orjson
from msgspec import structs

from trimtab.proxy.wire.cache_help import CACHE_MARKERS, find_markers, mark
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.content import (
    SEALED_CHARS_PER_TOKEN,
    PartCost,
    begins,
    count_part,
    guess_data,
    has_uncounted,
    read_content,
    read_text,
    rename,
    replace_items,
    replace_texts,
    take_payloads,
    write_answered,
    write_canonical,
    write_content,
    write_line,
)
from trimtab.proxy.wire.json import (
    decode_items,
    decode_member,
    decode_members,
    decode_or_none,
    read_id,
    read_members,
    write_compact,
    write_id,
)
from trimtab.proxy.wire.messages.blocks import (
    CALL,
    RESULT,
    Block,
    Part,
    find_content,
    split_blocks,
    split_parts,
    strip_markers,
)
from trimtab.proxy.wire.tools import as_list, find_referenced, find_served, read_choice, read_format
from trimtab.proxy.wire.transcript.body import UndecodableError
from trimtab.proxy.wire.transcript.elements import Placed
from trimtab.rules.conversation import NOT_SERVED, Arguments, CountTokens, Media, Message, Origin, Role, ToolCall
from trimtab.rules.prefix import digest_message
from trimtab.rules.tokens.families import Costs
from trimtab.rules.tokens.messages import ToolsAndFormat, as_counted, as_schema, count_message

THINKING = frozenset({"thinking", "redacted_thinking"})
_SEALED = frozenset({"encrypted_content", "encrypted_stdout", "encrypted_index", "signature"})
_NO_PARAMETERS, _PARAMETERS = ("cache_control", "type"), {"input_schema": "parameters"}


def count_said(
    message: Message, thinking: Sequence[Mapping[str, msgspec.Raw]], count: CountTokens, costs: Costs
) -> int:
    tokens = count_message(message, count, costs, calls=[*map(as_counted, message.tool_calls)])
    for block in thinking:  # the text, or what its signature hides if that is more
        text, signature, data = (decode_or_none(block.get(key)) for key in ("thinking", "signature", "data"))
        shown = count(text) if isinstance(text, str) else 0
        sealed = max((len(value) for value in (signature, data) if isinstance(value, str)), default=0)
        tokens += max(shown, sealed // SEALED_CHARS_PER_TOKEN)
    return tokens


def count_block(raw: bytes, count: CountTokens, costs: Costs) -> PartCost:
    """Tokens of a block that is neither text, thinking nor a client's tool call or result."""
    block = decode_or_none(msgspec.Raw(raw))
    kind = as_schema(block).get("type")
    if kind == "document":
        return _count_document(as_schema(block), count, costs)
    if not isinstance(kind, str) or "image" in kind:
        return count_part(raw, count, costs)
    try:
        open_part, sealed_chars = _unseal(block)
        open_part, guessed = take_payloads(open_part)
    except RecursionError:
        return PartCost(count(raw.decode("utf-8", "replace")))
    return PartCost(count(write_compact(open_part)) + sealed_chars // SEALED_CHARS_PER_TOKEN + guessed, guessed)


def _count_document(block: dict[str, Any], count: CountTokens, costs: Costs) -> PartCost:
    """Tokens of a document: its title and context, and its text, its own blocks, or a guess by its bytes."""
    source = as_schema(block.get("source"))
    tokens = sum(count(text) for key in ("title", "context") if isinstance(text := block.get(key), str))
    data, kind, media_type = source.get("data"), source.get("type"), source.get("media_type")
    if kind == "text" and isinstance(data, str):
        return PartCost(tokens + count(data))
    if kind == "content":
        inner = [_count_inner(part, count, costs) for part in as_list(source.get("content"))]
        return PartCost(tokens + sum(cost.tokens for cost in inner), sum(cost.guessed for cost in inner))
    hint = media_type if isinstance(media_type, str) else ""
    guessed = guess_data(data if isinstance(data, str) else None, hint)
    return PartCost(tokens + guessed, guessed)


def _count_inner(part: Any, count: CountTokens, costs: Costs) -> PartCost:
    text = part if isinstance(part, str) else as_schema(part).get("text")
    return PartCost(count(text)) if isinstance(text, str) else count_part(msgspec.json.encode(part), count, costs)


def _unseal(value: Any) -> tuple[Any, int]:
    """A value without its encrypted texts, and the characters that these have. Raises RecursionError."""
    if isinstance(value, list):
        parts = [_unseal(item) for item in value]
        return [part for part, _ in parts], sum(chars for _, chars in parts)
    if not isinstance(value, dict):
        return value, 0
    sealed = {key for key, item in value.items() if key in _SEALED and isinstance(item, str)}
    members = {key: _unseal(item) for key, item in value.items() if key not in sealed}
    chars = sum(len(value[key]) for key in sealed) + sum(chars for _, chars in members.values())
    return {key: part for key, (part, _) in members.items()}, chars


def read_tools_and_format(tools: Any, tool_choice: Any, output_config: Any, output_format: Any) -> ToolsAndFormat:
    """What the members outside the messages cost, except `system`, with tools that a server loads only on demand."""
    listed = as_list(tools)
    functions = [
        {_PARAMETERS.get(name, name): value for name, value in tool.items() if name not in _NO_PARAMETERS}
        for tool in listed
        if _is_function(tool)
    ]
    form = as_schema(as_schema(output_config).get("format")) or as_schema(output_format)
    return ToolsAndFormat(
        functions=functions,
        functions_json=write_compact([{"type": "function", "function": function} for function in functions]),
        others=[write_compact(tool) for tool in listed if not _is_function(tool)],
        choice=read_choice(tool_choice),
        format_texts=tuple(read_format(form)),
    )


def _is_function(tool: Any) -> bool:
    """Whether a tool is the client's own. Other tools have a type with a date, and the server knows what they are."""
    return isinstance(tool, dict) and isinstance(tool.get("input_schema"), dict)


_ROLES = {"system": Role.SYSTEM, "user": Role.USER, "assistant": Role.ASSISTANT}
_COUNTED = frozenset({"role", "content"})
_COUNTED_OF_BLOCK = frozenset({
    "type", "text", "citations", "thinking", "signature", "data", "id", "name", "input", "tool_use_id", "content",
    "is_error", "caller", "toolset_name", *CACHE_MARKERS,
})  # fmt: skip
"""Members of texts, thinking, calls and results that are counted or cost no tokens. Citations repeat what is counted
elsewhere. Source: Anthropic's pages on citations and on programmatic tool calling."""
_READ = frozenset({"text", CALL, RESULT, *THINKING})
"""Types of blocks of which only some members are counted. Of all other blocks, the whole JSON is."""
_NULL = msgspec.Raw(b"null")


def decode_element(counting: Counting, marked: bytes) -> tuple[Message, ...]:
    raw = strip_markers(marked)
    members = read_members(raw)
    wire_role = decode_member(members.get("role"))
    if not isinstance(wire_role, str):
        raise UndecodableError("a message has no role")
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
        clean = msgspec.Raw(b"[" + b",".join([block.clean for block in part.blocks]) + b"]")
        return _read_said(replace(made, raw=part.content), clean, counting)
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


def _thinks_behind(blocks: Sequence[Block], kind: str) -> bool:
    kinds = [block.kind for block in blocks]
    return kind in kinds and any(each in THINKING for each in kinds[kinds.index(kind) :])


def _read_assistant(made: Message, blocks: Sequence[Block], counting: Counting) -> Message:
    """The one message of an assistant element: its texts and calls; thinking is only counted."""
    thinking = [block.members for block in blocks if block.kind in THINKING]
    texts = [read_text(block.clean) if block.kind == "text" else None for block in blocks]
    is_bound = _thinks_behind(blocks, CALL)
    others = [
        block.clean
        for block, text in zip(blocks, texts, strict=True)
        if text is None and block.kind != CALL and block.kind not in THINKING
    ]
    message = replace(
        made,
        texts=tuple([text for text in texts if text is not None]),
        tool_calls=tuple([_read_call(block.members, is_bound=is_bound) for block in blocks if block.kind == CALL]),
        media=tuple([_read_media(part, "", counting) for part in others]),
        has_reasoning=bool(thinking),
        has_fixed_texts=_thinks_behind(blocks, "text"),
        has_uncounted=made.has_uncounted or any(_is_partly_counted(block.members) for block in blocks),
        keeps_before=any(_is_compaction(block.members) for block in blocks),
        served=find_served(made.raw, (block.members for block in blocks)),
        loads=find_referenced(made.raw),
    )
    tokens = count_said(message, thinking, counting.count, counting.costs)
    return replace(message, tokens=tokens, digest=digest_message(message, map(write_canonical, others)))


_OF_CALL = frozenset({"type", "id", "name", "input", "caller", *CACHE_MARKERS})
"""The members of a call that the client answers. With others, or made by a server's program, it stays as it is."""


def _read_call(members: dict[str, msgspec.Raw], *, is_bound: bool) -> ToolCall:
    call_id, name = decode_member(members.get("id")), decode_member(members.get("name"))
    name = name if isinstance(name, str) else ""
    caller = as_schema(decode_or_none(members.get("caller"))).get("type", "direct")
    is_fixed = is_bound or caller != "direct" or not members.keys() <= _OF_CALL
    shortens = Arguments.FIXED if is_fixed else Arguments.JSON
    return ToolCall(read_id(call_id), name, _read_input(members), write_id(call_id), shortens=shortens)


def _read_input(members: dict[str, msgspec.Raw]) -> str:
    return bytes(members.get("input", b"{}")).decode("utf-8", "replace")


def _read_media(part: bytes, before: str, counting: Counting) -> Media:
    line = write_line(part, before)
    cost = count_block(part, counting.count, counting.costs)
    return Media(part, cost.tokens, line, counting.count(line) if line else 0, guessed_tokens=cost.guessed)


def _is_compaction(members: dict[str, msgspec.Raw]) -> bool:
    """Whether a block stands for everything before it. One without content is from a compaction that failed."""
    return bytes(members.get("type", b"")) == b'"compaction"' and bytes(members.get("content", b"null")) != b"null"


def _is_partly_counted(members: dict[str, msgspec.Raw]) -> bool:
    kind = decode_member(members.get("type"))
    return isinstance(kind, str) and kind in _READ and has_uncounted(members, _COUNTED_OF_BLOCK)


# Writing: in a user element, results come before everything else, because Anthropic's API requires it. A block that no
# rule touched keeps its bytes, and every block its cache marker. Of an assistant's own element only texts and long
# arguments of calls change: thinking, signatures and all else keep their bytes and their order.
USER_SIDE = frozenset({Role.USER, Role.TOOL})


def shares_element(left: Message, right: Message) -> bool:
    """Whether neighbouring messages must be in one element: what a user says, and all results of one step."""
    return left.speaker in USER_SIDE and right.speaker in USER_SIDE


def write_element(raws: Sequence[bytes], placed: Sequence[Placed]) -> bytes:
    """The JSON of an element: one message of an assistant or a system, or some of the user's. raws: the client's."""
    # Strategy: the client's own element is the base, and keeps its other members. An assistant's or a system's is
    # changed text by text. On the user's side, the blocks are set together again, each from its own bytes: results
    # first, in their order, because Anthropic's API refuses a text before them. Source: its page on tool use.
    is_written = placed[0][0].is_written and placed[0][0].edited
    placed = [(message.as_said(), origin) for message, origin in placed]
    first = placed[0][0]
    base = next((raws[origin.start] for _, origin in placed if origin is not None), None)
    if base is not None and first.role not in USER_SIDE and not is_written:
        return _write_own(base, first) if first.edited else base
    is_alone = len(placed) == 1 and first.role is not Role.TOOL
    if base is not None and is_alone and not (first.edited or first.taken_in or b'"tool_result"' in base):
        return base
    role = msgspec.Raw(b'"user"' if first.role is Role.TOOL else orjson.dumps(first.role_name))
    members = {"role": role} if base is None else read_members(base)
    if is_alone:
        members["content"] = msgspec.Raw(_write_said(first, _find_own(raws, placed[0][1])))
    else:
        in_order = sorted(placed, key=lambda one: one[0].role is not Role.TOOL)
        blocks = (block for message, origin in in_order for block in _write_blocks(message, _find_own(raws, origin)))
        members["content"] = msgspec.Raw(b"[" + b",".join(blocks) + b"]")
    return msgspec.json.encode(members)


def _write_own(base: bytes, message: Message) -> bytes:
    """The element of an assistant whose texts were shortened, or of a system that took in the texts of others, too."""
    members = read_members(base)
    raw = members.get("content", _NULL)
    own = bytes(raw)
    if message.role is Role.ASSISTANT:
        content = _write_calls(replace_texts(own, iter(message.texts), {"text"}), message)  # as they were read
    else:
        content = write_content(message, raw) if message.texts else own
    return base if content == own else msgspec.json.encode({**members, "content": msgspec.Raw(content)})


def _write_calls(content: bytes, message: Message) -> bytes:
    """A content with the arguments of the message's calls. Blocks that are equal keep their bytes."""
    if not message.tool_calls or content[:1] != b"[":
        return content
    calls = iter(message.tool_calls)

    def change(item: bytes) -> bytes:
        members = decode_members(item) if item[:1] == b"{" else {}
        call = next(calls) if decode_member(members.get("type")) == CALL else None
        if call is None or call.shortens is Arguments.FIXED or call.arguments == _read_input(members):
            return item
        return msgspec.json.encode({**members, "input": msgspec.Raw(call.arguments.encode())})

    return replace_items(content, change)


def _find_own(raws: Sequence[bytes], origin: Origin | None) -> bytes:
    """A message in the client's own bytes; empty if a rule made it. Raises one of DECODE_ERRORS."""
    if origin is None:
        return b""
    raw = raws[origin.start]
    parts = split_parts(raw, read_members(raw).get("content", _NULL))
    if not parts:
        return find_content(raw)
    part = parts[origin.part]
    return part.blocks[0].raw if part.is_result else part.content


def _write_said(message: Message, own: bytes) -> bytes:
    if own and not message.edited and not message.taken_in:
        return own
    content = read_members(b'{"content":%b}' % own)["content"] if own else None  # mended
    return write_content(_mark_media(message, content), content)


def _mark_media(message: Message, own: msgspec.Raw | None) -> Message:
    """The message with the cache markers of its own media, which are its first ones."""
    items = decode_items(own) if own is not None and begins(own, b"[") and message.media else []
    others = [item for item in map(bytes, items) if read_text(item) is None]
    media = [structs.replace(part, raw=item) for part, item in zip(message.media, others, strict=False)]
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
        content = members.get("content", _NULL)
        marked = _mark_media(replace(message, taken_in=()), content)
        rename(message, members, "tool_use_id")
        block = msgspec.json.encode({**members, "content": msgspec.Raw(write_content(marked, content))})
    for taken in message.taken_in:
        block = mark(block, find_markers(taken))
    return block
