"""Read lists of task items in the arguments of calls, recognised by their shape.

Law: no JSON value makes it fail; size and depth are bounded. A list with anything else in it is not a list of items.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rules.summary.carried.answered import decode
from rules.summary.carried.item import MOST_ITEMS, Item, is_status, make_item, normalise

MAX_DEPTH = 3
"""Items nested deeper are not read. Chosen: bounds the recursion."""
MAX_MEMBERS = 32
"""Maximum number of members read of one item. Chosen: bounds the work."""
LARGEST_NUMBER = 10**18
"""A larger number is not the id of an item. Chosen: it bounds the text of the id."""

_LABELS = (
    "content",
    "subject",
    "title",
    "step",
    "task",
    "text",
    "name",
    "todo",
    "item",
    "label",
    "goal",
    "description",
)
"""Members that may hold an item's label, best first. Source: the tools of Claude Code, Codex, opencode, Kimi CLI,
Gemini CLI, Qwen Code, OpenHands, Copilot, Augment and LangChain (November 2026)."""
_STATUSES = ("status", "state")
_CHECKS = ("done", "completed", "complete", "checked", "finished", "iscompleted", "isdone")
_IDS = ("id", "taskid", "todoid", "stepid", "itemid", "uuid", "index", "number")
_DETAILS = ("description", "notes", "note", "details", "detail")
_AGENTS = frozenset({"prompt", "subagenttype", "instructions", "script"})
"""Members that start an agent or a program. An object with one of them is not an item."""
_NESTED = ("subtasks", "children", "items", "tasks", "todos", "steps", "substeps")


def read_items(value: Any) -> tuple[Item, ...] | None:
    """Read the items of a list; nested items follow their parent. None if the value is not a list of items.

    A text that contains a JSON list is decoded first.
    """
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = decode(value)
    if not isinstance(value, list):
        return None
    items: list[Item] = []
    for each in _walk(value, 0):
        if each is None:
            return None
        items.append(each)
        if len(items) == MOST_ITEMS:
            break
    return tuple(items)


def have_statuses(items: Iterable[Item], *, have_labels: bool = True) -> bool:
    """Whether each item has a known status and, if `have_labels`, a label."""
    return all(item.status and is_status(item.status) and (item.label or not have_labels) for item in items)


def read_item(value: Mapping[str, Any], depth: int = 0) -> Item | None:
    """Read the item in a JSON object; None if the object is not an item: it has neither a label nor an id."""
    members = {normalise(str(key)[:64]): each for key, each in list(value.items())[:MAX_MEMBERS]}
    if not _AGENTS.isdisjoint(members):
        return None
    key = next((name for name in _LABELS if isinstance(members.get(name), str) and members[name].strip()), "")
    label = members[key] if key else ""
    details = next((members[name] for name in _DETAILS if name != key and isinstance(members.get(name), str)), "")
    item = make_item(
        label,
        _read_status(members),
        name=_first(members, _IDS),
        details="" if details == label else details,
        depth=depth,
    )
    return item if item.label or item.id else None


def _walk(values: list[Any], depth: int) -> Iterator[Item | None]:
    """Each item; None for each value that is not an item."""
    for value in values[:MOST_ITEMS]:
        if isinstance(value, str) and value.strip():
            yield make_item(value, depth=depth)
        elif isinstance(value, dict):
            yield read_item(value, depth)
            nested = next((value[key] for key in value if normalise(str(key)[:64]) in _NESTED), None)
            if isinstance(nested, list) and depth < MAX_DEPTH:
                yield from _walk(nested, depth + 1)
        else:
            yield None


def _read_status(members: Mapping[str, Any]) -> str:
    """The status as the agent wrote it; `done` or `not done` if it is a boolean."""
    said = _first(members, _STATUSES)
    if said:
        return said
    checked = next((members[name] for name in _CHECKS if isinstance(members.get(name), bool)), None)
    if checked is None:
        return ""
    return "done" if checked else "not done"


def _first(members: Mapping[str, Any], names: tuple[str, ...]) -> str:
    found = (_say(members[name]) for name in names if name in members)
    return next(filter(None, found), "")


def _say(value: Any) -> str:
    """A string, or an integer as text; empty for any other value."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST_NUMBER:
        return str(value)
    return value if isinstance(value, str) else ""
