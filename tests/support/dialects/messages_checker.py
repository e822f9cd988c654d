"""Checks a forwarded Messages body as Anthropic would, and as a client that trusts trimtab would.

Law: it works on JSON, and does not import the rules or the proxy. Each check returns its problems as sentences; an
empty list means that there are none.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from support.dialects.comparison import (
    Members,
    check_members,
    check_order,
    check_talk,
    read_items,
    read_members,
    without,
)
from support.dialects.messages_validity import SERVER_CALLS, blocks_of, check_body, walk_markable

Wire = dict[str, Any]


def check_request(original: bytes, sent: bytes, *, last_may_shrink: bool = False) -> list[str]:
    """All problems of a forwarded body: what a provider refuses, and what should not have changed."""
    problems = check_body(msgspec.json.decode(sent))
    return problems + check_changes(original, sent, last_may_shrink=last_may_shrink)


def check_changes(original: bytes, sent: bytes, *, last_may_shrink: bool = False) -> list[str]:
    """What should have stayed as the client sent it. Cache markers in messages may move."""
    before, after = read_members(original), read_members(sent)
    problems = check_members(before, after, "messages")
    if "messages" not in before or "messages" not in after:
        return problems
    raws = [read_items(members["messages"]) for members in (before, after)]
    messages = [[msgspec.json.decode(raw) for raw in part] for part in raws]
    is_thinking = any(kind in after.get("thinking", b"") for kind in (b'"enabled"', b'"adaptive"'))
    return [
        *problems,
        *check_assistants(raws, messages),
        *(check_last_assistant(raws, messages) if is_thinking else ()),
        *check_user_blocks(raws, messages),
        *check_marker_kept(messages),
        *_allow(
            is_thinking or b'"thinking"' in before["messages"],
            check_talk(*(list(_read_chats(part)) for part in messages), last_may_shrink=last_may_shrink),
        ),
    ]


def _allow(is_thinking: bool, problems: list[str]) -> list[str]:  # noqa: FBT001
    """With thinking, nobody can write an assistant's line between two users' messages; the provider joins them."""
    return [one for one in problems if not (is_thinking and one.startswith("two user messages in a row"))]


def check_assistants(raws: Sequence[Sequence[bytes]], messages: Sequence[Sequence[Wire]]) -> list[str]:
    """Each assistant message is the client's: all blocks, with thinking, signatures, ids and inputs, in order.

    Only a bridge after a summary may be the proxy's own. System messages are all there.
    """
    pairs = [list(zip(*part, strict=True)) for part in zip(raws, messages, strict=True)]
    kept = [[_strip(raw) for raw, message in part if message["role"] != "user"] for part in pairs]
    bridges = [_strip(raw) for raw, message in pairs[1] if _is_bridge(message) and _strip(raw) not in kept[0]]
    problems = check_order(kept[0], [one for one in kept[1] if one not in bridges], "assistant message")
    leaders = [[raw for raw, message in part if message["role"] == "system"] for part in pairs]
    return problems if leaders[0] == leaders[1] else [*problems, "system messages are not the client's"]


def check_last_assistant(raws: Sequence[Sequence[bytes]], messages: Sequence[Sequence[Wire]]) -> list[str]:
    """While thinking is enabled, the last assistant message is the client's: it must begin with signed thinking."""
    asked = [
        [_strip(raw) for raw, message in zip(*part, strict=True) if message["role"] == "assistant"]
        for part in zip(raws, messages, strict=True)
    ]
    if not asked[1] or asked[1][-1] in asked[0]:
        return []
    return ["thinking is enabled, and the last assistant message is not the client's"]


def _is_bridge(message: Wire) -> bool:
    blocks = blocks_of(message)
    is_plain = len(blocks) == 1 and set(blocks[0]) == {"type", "text"} and blocks[0]["type"] == "text"
    return message["role"] == "assistant" and set(message) == {"role", "content"} and is_plain


def _strip(raw: bytes) -> tuple[Members, list[Members]]:
    """A message as its members and its blocks, without cache markers."""
    members = read_members(raw)
    blocks = [without(read_members(block), "cache_control") for block in _split(members["content"])]
    return without(members, "content"), blocks


def _split(content: bytes) -> list[bytes]:
    """The blocks of a content. A string is one block of text."""
    return [b'{"type":"text","text":' + content + b"}"] if content.startswith(b'"') else read_items(content)


def check_user_blocks(raws: Sequence[Sequence[bytes]], messages: Sequence[Sequence[Wire]]) -> list[str]:
    """Results keep all members but their content, and texts all but the text. Any other block is unchanged, in order.

    Blocks of the proxy have only what they need.
    """
    users = [
        [_strip(raw) for raw, message in zip(*part, strict=True) if message["role"] == "user"]
        for part in zip(raws, messages, strict=True)
    ]
    known = [_frame(block) for _, blocks in users[0] for block in blocks]
    others = [[block for _, blocks in part for block in blocks if not _is_edited(block)] for part in users]
    problems = check_order(others[0], others[1], "user block")
    frames = [frame for frame, _ in users[0]] + [{"role": b'"user"'}]
    problems += [f"members of a user message: {', '.join(frame)}" for frame, _ in users[1] if frame not in frames]
    for block in (block for _, blocks in users[1] for block in blocks):
        own = {"type", "tool_use_id"} if block["type"] == b'"tool_result"' else {"type"}
        if block.get("content") == b'"aborted"' and block.get("is_error") == b"true":
            own = {*own, "is_error"}
        if _is_edited(block) and _frame(block) not in known and set(_frame(block)) != own:
            problems.append(f"members of a user block are not the client's: {', '.join(block)}")
    return problems


def _is_edited(block: Members) -> bool:
    return block["type"] in {b'"tool_result"', b'"text"'}


def _frame(block: Members) -> Members:
    return without(block, "content", "text") if _is_edited(block) else block


def check_marker_kept(messages: Sequence[Sequence[Wire]]) -> list[str]:
    """If the client marked a message for the cache, one that is sent is marked, in the same way as one of his."""
    markers = [
        [block["cache_control"] for block in walk_markable({"messages": part}) if block.get("cache_control")]
        for part in messages
    ]
    if markers[0] and not markers[1]:
        return ["the cache marker of the messages was lost"]
    return [f"a cache marker of our own: {marker}" for marker in markers[1] if marker not in markers[0]]


def _read_chats(messages: Sequence[Wire]) -> Iterator[Wire]:
    """The messages as chat messages: each result is one, and the other blocks of a user message are one more."""
    for message in messages:
        blocks = [{key: value for key, value in one.items() if key != "cache_control"} for one in blocks_of(message)]
        for block in blocks:
            if block.get("type") == "tool_result":
                yield {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": block.get("content")}
        rest = [block for block in blocks if block.get("type") != "tool_result"]
        calls = [block for block in rest if block.get("type") in {"tool_use", *SERVER_CALLS}]
        if rest:
            yield {"role": message["role"], "content": rest, **({"tool_calls": calls} if calls else {})}
