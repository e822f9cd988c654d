"""Find and write the newest state of the agent's task list in messages that are removed, and its next open item.

Law: a list given to a task tool has priority, then a plan file, then a check list in the assistant's text. A list with
only closed items is used only if no other has open ones. If the tail contains a whole new list, nothing is carried.
Items stay as the agent wrote them. The next item is followed step by step; what is kept of the steps is bounded.
A list in a call is recognised by its shape: the name of a tool or a member only says that a list may be there.
"""

import itertools
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import structs

from trimtab.rules.conversation import CountTokens, Message, Role
from trimtab.rules.results.calls import MAX_ARGUMENTS_CHARS, decode
from trimtab.rules.summary.calls import NAME_CHARS, Answered, newest_steps, normalise, read_arguments, split_name
from trimtab.rules.summary.files import FileAct, FileEvent, find_file_events, follow_events, take_name
from trimtab.rules.summary.quoting import break_markers, fit, frame, quote_line
from trimtab.rules.summary.task_items import (
    MOST_ITEMS,
    Item,
    Rank,
    have_statuses,
    make_item,
    read_any,
    read_item,
    read_items,
    read_markdown,
    read_prose,
    strip_line_numbers,
)
from trimtab.rules.text.head_tail import truncate_text
from trimtab.rules.text.late import compile_late
from trimtab.rules.text.markers import TASK_LIST_TITLE

RESULT_CHARS = 64 * 1024  # A longer result is not read as a task list. Chosen: bounds the work.

_NOUN = compile_late(r"todo|checklist|tasklist|tasktrack|taskprogress")
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
_LIST_HINTS = tuple(
    f'"{key}"'
    for key in (
        "todo", "todos", "todo_list", "todoList", "plan", "task_list", "taskList", "tasks", "checklist",
        "task_progress", "steps",
    )
)  # fmt: skip
_CREATED = compile_late(
    r"#(\w[\w-]{0,39})|\b(?:id|ID|Id|taskId|task_id|todo_id)[\"']?\s{0,3}[:=]\s{0,3}[\"']?([\w-]{1,40})"
)


class ListCall(msgspec.Struct, frozen=True):
    """The task list in one call of the tool `source`: whole, or (not `is_whole`) what is added, changed or removed."""

    source: str
    items: tuple[Item, ...]
    is_whole: bool


def read_list_call(one: Answered) -> ListCall | None:
    """Read what a call says about the task list; None if it says nothing about it or has failed."""
    call = one.call
    if one.has_failed or (
        not _may_mean_list(call.name[:NAME_CHARS]) and not any(hint in call.arguments for hint in _LIST_HINTS)
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
    unnamed = itertools.count()
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
    is_noun = _NOUN.search(normalise(source[:NAME_CHARS])) is not None
    is_sure = is_noun or not verbs.isdisjoint(_ADDS)
    members = (_read_member(normalise(key[:64]), value, is_sure=is_sure) for key, value in arguments.items())
    items = next((each for each in members if each is not None), None)
    if items is not None:
        is_part = arguments.get("merge") is True or not verbs.isdisjoint({"add", "append", "merge"})
        return ListCall(source, items, is_whole=not is_part and all(item.label for item in items))
    # `plan` does not show that the tool manages single tasks: it may be a subscription.
    if not (is_noun or not {"task", "tasks"}.isdisjoint(split_name(source))):
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
        return structs.replace(item, id=item.id or _find_id(one))
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


SOURCE_CHARS = 120  # Maximum number of characters shown of a tool's name or a path. Chosen.
PATH_CHARS = 400  # Characters read at a path's end. Chosen: bounds the work.
UNCERTAIN = "; may be incomplete or outdated"
TEXT_CHARS = 64 * 1024
"""A longer text of the assistant is not a task list; of a file, only the beginning is read. Chosen:
bounds the work."""
OPEN = frozenset({Rank.ACTIVE, Rank.OPEN, Rank.PROSE})
MOST_LINES = 400  # Maximum number of items tried when a list is written. Chosen: bounds the work.
_FILE = compile_late(
    r"(?:[^/]{0,80}[-_. ])?(?:to-?dos?|plans?|tasks?|tasklist|checklist|progress)(?:[-_. ][^/]{0,80})?"
    r"\.(?:md|markdown|txt)",
    re.IGNORECASE,
)
_EXACT = compile_late(r"(?:to-?dos?|plan|tasks?|checklist|progress)\.(?:md|markdown|txt)", re.IGNORECASE)
"""Names of plan files that count even if the agent only read the file. Other plan files must be written by it."""
_FOLDERS = frozenset({"plans", "todos", "tasks"})
_HINTS = ("todo", "to-do", "plan", "task", "checklist", "progress")


class Kind(IntEnum):
    """The place of a list, by priority."""

    TOOL = 0
    FILE = 1
    TEXT = 2


class Extent(IntEnum):
    """How much of the task list one step tells."""

    NOTHING = 0
    PART = 1
    WHOLE = 2  # A whole list in a call: what earlier steps tell no longer matters


class TaskList(msgspec.Struct, frozen=True):
    """A task list; `items` are in the agent's order.

    `source` is the tool's name or the file's path; empty if the list is in the assistant's text. `is_uncertain`: the
    list was only seen in part, or changed since in a way that the transcript does not show.
    """

    items: tuple[Item, ...]
    source: str = ""
    is_uncertain: bool = False

    @property
    def has_open(self) -> bool:
        return any(item.rank in OPEN for item in self.items)


class _Search(msgspec.Struct):
    """The state of a backward search, from the newest message to the newest whole list in a tool call."""

    whole: ListCall | None = None
    changes: list[ListCall] = msgspec.field(default_factory=list)
    events: list[FileEvent] = msgspec.field(default_factory=list)
    said: tuple[Item, ...] = ()

    def go_back(self, messages: Sequence[Message]) -> "_Search":
        """Search messages from the newest on, until a whole list in a tool call is found. Returns itself."""
        for step in newest_steps(messages):
            for one in reversed(step.calls):
                self._read_call(one)
                if self.whole is not None:
                    return self
            if not self.said and step.message.role is Role.ASSISTANT:
                text = step.message.text
                self.said = read_markdown(text) if len(text) <= TEXT_CHARS else ()
        return self

    def take(self, kind: Kind) -> TaskList | None:
        """The newest list of a kind; None if there is none. The list is empty if the agent emptied it."""
        if kind is Kind.TOOL:
            return self._take_told()
        if kind is Kind.FILE:
            return self._take_filed()
        return TaskList(self.said) if self.said else None

    def holds_whole(self, kind: Kind) -> bool:
        """Whether a whole list of that kind was found, and not only changes of one."""
        return self.whole is not None if kind is Kind.TOOL else self.take(kind) is not None

    def _read_call(self, one: Answered) -> None:
        told = read_list_call(one)
        if told is not None and told.is_whole:
            self.whole = told
        elif told is not None:
            self.changes.append(told)
        elif _may_name_plan(one.call.arguments):
            self.events += reversed(list(find_file_events(one, _is_plan)))

    def _take_told(self) -> TaskList | None:
        told = [self.whole] if self.whole is not None else []
        told += reversed(self.changes)
        if not told:
            return None
        items = self.whole.items if self.whole is not None else ()
        state = apply_changes(items, (each.items for each in reversed(self.changes)))
        # Items that were only added, without an id or a status, cannot be updated: this is not the agent's own list.
        is_kept = self.whole is not None or any(item.id or item.status for item in state)
        return TaskList(state, told[-1].source) if is_kept else None

    def _take_filed(self) -> TaskList | None:
        written = {event.path for event in self.events if event.act is FileAct.WRITE}
        touched = {event.path for event in self.events if event.act is not FileAct.READ}
        for state in reversed(follow_events(reversed(self.events)).values()):
            if state.path not in touched and not _EXACT.fullmatch(take_name(state.path)):
                continue  # the agent only read it, and its name is not exact: it may be any document
            text = strip_line_numbers(state.text[:TEXT_CHARS])
            items = read_markdown(text, 1) or (read_prose(text) if state.path in written else ())
            if items:
                return TaskList(items, state.path, state.is_changed or state.is_partial)
        return None


def measure_tasks(step: Sequence[Message]) -> Extent:
    """How much of the task list a message and the results of its calls tell."""
    found = _Search().go_back(step)
    if found.whole is not None:
        return Extent.WHOLE
    return Extent.PART if found.changes or found.events or found.said else Extent.NOTHING


def find_task_list(removed: Sequence[Message], tail: Sequence[Message]) -> TaskList | None:
    """Return the task list as it was after `removed`; None if there is none, or if `tail` has a whole newer one."""
    found, newer = _Search().go_back(removed), _Search().go_back(tail)
    closed: TaskList | None = None
    for kind in Kind:
        if newer.holds_whole(kind):
            return None
        candidate = found.take(kind)
        if candidate is not None and candidate.has_open:
            return candidate
        closed = closed or (candidate if candidate and candidate.items else None)
    return closed


def write_task_list(task_list: TaskList, *, max_tokens: int, count: CountTokens) -> str:
    """Write the list as a quotation of at most `max_tokens`; empty if no item fits.

    Active items have priority, then open ones, then closed ones from the last on; a line says how many are left out. An
    item's details follow it if there is room. A plan in prose is shortened to head and tail.
    """
    return fit(lambda room: _write(task_list, room, count), max_tokens=max_tokens, count=count)


def _write(task_list: TaskList, room: int, count: CountTokens) -> str:
    items = task_list.items
    source = f" ({quote_line(task_list.source, SOURCE_CHARS)})" if task_list.source else ""
    title = f"## {TASK_LIST_TITLE}{source}{UNCERTAIN if task_list.is_uncertain else ''}\n"
    room -= count(frame(title))
    chosen = _choose(items, room, count)
    if len(chosen) < len(items):
        chosen = _choose(items, room - count(_tell_missing(items)), count)
    if all(items[index].rank is Rank.TITLE for index in chosen):
        return ""
    missing = _tell_missing([item for index, item in enumerate(items) if index not in chosen])
    return frame(title + missing + "".join(chosen[index] for index in sorted(chosen)))


def _choose(items: Sequence[Item], room: int, count: CountTokens) -> dict[int, str]:
    """The texts of the items that fit, by the items' indexes."""
    # By priority; of closed items the last is first.
    ranked = ((item.rank, -index if item.rank is Rank.CLOSED else index, index) for index, item in enumerate(items))
    chosen: dict[int, str] = {}
    for rank, _, index in sorted(ranked)[:MOST_LINES]:
        if room <= 0:
            break
        text = break_markers(items[index].write())
        line = f"{truncate_text(text, room - 1, count) if rank is Rank.PROSE else text}\n"
        cost = count(line)
        if cost <= room:
            chosen[index] = line
            room -= cost
    for index in sorted(chosen):
        details = break_markers(_indent(items[index]))
        cost = count(details) if details else 0
        if cost <= room:
            chosen[index] += details
            room -= cost
    return chosen


def _tell_missing(items: Sequence[Item]) -> str:
    """A line that says how many items are left out; empty if none is."""
    closed = sum(item.rank is Rank.CLOSED for item in items)
    left = sum(item.rank <= Rank.OPEN for item in items)
    return f"({left} open and {closed} closed items omitted)\n" if left or closed else ""


def _indent(item: Item) -> str:
    """The details of an item that is not closed; those of a Markdown list keep their own indentation."""
    if not item.details or item.rank is Rank.CLOSED:
        return ""
    if item.line:
        return item.details
    blanks = "  " * (item.depth + 1)
    return "".join(f"{blanks}{line}\n" for line in item.details.splitlines())


def _may_name_plan(arguments: str) -> bool:
    lowered = arguments.lower() if len(arguments) <= MAX_ARGUMENTS_CHARS else ""
    return any(hint in lowered for hint in _HINTS)


def _is_plan(path: str) -> bool:
    """Whether a path's file name or folder shows that it is a plan file."""
    *folders, name = path[-PATH_CHARS:].split("/")
    in_folder = (
        bool(folders) and folders[-1].lower() in _FOLDERS and name.lower().endswith((".md", ".markdown", ".txt"))
    )
    return in_folder or _FILE.fullmatch(name) is not None


ITEM_CHARS = 120  # Maximum number of characters of the item. Chosen: longer than almost all items of real agents.
KEPT_CHARS = 128 * 1024
"""The newest steps about the list are kept, up to this many characters together. Chosen: twice the longest plan file
that is read; bounds the work of reading them again."""


class OpenItem:
    """The steps that say something about the task list, from the newest whole list on."""

    __slots__ = ("_chars", "_found", "_is_read", "_steps")

    def __init__(self) -> None:
        self._steps: deque[tuple[Message, ...]] = deque()
        self._chars = 0
        self._found = ""
        self._is_read = True

    @property
    def size_bytes(self) -> int:
        """Memory that this takes, in bytes, roughly."""
        return self._chars

    def add(self, step: Sequence[Message]) -> None:
        """Add the next step: a message of the assistant and the results of its calls."""
        extent = measure_tasks(step)
        if extent is Extent.NOTHING:
            return
        if extent is Extent.WHOLE:
            self._steps.clear()
            self._chars = 0
        self._steps.append(tuple(step))
        self._chars += _measure(step)
        while self._chars > KEPT_CHARS and len(self._steps) > 1:
            self._chars -= _measure(self._steps.popleft())
        self._is_read = False

    def find(self) -> str:
        """The item that is being done, else the first open one, as one line; empty if there is none."""
        if not self._is_read:
            tasks = find_task_list([message for step in self._steps for message in step], ())
            items = [] if tasks is None else [item for item in tasks.items if item.rank in {Rank.ACTIVE, Rank.OPEN}]
            label = min(items, key=lambda item: item.rank).label if items else ""
            self._found = quote_line(label, ITEM_CHARS)
            self._is_read = True
        return self._found


def _measure(step: Sequence[Message]) -> int:
    texts = sum(len(text) for message in step for text in message.texts)
    return texts + sum(len(call.arguments) for message in step for call in message.tool_calls)
