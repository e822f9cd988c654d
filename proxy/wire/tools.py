"""The tools of a request: how they are counted, what its messages and its server say of them, and lists without some.

Law: counting never raises on decoded JSON. A pair of a server's call and its result within one message connects it with
no other. Of a list, only whole declarations go, and the commas between them. All other bytes stay. A tool stays in its
place if the transcript has called it or the request's choice of tools names it: strict upstreams refuse a call to an
unknown tool. If nothing is left, the members that are refused without tools go, too. A cache marker of a declaration
that goes moves to the last one that is left before it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import translate
from typing import Any, NamedTuple

import msgspec

from trimtab.proxy.wire.cache_help import find_markers
from trimtab.proxy.wire.json import (
    DECODE_ERRORS,
    Edit,
    Span,
    decode_any,
    decode_items,
    decode_member,
    decode_members,
    decode_or_none,
    find_cuts,
    find_member,
    find_members,
    has_more_parts,
    match_array,
    read_id,
    splice,
    write_compact,
)
from trimtab.rules.conversation import NOT_SERVED, Message, Role, Served
from trimtab.rules.results.work import Cache
from trimtab.rules.tokens.messages import NO_CHOICE, ToolsAndFormat, as_schema

MAX_DECODED_PARTS = 100_000
"""Strings and commas; with more, the JSON is counted. Chosen: bounds the work; real requests have far fewer."""
_DROPPED = frozenset({"additionalProperties"})
_NAMED = frozenset({"properties", "$defs", "definitions"})


def as_list(value: Any) -> list[Any]:
    """The items of a list. Any other value except None is one item."""
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def _strip(value: Any) -> Any:
    """A schema without the titles of its parts and without `additionalProperties`, which servers do not render."""
    if isinstance(value, list):
        return list(map(_strip, value))
    if not isinstance(value, dict):
        return value
    stripped: dict[str, Any] = {}
    for key, item in value.items():
        if key in _NAMED and isinstance(item, dict):  # a property may have any name, such as `title`
            stripped[key] = {name: _strip(inner) for name, inner in item.items()}
        elif key not in _DROPPED and not (key == "title" and isinstance(item, str)):
            stripped[key] = _strip(item)
    return stripped


def read_format(described: Any) -> Iterator[str]:
    """Name, description and schema of a response format, as texts. Yields nothing for a format without a schema."""
    schema = described.get("schema")
    if not isinstance(schema, dict):
        return
    for key in ("name", "description"):
        if isinstance(described.get(key), str):
            yield described[key]
    title = {"title": schema["title"]} if "title" in schema else {}
    yield write_compact({**title, **_strip(schema)})


def has_too_many_parts(raws: Iterable[bytes]) -> bool:
    return any(len(raw) > MAX_DECODED_PARTS and has_more_parts(raw, MAX_DECODED_PARTS) for raw in raws)


def read_fixed(raws: Sequence[bytes], read: Callable[..., ToolsAndFormat]) -> ToolsAndFormat:
    """What members outside the transcript cost, as `read` tells of their values; by their JSON if they are none."""
    if not has_too_many_parts(raws):
        with suppress(*DECODE_ERRORS):
            return read(*(decode_any(raw) if raw else None for raw in raws))
    return ToolsAndFormat(others=tuple(raw.decode("utf-8", "replace") for raw in raws if raw))


def read_choice(choice: Any) -> str | None:
    """The name of the function that must be called; NO_CHOICE if none may be called; else None."""
    if isinstance(choice, str):
        return NO_CHOICE if choice == NO_CHOICE else None
    named = as_schema(choice)
    if named.get("type") == NO_CHOICE:
        return NO_CHOICE
    name = as_schema(named.get("function")).get("name") or named.get("name")
    return name if isinstance(name, str) else None


def forces_call(choice: Any) -> bool:
    """Whether a choice of tools, in any dialect, makes the model call one."""
    if isinstance(choice, dict):
        allowed = choice.get("allowed_tools")
        choice = allowed if isinstance(allowed, dict) else choice
        choice = choice.get("mode") or choice.get("type") or choice
    return choice not in (None, "auto", "none")


# Tools at the server's side: calls that the server answers itself, and tools that a search has loaded. The model can
# call a loaded tool because a message names or declares it. Any type of block counts whose name ends as these do, so
# those to come count, too. Source: Anthropic's pages on server tools, on the MCP connector, on programmatic tool
# calling and on tool search; OpenAI's on tool search.
_CALL_ENDING, _RESULT_ENDING = "_tool_use", "_tool_result"
_CALLERS = ("tool_id", "caller_id", "id")


def find_served(raw: bytes, blocks: Iterable[dict[str, msgspec.Raw]]) -> Served:
    """The server's calls that connect a message with others; `blocks` are the members of each block of its content."""
    # Measured: a pattern takes seven times as long, a tenth of all that a new message costs.
    if b'_tool_use"' not in raw and b'_tool_result"' not in raw and b'"caller"' not in raw:
        return NOT_SERVED
    opens, closes, goes_on = dict[str, None](), list[str](), list[str]()
    for members in blocks:
        kind = decode_or_none(members.get("type"))
        if not isinstance(kind, str):
            continue
        if kind.endswith(_CALL_ENDING):
            opens[read_id(decode_or_none(members.get("id")))] = None
        elif kind.endswith(_RESULT_ENDING) and kind != _RESULT_ENDING[1:]:
            answered = read_id(decode_or_none(members.get("tool_use_id")))
            if answered in opens:
                del opens[answered]
            else:
                closes.append(answered)
        else:
            goes_on += find_callers(members)
    return Served(tuple(opens), tuple(closes), tuple(goes_on)) if opens or closes or goes_on else NOT_SERVED


def find_callers(members: dict[str, msgspec.Raw]) -> list[str]:
    caller = decode_or_none(members["caller"]) if "caller" in members else None
    named = [read_id(caller.get(key)) for key in _CALLERS] if isinstance(caller, dict) else []
    return [call_id for call_id in named if call_id][:1]


_REFERENCE = "tool_reference"
REFERENCE_MARK = b'"tool_reference"'
_CLIENT_CALL = "tool_use"
MAX_DEPTH = 8  # Nothing is looked for in deeper values. Chosen: a reference is four deep.


def find_referenced(raw: bytes) -> tuple[str, ...]:
    if REFERENCE_MARK not in raw:
        return ()
    return tuple(dict.fromkeys(_find_references(decode_or_none(msgspec.Raw(raw)), MAX_DEPTH)))


def _find_references(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, list) and depth:
        for one in value:
            yield from _find_references(one, depth - 1)
    elif isinstance(value, dict) and depth:
        kind = value.get("type")
        if kind == _REFERENCE and isinstance(value.get("tool_name"), str):
            yield value["tool_name"]
        elif kind != _CLIENT_CALL:
            for one in value.values():
                yield from _find_references(one, depth - 1) if isinstance(one, list | dict) else ()


def find_declared(tools: msgspec.Raw | None) -> tuple[str, ...]:
    """The names of the tools in a list of declarations, also of those in a namespace."""
    return tuple(dict.fromkeys(_list_declared(decode_or_none(tools), MAX_DEPTH)))


def _list_declared(tools: Any, depth: int) -> Iterator[str]:
    for tool in tools if isinstance(tools, list) and depth else ():
        if isinstance(tool, dict):
            nested = tool.get("function")
            name = nested.get("name") if isinstance(nested, dict) else tool.get("name")
            yield from [name] if isinstance(name, str) else []
            yield from _list_declared(tool.get("tools"), depth - 1)


NAMED_BYTES = 4096
"""Larger parts are not searched for names of tools. Chosen: what refers to a tool is far shorter; images are not."""
_REFERENCES = re.compile(rb'"(?:tool_reference|server_tool_use|mcp_tool_use)"')
_DEFERRED = b"true"


class ToolList(msgspec.Struct, frozen=True):
    """A member that declares tools. key, dependents: names in quotes; upstreams refuse the dependents without tools.

    raw, choice: the JSON of the list, and of what chooses from it; empty if the request does not have it.
    """

    key: bytes
    raw: bytes
    choice: bytes
    dependents: tuple[bytes, ...]


class ToolName(NamedTuple):
    namespace: str
    name: str

    @property
    def spellings(self) -> frozenset[str]:
        return frozenset({self.name, self.namespace + self.name})


class _Tool(msgspec.Struct, frozen=True):
    """A declaration; `inner` are those in a namespace. is_deferred: it must be searched for, so it takes no marker."""

    name: ToolName
    span: Span
    inner: tuple["_Tool", ...] = ()
    is_deferred: bool = False


class Listed(NamedTuple):
    """The declarations of a list, and the names that match some globs; none if the list is not understood."""

    tools: tuple[_Tool, ...] = ()
    matching: frozenset[ToolName] = frozenset()


ListKey = tuple[bytes, tuple[str, ...]]  # The JSON of a list, and the globs
ListMemo = Cache[ListKey, Listed]  # Lists that were read before


def find_used(messages: Iterable[Message]) -> frozenset[str]:
    """The names of the tools that a transcript has called, or that its results and the server's calls name."""
    names: set[str] = set()
    for message in messages:
        if message.tool_calls:
            names.update(call.name for call in message.tool_calls)
        if message.role is Role.TOOL and message.name:
            names.add(message.name)
        names.update(message.loads)
        for part in message.media:
            if len(part.raw) <= NAMED_BYTES and _REFERENCES.search(part.raw):
                names.update(_find_names(part.raw))
    return frozenset(names)


def drop_tools(
    body: bytes,
    transcript: Span | None,
    lists: Sequence[ToolList],
    used: frozenset[str],
    globs: tuple[str, ...],
    memo: ListMemo,
) -> tuple[bytes, int]:
    """The body without tools that match `globs`, and their number; itself if a list is not as it was read.

    A list of which nothing would be left stays whole if the transcript has `used` tools. transcript: is not searched.
    """
    short = [_shorten(each, used, globs, memo) for each in lists]
    changed = [(each, new) for each, (new, number) in zip(lists, short, strict=True) if number]
    if not changed:
        return body, 0
    try:
        skipped = [] if transcript is None else [transcript]
        members = find_members(body, [each.raw for each in lists], *skipped)
    except DECODE_ERRORS:
        return body, 0
    keys = [key for key, _, _ in members]
    edits: list[Edit] = []
    gone: set[bytes] = set()
    for each, new in changed:
        concerned = (each.key, *each.dependents)
        if each.key not in keys or any(keys.count(key) > 1 for key in concerned):
            return body, 0  # upstreams differ in which of two equal keys they read
        value = members[keys.index(each.key)][2]
        if body[value.start : value.stop] != each.raw:
            return body, 0
        if new:
            edits.append((value, new))
        else:
            gone.update(concerned)
    removed = [at for at, key in enumerate(keys) if key in gone]
    edits += [(span, b"") for span in find_cuts(body, [span for _, span, _ in members], removed)]
    return splice(body, edits), sum(number for _, number in short)


def _shorten(each: ToolList, used: frozenset[str], globs: tuple[str, ...], memo: ListMemo) -> tuple[bytes, int]:
    """The list without some declarations, empty if none is left; and their number."""
    if each.raw[:1] != b"[":
        return each.raw, 0
    listed = memo.get((each.raw, globs))
    if listed is None:
        listed = memo[each.raw, globs] = _find_matching(each.raw, globs)
    wanted = used.union(_find_names(each.choice)) if listed.matching else used
    gone = frozenset(name for name in listed.matching if not name.spellings & wanted)
    raw, number = _write(each.raw, listed.tools, gone) if gone else (each.raw, 0)
    return (each.raw, 0) if used and not raw else (raw, number)


def _find_matching(raw: bytes, globs: tuple[str, ...]) -> Listed:
    matches = re.compile("|".join(map(translate, globs)))
    try:
        tools = tuple(_read(raw))
    except DECODE_ERRORS:
        return Listed()
    names = [one.name for tool in tools for one in (tool.inner or (tool,)) if one.name.name]
    return Listed(tools, frozenset(name for name in names if any(map(matches.fullmatch, name.spellings))))


def _read(raw: bytes, shift: int = 0, namespace: str = "") -> Iterator[_Tool]:
    """The declarations of a list, with their positions from `shift` on. Raises one of DECODE_ERRORS."""
    items = list(map(bytes, decode_items(raw)))
    array = match_array(raw, 0, items)
    for item, span in zip(items, array.elements if array else (), strict=False):
        start = shift + span.start
        place = Span(start, start + len(item))
        members = decode_members(item) if item[:1] == b"{" else {}
        name, inner = _read_name(members), tuple[_Tool, ...]()
        if bytes(members.get("type", b"")) == b'"namespace"' and (listed := find_member(item, b'"tools"')) is not None:
            inner = tuple(_read(item[listed.start : listed.stop], start + listed.start, name))
        yield _Tool(ToolName(namespace, name), place, inner, bytes(members.get("defer_loading", b"")) == _DEFERRED)


def _read_name(members: dict[str, msgspec.Raw]) -> str:
    places = (as_schema(decode_member(members.get(key))) for key in ("function", "custom"))
    nested = next((place["name"] for place in places if isinstance(place.get("name"), str)), None)
    name = decode_member(members.get("name")) if nested is None else nested
    return name if isinstance(name, str) else ""


def _write(raw: bytes, tools: Sequence[_Tool], names: frozenset[ToolName]) -> tuple[bytes, int]:
    gone = [at for at, tool in enumerate(tools) if _is_gone(tool, names)]
    left = [tool for tool in tools if not _is_gone(tool, names)]
    number = sum(len(tools[at].inner) or 1 for at in gone)
    if not left:
        return b"", number
    if all(tool.is_deferred for tool in left) and not all(tool.is_deferred for tool in tools):
        return raw, 0  # upstreams refuse a list in which each tool must be searched for
    edits: list[Edit] = [(span, b"") for span in find_cuts(raw, [tool.span for tool in tools], gone)]
    edits += _move_markers(raw, tools, frozenset(gone))
    for tool in left:
        inside = [at for at, one in enumerate(tool.inner) if one.name in names]
        edits += [(span, b"") for span in find_cuts(raw, [one.span for one in tool.inner], inside)]
        number += len(inside)
    return splice(raw, edits), number


def _is_gone(tool: _Tool, names: frozenset[ToolName]) -> bool:
    return all(one.name in names for one in tool.inner) if tool.inner else tool.name in names


def _move_markers(raw: bytes, tools: Sequence[_Tool], gone: frozenset[int]) -> Iterator[Edit]:
    """Cache markers of declarations that go, each for the last one before it that stays and can have it."""
    moved: dict[int, bytes] = {}
    for at in sorted(gone):
        markers = find_markers(raw[tools[at].span.start : tools[at].span.stop])
        stays = (one for one in range(at - 1, -1, -1) if one not in gone and not tools[one].is_deferred)
        target = next(stays, None) if markers else None
        if target is not None and not find_markers(raw[tools[target].span.start : tools[target].span.stop]):
            moved[target] = b"".join(b',"%b":%b' % (name.encode(), bytes(value)) for name, value in markers.items())
    for at, added in moved.items():
        end = tools[at].span.stop - 1
        yield Span(end, end), added


def _find_names(raw: bytes) -> Iterator[str]:
    try:
        yield from _walk(decode_any(raw)) if raw else ()
    except DECODE_ERRORS:
        return


def _walk(value: Any) -> Iterator[str]:
    for one in value if isinstance(value, list) else ():
        yield from _walk(one)
    for key, one in value.items() if isinstance(value, dict) else ():
        if key in {"name", "tool_name"} and isinstance(one, str):
            yield one
        else:
            yield from _walk(one)
