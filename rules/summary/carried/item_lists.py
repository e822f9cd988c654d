"""Lists of items in the arguments of calls, known by their shape.

Law: total on any JSON, of bounded size and depth. A list of other things is no list of items.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rules.summary.carried.answered import decode
from rules.summary.carried.item import MOST_ITEMS, Item, is_status, make_item, normalise

MAX_DEPTH = 3
MAX_MEMBERS = 32
"""Of one item."""
LARGEST_NUMBER = 10**18
"""Beyond it a number is no item's name."""

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
"""Where an item's words stand. Source: the tools of Claude Code, Codex, opencode, Kimi CLI, Gemini CLI, Qwen Code,
OpenHands, Copilot, Augment, LangChain (November 2026)."""
_STATUSES = ("status", "state")
_CHECKS = ("done", "completed", "complete", "checked", "finished", "iscompleted", "isdone")
_IDS = ("id", "taskid", "todoid", "stepid", "itemid", "uuid", "index", "number")
_DETAILS = ("description", "notes", "note", "details", "detail")
_AGENTS = frozenset({"prompt", "subagenttype", "instructions", "script"})
"""Members by which an agent or a program is started: what has one is no item."""
_NESTED = ("subtasks", "children", "items", "tasks", "todos", "steps", "substeps")


def read_items(value: Any) -> tuple[Item, ...] | None:
    """The items of a list, those within others behind them; None if it is no list of items.

    Text of JSON is read as what it says.
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
    """Whether each item has a known status, and words."""
    return all(item.status and is_status(item.status) and (item.label or not have_labels) for item in items)


def read_item(value: Mapping[str, Any], depth: int = 0) -> Item | None:
    """The item that an object says: its words or its id, and its status; None if it is none."""
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
    """Each item; None for what is none."""
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
    """The status as the agent wrote it; `done` or `not done` if it is a yes or no."""
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
    """A text, or a number that may be a name; nothing else."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST_NUMBER:
        return str(value)
    return value if isinstance(value, str) else ""
