"""The newest state of the agent's task list among messages that are removed.

Law: what a tool of lists was told counts most, then a file of plans, then a check list in the assistant's words. One
whose items are all closed gives way to what is newer. If the tail says all of a list anew, nothing is carried. Items
stand as the agent wrote them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from rules.conversation import CountTokens, Message, Role
from rules.results.tools.arguments import MAX_ARGUMENTS_CHARS
from rules.summary.carried.answered import Answered, newest_steps
from rules.summary.carried.check_lists import read_markdown, read_prose, strip_line_numbers
from rules.summary.carried.file_calls import find_file_events
from rules.summary.carried.file_events import FileAct, FileEvent, follow_events, take_name
from rules.summary.carried.item import Item, Rank
from rules.summary.carried.list_calls import ListCall, apply_changes, read_list_call
from rules.summary.carried.quotation import fit, frame
from rules.summary.quoting import break_markers, quote_line
from rules.text.head_tail import truncate_text
from rules.text.markers import TASK_LIST_TITLE

SOURCE_CHARS = 120
PATH_CHARS = 400
UNCERTAIN = "; may be incomplete or outdated"
TEXT_CHARS = 64 * 1024
"""A longer text of the assistant or of a file is no task list."""
OPEN = frozenset({Rank.ACTIVE, Rank.OPEN, Rank.PROSE})
MOST_LINES = 400
"""That are tried when a list is written."""
_FILE = re.compile(
    r"(?:[^/]{0,80}[-_. ])?(?:to-?dos?|plans?|tasks?|tasklist|checklist|progress)(?:[-_. ][^/]{0,80})?"
    r"\.(?:md|markdown|txt)",
    re.IGNORECASE,
)
_EXACT = re.compile(r"(?:to-?dos?|plan|tasks?|checklist|progress)\.(?:md|markdown|txt)", re.IGNORECASE)
"""Names that a file of plans has even if the agent only reads it."""
_FOLDERS = frozenset({"plans", "todos", "tasks"})
_HINTS = ("todo", "to-do", "plan", "task", "checklist", "progress")


class Kind(IntEnum):
    """Where a list was written, the most telling first."""

    TOOL = 0
    FILE = 1
    TEXT = 2


@dataclass(frozen=True, slots=True)
class TaskList:
    """`items` in their order; `source` is the tool or the file, empty if the assistant said it.

    `is_uncertain` if the list was changed since in ways that the transcript does not tell, or was seen in part.
    """

    items: tuple[Item, ...]
    source: str = ""
    is_uncertain: bool = False

    @property
    def has_open(self) -> bool:
        """Whether anything is left to do."""
        return any(item.rank in OPEN for item in self.items)


@dataclass(slots=True)
class _Search:
    """What was found on the way from the newest message back to the newest list that a tool was told whole."""

    whole: ListCall | None = None
    changes: list[ListCall] = field(default_factory=list)
    events: list[FileEvent] = field(default_factory=list)
    said: tuple[Item, ...] = ()

    def go_back(self, messages: Sequence[Message]) -> "_Search":
        """Search messages up to that list, or all of them."""
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
        """The newest list of a kind; an empty one if it was emptied."""
        if kind is Kind.TOOL:
            return self._take_told()
        if kind is Kind.FILE:
            return self._take_filed()
        return TaskList(self.said) if self.said else None

    def holds_whole(self, kind: Kind) -> bool:
        """Whether all of a list of that kind was found, and not only changes of one."""
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
        # What is only added, without a name or a status to change it by, is not what the agent keeps for itself.
        is_kept = self.whole is not None or any(item.id or item.status for item in state)
        return TaskList(state, told[-1].source) if is_kept else None

    def _take_filed(self) -> TaskList | None:
        written = {event.path for event in self.events if event.act is FileAct.WRITE}
        touched = {event.path for event in self.events if event.act is not FileAct.READ}
        for state in reversed(follow_events(reversed(self.events)).values()):
            if state.path not in touched and not _EXACT.fullmatch(take_name(state.path)):
                continue  # it is some document's
            text = strip_line_numbers(state.text[:TEXT_CHARS])
            items = read_markdown(text, 1) or (read_prose(text) if state.path in written else ())
            if items:
                return TaskList(items, state.path, state.is_changed or state.is_partial)
        return None


def find_task_list(removed: Sequence[Message], tail: Sequence[Message]) -> TaskList | None:
    """The list as it stood after `removed`; None if there is none, or if `tail` holds all of a newer one."""
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
    """The list as a quotation of at most `max_tokens`; empty if no item fits.

    What is being done goes first, then what is open, then what is closed, the last of it first; what is left out is
    told. Further words on an item stand below it if there is room; of a plan in prose, head and tail.
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
    """What stands for the items that fit, by their places."""
    chosen: dict[int, str] = {}
    for index in _order(items):
        if room <= 0:
            break
        line = _write_item(items[index], room, count)
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


def _write_item(item: Item, room: int, count: CountTokens) -> str:
    """A line of the list; as much of prose as there is room for."""
    text = break_markers(item.write())
    return f"{truncate_text(text, room - 1, count) if item.rank is Rank.PROSE else text}\n"


def _order(items: Sequence[Item]) -> list[int]:
    """The places of the items, what matters most first; of what is closed, the last first."""
    ranked = ((item.rank, -index if item.rank is Rank.CLOSED else index, index) for index, item in enumerate(items))
    return [index for _, _, index in sorted(ranked)[:MOST_LINES]]


def _tell_missing(items: Sequence[Item]) -> str:
    """A line that says how many items are left out; nothing if none is."""
    closed = sum(item.rank is Rank.CLOSED for item in items)
    left = sum(item.rank <= Rank.OPEN for item in items)
    return f"({left} open and {closed} closed items omitted)\n" if left or closed else ""


def _indent(item: Item) -> str:
    """The further words on an item that is not closed; those of a Markdown list stand as they do there."""
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
    """Whether a file is one of plans by its name, or by its folder's."""
    *folders, name = path[-PATH_CHARS:].split("/")
    in_folder = (
        bool(folders) and folders[-1].lower() in _FOLDERS and name.lower().endswith((".md", ".markdown", ".txt"))
    )
    return in_folder or _FILE.fullmatch(name) is not None
