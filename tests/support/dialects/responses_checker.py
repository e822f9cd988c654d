"""Checks a forwarded Responses body as OpenAI would, and as a client that trusts trimtab would.

Law: it works on JSON, and does not import the rules or the proxy. Each check returns its problems as sentences; an
empty list means that there are none.
"""

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

import msgspec
from support.checker import are_of_client
from support.dialects.comparison import (
    Members,
    check_members,
    check_order,
    check_talk,
    find_run,
    read_items,
    read_members,
    without,
)
from support.dialects.responses_validity import (
    BY_MODEL,
    LEADERS,
    OUTPUTS,
    check_body,
    is_by_model,
    kind_of,
    name_output,
)

Wire = dict[str, Any]

LOCAL_ITEMS = ("ghost_snapshot",)
OWN_OUTPUTS = {
    "function_call_output": {"type", "call_id", "output"},
    "custom_tool_call_output": {"type", "call_id", "output"},
    "local_shell_call_output": {"type", "id", "call_id", "output"},
    "shell_call_output": {"type", "call_id", "output"},
    "apply_patch_call_output": {"type", "call_id", "status", "output"},
    "computer_call_output": {"type", "call_id", "output"},
    "mcp_approval_response": {"type", "approval_request_id", "approve", "reason"},
    "tool_search_output": {"type", "call_id", "tools", "execution", "status"},
    "program_output": {"type", "id", "call_id", "result", "status"},
}
"""The members of an output that the client did not write."""


def check_request(original: bytes, sent: bytes, *, last_may_shrink: bool = False) -> list[str]:
    """All problems of a forwarded body: what a provider refuses, and what should not have changed."""
    problems = check_body(msgspec.json.decode(sent))
    return problems + check_changes(original, sent, last_may_shrink=last_may_shrink)


def check_changes(original: bytes, sent: bytes, *, last_may_shrink: bool = False) -> list[str]:
    """What should have stayed as the client sent it. Items of the kinds in LOCAL_ITEMS must be gone."""
    before, after = read_members(original), read_members(sent)
    problems = check_members(before, after, "input")
    if "input" not in before or "input" not in after:
        return problems
    raws = [read_items(members["input"]) for members in (before, after)]
    items = [[_read(raw) for raw in part] for part in raws]
    problems += [f"a local item was sent: {kind_of(item)}" for item in items[1] if kind_of(item) in LOCAL_ITEMS]
    kept = [rank for rank, item in enumerate(items[0]) if kind_of(item) not in LOCAL_ITEMS]
    raws[0], items[0] = [raws[0][rank] for rank in kept], [items[0][rank] for rank in kept]
    continues = any(after.get(name, b"null") != b"null" for name in ("previous_response_id", "conversation"))
    return [
        *problems,
        *check_kept(raws, items),
        *check_edited(raws, items),
        *check_segments(raws, items),
        *check_compaction(raws, items),
        *(check_continued(items[0], items[1]) if continues else ()),
        *check_talk(*(list(map(read_chat, part)) for part in items), last_may_shrink=last_may_shrink),
    ]


def _read(raw: bytes) -> Wire:
    item = msgspec.json.decode(raw)
    return {"role": "user", "content": item} if isinstance(item, str) else item


def _is_edited(item: Wire) -> bool:
    """Whether trimtab may change an item: a result, or a user's message."""
    return kind_of(item) in OUTPUTS or kind_of(item) == "mcp_call" or item.get("role") == "user"


def _is_bridge(item: Wire) -> bool:
    return item.get("role") == "assistant" and set(item) <= {"type", "role", "content"}


def check_kept(raws: Sequence[Sequence[bytes]], items: Sequence[Sequence[Wire]]) -> list[str]:
    """Calls, reasoning, the assistant's messages and all unknown items have the client's bytes and order.

    The leading system and developer messages are all there, too. Only a bridge after a summary may be the proxy's own.
    """
    pairs = [list(zip(*part, strict=True)) for part in zip(raws, items, strict=True)]
    kept = [[raw for raw, item in part if not _is_edited(item)] for part in pairs]
    bridges = [raw for raw, item in pairs[1] if _is_bridge(item) and raw not in kept[0]]
    problems = check_order(kept[0], [raw for raw in kept[1] if raw not in bridges], "kept item")
    leaders = [[raw for raw, item in part if item.get("role") in LEADERS] for part in pairs]
    leading = len(list(takewhile(lambda item: item.get("role") in LEADERS, items[0])))
    are_known = are_of_client(*leaders, leading=leading)
    return problems if are_known else [*problems, "system or developer items are not the client's"]


def check_edited(raws: Sequence[Sequence[bytes]], items: Sequence[Sequence[Wire]]) -> list[str]:
    """Results and user messages keep all members but their content. Those of the proxy have only what they need."""
    known: list[Members] = [_frame(raw) for raw, item in zip(raws[0], items[0], strict=True) if _is_edited(item)]
    problems = []
    for index, (raw, item) in enumerate(zip(raws[1], items[1], strict=True)):
        if not _is_edited(item) or _frame(raw) in known:
            continue
        allowed = OWN_OUTPUTS.get(kind_of(item), {"type", "role", "content"})
        if kind_of(item) == "mcp_call" or not set(item) <= allowed:
            problems.append(f"input[{index}]: members of a {kind_of(item)} are not the client's")
    return problems


def _frame(raw: bytes) -> Members:
    return {} if raw.startswith(b'"') else without(read_members(raw), "output", "content")


def check_segments(raws: Sequence[Sequence[bytes]], items: Sequence[Sequence[Wire]]) -> list[str]:
    """What a response reasoned and what followed in the same response are kept whole, or are gone together."""
    problems = []
    for start, stop in _find_segments(items[0]):
        run = raws[0][start:stop]
        present = [raw for raw in run if raw in raws[1]]
        owned = [raw for raw in present if raws[0].count(raw) == 1]
        if owned and not find_run(raws[1], run):
            problems.append(f"the items of a response were separated: those at {start} to {stop - 1}")
    return problems


def _find_segments(items: Sequence[Wire]) -> Iterator[tuple[int, int]]:
    """Each run that begins with reasoning and ends before the next reasoning, or before what no model wrote."""
    start = 0
    while start < len(items):
        if kind_of(items[start]) != "reasoning":
            start += 1
            continue
        stop = start
        while stop < len(items) and kind_of(items[stop]) == "reasoning":
            stop += 1
        while stop < len(items) and is_by_model(items[stop]) and kind_of(items[stop]) != "reasoning":
            stop += 1
        yield start, stop
        start = stop


def check_compaction(raws: Sequence[Sequence[bytes]], items: Sequence[Sequence[Wire]]) -> list[str]:
    """The provider's last compaction and everything before it are as the client sent them."""
    kinds = [kind_of(item) for item in items[0]]
    last = max((rank for rank, kind in enumerate(kinds) if "compaction" in kind and "trigger" not in kind), default=-1)
    return [] if raws[0][: last + 1] == raws[1][: last + 1] else ["an item up to the last compaction was changed"]


def check_continued(original: Sequence[Wire], sent: Sequence[Wire]) -> list[str]:
    """If the provider has the history, no new item is dropped, and none is added."""
    names = [[(kind_of(item), item.get("role"), item.get("call_id")) for item in part] for part in (original, sent)]
    return [] if names[0] == names[1] else ["an item of a continued conversation was dropped or added"]


def read_chat(item: Wire) -> Wire:
    """An item as a chat message, for the laws that hold in every dialect."""
    kind = kind_of(item)
    if kind == "message":
        return {"role": item.get("role"), "content": item.get("content")}
    if kind in OUTPUTS:
        return {"role": "tool", "tool_call_id": name_output(item), "content": list(_read_output(item))}
    if kind in BY_MODEL and kind != "reasoning":
        return {"role": "assistant", "content": None, "tool_calls": [item]}
    return {"role": kind, "content": None, "item": item}


def _read_output(item: Wire) -> Iterator[Wire]:
    output = item.get("output")
    if isinstance(output, str):
        yield {"text": output}
    for part in output if isinstance(output, list) else ():
        yield from (
            {"text": part[name]}
            for name in ("text", "stdout", "stderr")
            if isinstance(part.get(name), str) and (part[name] or name != "stderr")
        )
