"""Read what a call says about the agent's task list: a whole new list, or changes of single items.

Law: a list is recognised by its shape. The name of a tool or a member only says that a list may be there.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from typing import Any

from trimtab.rules.conversation import Message
from trimtab.rules.results.calls import decode
from trimtab.rules.summary.calls import NAME_CHARS, Answered, normalise, read_arguments, split_name
from trimtab.rules.summary.carried.items import (
    MOST_ITEMS,
    Item,
    have_statuses,
    make_item,
    read_any,
    read_item,
    read_items,
    read_markdown,
    read_prose,
)

RESULT_CHARS = 64 * 1024
"""A longer result is not read as a task list. Chosen: bounds the work."""

_NOUN = re.compile(r"todo|checklist|tasklist|tasktrack|taskprogress")
_NOUNS = frozenset({"task", "tasks", "plan", "plans", "updateplan"})
_ADDS = frozenset({"add", "append", "create", "new", "insert"})
_CHANGES = frozenset(
    {"update", "edit", "set", "mark", "complete", "finish", "start", "delete", "remove", "cancel", "completed", "done"}
)
_READS = frozenset({"list", "view", "read", "get", "show", "todoread"})
_STATUS_VERBS = _CHANGES - {"update", "edit", "set", "mark"}
_OPERATIONS = ("action", "command", "operation", "op", "method")
_KEYS = frozenset(
    {"todo", "todos", "todolist", "plan", "plans", "tasklist", "tasks", "checklist", "taskprogress", "steps"}
)
_TEXTS = frozenset({"", "content", "markdown", "text", "list", "input", "value"})
"""Members in which a task tool may take a whole list as text. `description` is not one: it is about one item."""
_HINTS = tuple(
    f'"{key}"'
    for key in (
        "todo", "todos", "todo_list", "todoList", "plan", "task_list", "taskList", "tasks", "checklist",
        "task_progress", "steps",
    )
)  # fmt: skip
_CREATED = re.compile(
    r"#(\w[\w-]{0,39})|\b(?:id|ID|Id|taskId|task_id|todo_id)[\"']?\s{0,3}[:=]\s{0,3}[\"']?([\w-]{1,40})"
)


@dataclass(frozen=True, slots=True)
class ListCall:
    """The task list in one call of the tool `source`: whole, or (not `is_whole`) what is added, changed or removed."""

    source: str
    items: tuple[Item, ...]
    is_whole: bool


def read_list_call(one: Answered) -> ListCall | None:
    """Read what a call says about the task list; None if it says nothing about it or has failed."""
    call = one.call
    if one.has_failed or (
        not _may_mean_list(call.name[:NAME_CHARS]) and not any(hint in call.arguments for hint in _HINTS)
    ):
        return None
    arguments = read_arguments(call)
    if _may_mean_list(call.name[:NAME_CHARS]):
        return _read_known(one, arguments)
    items = next(filter(None, (_read_unknown(key, value) for key, value in arguments.items())), ())
    return ListCall(call.name, items, is_whole=True) if items else None


def leave_out_lists(message: Message) -> Message:
    """The message without calls that set a whole task list: the newest is carried over the cut, or is in the tail."""
    told = (read_list_call(Answered(call, None)) for call in message.tool_calls)
    calls = tuple(call for call, one in zip(message.tool_calls, told, strict=True) if one is None or not one.is_whole)
    return message if len(calls) == len(message.tool_calls) else replace(message, tool_calls=calls)


def apply_changes(items: Sequence[Item], changes: Iterable[Sequence[Item]]) -> tuple[Item, ...]:
    """The list after changes, oldest first: items are matched by id, new ones added, deleted ones removed."""
    unnamed = count()
    state = {item.id or f"\0{next(unnamed)}": item for item in items}
    for item in (item for change in changes for item in change):
        known = state.get(item.id) if item.id else None
        if item.is_gone:
            state.pop(item.id, None)
        elif known is not None:
            state[item.id] = known.change(item)
        elif item.label:
            state[item.id or f"\0{next(unnamed)}"] = item
    return tuple(state.values())[-MOST_ITEMS:]


@lru_cache(maxsize=512)
def _may_mean_list(name: str) -> bool:
    """Whether the beginning of a tool's name contains a word for a task list or a plan."""
    return _NOUN.search(normalise(name)) is not None or not _NOUNS.isdisjoint(split_name(name))


def _read_known(one: Answered, arguments: Mapping[str, Any]) -> ListCall | None:
    """The list or the changes in a call of a tool that, by its name, may keep a list."""
    source = one.call.name
    names = (source, *(arguments[key] for key in _OPERATIONS if isinstance(arguments.get(key), str)))
    verbs = {verb for name in names for verb in split_name(name)}
    is_sure = _NOUN.search(normalise(source[:NAME_CHARS])) is not None or not verbs.isdisjoint(_ADDS)
    members = (_read_member(normalise(key[:64]), value, is_sure=is_sure) for key, value in arguments.items())
    items = next((each for each in members if each is not None), None)
    if items is not None:
        is_part = arguments.get("merge") is True or not verbs.isdisjoint({"add", "append", "merge"})
        return ListCall(source, items, is_whole=not is_part and all(item.label for item in items))
    if not _keeps_tasks(source):
        return None
    item = read_item(arguments)
    if item is not None:
        change = _read_change(one, item, verbs)
        return ListCall(source, (change,), is_whole=False) if change is not None else None
    items = () if verbs.isdisjoint(_READS) else _read_result(one)
    return ListCall(source, items, is_whole=True) if items else None


def _read_unknown(key: str, value: Any) -> tuple[Item, ...]:
    """The task list in a member of another tool's call. The member's name and each item's status must show it."""
    if normalise(key[:64]) not in _KEYS:
        return ()
    items = read_items(value) or ()
    if items and have_statuses(items):
        return items
    return read_markdown(value, 1) if isinstance(value, str) else ()


def _read_member(key: str, value: Any, *, is_sure: bool) -> tuple[Item, ...] | None:
    """The task list in a member of a call whose tool may keep one; None if there is no list. The list may be empty.

    If it is not sure that the tool keeps a list, `tasks` may also be work for a program. Then each item needs a status.
    """
    is_named = key in _KEYS and (is_sure or key != "tasks")
    items = read_items(value)
    if items is not None:
        return items if is_named or (items and have_statuses(items, have_labels=False)) else None
    if not isinstance(value, str) or not (is_named or key in _TEXTS):
        return None
    return read_any(value) or (read_prose(value) if is_named else ()) or None


def _read_change(one: Answered, item: Item, verbs: set[str]) -> Item | None:
    """The single item that a call adds or changes; None if the call only refers to it."""
    if item.label and not verbs.isdisjoint(_ADDS):
        return replace(item, id=item.id or _find_id(one))
    if not item.id or verbs.isdisjoint(_CHANGES):
        return None
    said = next((verb for verb in sorted(verbs) if verb in _STATUS_VERBS), "")
    return item.change(make_item("", said)) if said and not item.status else item


def _find_id(one: Answered) -> str:
    """The id that a result gives an added item; empty if there is none."""
    found = _CREATED.search(one.result.text[:400]) if one.result is not None else None
    return "" if found is None else found[1] or found[2]


def _read_result(one: Answered) -> tuple[Item, ...]:
    """The list in a result; empty if there is none."""
    text = one.result.text if one.result is not None else ""
    if len(text) > RESULT_CHARS:
        return ()
    value = decode(text)
    if isinstance(value, dict):
        value = next((each for key, each in value.items() if normalise(key[:64]) in _KEYS), None)
    items = read_items(value) if isinstance(value, list) else None
    return items if items and have_statuses(items) else read_any(text)


def _keeps_tasks(name: str) -> bool:
    """Whether a tool's name shows that it manages single tasks. `plan` does not suffice: it may be a subscription."""
    return _NOUN.search(normalise(name[:NAME_CHARS])) is not None or not {"task", "tasks"}.isdisjoint(split_name(name))
