"""Read lists of tasks: their items, in the arguments of calls by their shape, and in texts as check lists.

Laws: label and status of an item stay as the agent wrote them; the status is interpreted only to rank items. No JSON
value and no arguments make it fail; size and depth are bounded. A list with anything else in it is not a list of items.
Lines of a check list are kept as they are written, with the headings above and the details below them. Linear: each
line is read once, and only its beginning is matched.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from trimtab.rules.results.calls import decode
from trimtab.rules.summary.calls import normalise, read_members
from trimtab.rules.text.late import compile_late, read_table

ITEM_CHARS = 2000  # Longest label of an item, and its details. Chosen: a longer text is hardly an item.
MOST_ITEMS = 512  # Maximum number of items of one list. Chosen: no agent works on more.
ID_CHARS = 64  # Maximum number of characters of an item's id. Chosen.
STATUS_CHARS = 32  # Maximum number of characters of a status. Chosen.

_ACTIVE, _CLOSED, _OPEN = (
    frozenset(read_table(__name__)[f"{status} items"].split()) for status in ("active", "closed", "open")
)
_GONE = frozenset({"deleted", "delete", "removed", "remove"})


class Rank(IntEnum):
    """The order in which items are taken if not all of them fit."""

    ACTIVE = 0
    OPEN = 1
    TITLE = 2
    CLOSED = 3
    PROSE = 4  # A plan in prose


class Item(msgspec.Struct, frozen=True):
    """An item of a task list, a heading among items, or a plan in prose.

    `id` is the agent's own name for the item; empty if it has none. `details` is further text about it. `depth` is the
    number of items that it is nested in. `line` is the line as the agent wrote it; empty if the item was not a line.
    """

    label: str
    status: str = ""
    rank: Rank = Rank.OPEN
    id: str = ""
    details: str = ""
    depth: int = 0
    line: str = ""

    @property
    def is_gone(self) -> bool:
        """Whether the status says that the item was removed from the list."""
        return normalise(self.status) in _GONE

    def write(self) -> str:
        """Write the item as a line of a check list; as several lines if its label has line breaks."""
        if self.line:
            return self.line
        status = f"[{self.status}] " if self.status else ""
        name = f"{self.id}: " if self.id else ""
        label = self.label.replace("\n", "\n" + "  " * (self.depth + 1))
        return f"{'  ' * self.depth}- {status}{name}{label}"

    def change(self, other: "Item") -> "Item":
        status = other.status or self.status
        return replace(
            self,
            label=other.label or self.label,
            status=status,
            rank=other.rank if other.status else self.rank,
            details=other.details or self.details,
            line="",
        )


def make_item(label: str, status: str = "", *, name: str = "", details: str = "", depth: int = 0) -> Item:
    """Make an item; texts that are too long are cut."""
    status = " ".join(status[:STATUS_CHARS].split())
    name = " ".join(name[:ID_CHARS].split())
    return Item(shorten(label), status, rank_status(status), name, shorten(details), depth)


def shorten(text: str) -> str:
    """Return at most ITEM_CHARS characters of a text, without white space around it."""
    text = text[: ITEM_CHARS + 1].strip()
    return text if len(text) <= ITEM_CHARS else text[:ITEM_CHARS] + "…"


def rank_status(status: str) -> Rank:
    """Return the rank that a status gives an item. An unknown status counts as open."""
    word = normalise(status)
    if word in _CLOSED or word in _GONE:
        return Rank.CLOSED
    return Rank.ACTIVE if word in _ACTIVE else Rank.OPEN


def is_status(word: str) -> bool:
    """Whether a word is a known status of an item; an empty one is."""
    plain = normalise(word)
    return not word.strip() or plain in _CLOSED or plain in _ACTIVE or plain in _OPEN or plain in _GONE


MAX_DEPTH = 3  # Items nested deeper are not read. Chosen: bounds the recursion.
MAX_MEMBERS = 32  # Maximum number of members read of one item. Chosen: bounds the work.
LARGEST_NUMBER = 10**18  # A larger number is not the id of an item. Chosen: it bounds the text of the id.

_LABELS = (
    "content", "subject", "title", "step", "task", "text", "name", "todo", "item", "label", "goal", "description",
)  # fmt: skip
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
    """Read the items of a list, nested ones behind their parent; None for another value. JSON in a text is decoded."""
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
    members = read_members(dict(islice(value.items(), MAX_MEMBERS)))
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


FEWEST_ITEMS = 2  # Minimum number of items of a check list in the assistant's text: a single one may be an example
LINE_CHARS = ITEM_CHARS + 80
"""Maximum number of characters of an item's line: its label, and its bullet, number and status before that. Chosen."""
PROSE_CHARS = 64 * 1024  # Maximum number of characters read of a plan in prose. Chosen: bounds the work.
DETAIL_LINES = 8  # Maximum number of detail lines below one item. Chosen.
HEADING_CHARS = 200  # Maximum number of characters of a heading. Chosen.

_BULLET = r"^[ \t]{0,40}(?:[-*+•][ \t]{1,4}|\d{1,4}[.)][ \t]{1,4})"
_MARKDOWN = compile_late(rf"{_BULLET}\[(?P<status>[ xX~/>*!✓✔-])\][ \t]{{1,8}}(?P<label>\S)", re.MULTILINE)
_SIGNS = "☐☑☒✅⬜✔✓◻◼🔄⏳❌○◐"
_ANY = compile_late(
    rf"^[ \t]{{0,40}}(?:[-*+•][ \t]{{0,4}})?(?:\d{{1,4}}[.):][ \t]{{1,4}})?"
    r"(?:\#?(?P<id>\w[\w-]{0,39})[.:]?[ \t]{1,4})?"
    rf"(?:\[(?P<status>[^\[\]\n]{{1,20}})\]|(?P<sign>[{_SIGNS}])\ufe0f?)[ \t]{{1,8}}(?P<label>\S)",
    re.MULTILINE,
)
_HEADING = compile_late(r"#{1,6}[ \t]{1,8}\S|\*\*[^*]{1,160}\*\*:?[ \t]*\Z")
_NUMBERED = compile_late(r"[ \t]{0,8}\d{1,6}(?:\t|→|│|\|)[ \t]?")
_HINTS = ("[ ]", "[x]", "[X]", "[~]", "[/]", "[-]", "[>]", "[*]", "[✓]", "[✔]")


def read_markdown(text: str, fewest: int = FEWEST_ITEMS) -> tuple[Item, ...]:
    """Read the check list in a Markdown text: items and headings above them. Empty if there are fewer than `fewest`."""
    return _read(text, _MARKDOWN, fewest) if any(hint in text for hint in _HINTS) else ()


def read_any(text: str, fewest: int = 1) -> tuple[Item, ...]:
    """Read a text that is a task list: statuses are words or signs, bullets may lack. Empty below `fewest` items."""
    return _read(text, _ANY, fewest)


def read_prose(text: str) -> tuple[Item, ...]:
    """Take a plan in prose as one item with all of its text; no item if the text has only one line."""
    text = text[:PROSE_CHARS].strip()
    return (Item(shorten(text), rank=Rank.PROSE, line=text),) if "\n" in text else ()


def strip_line_numbers(text: str) -> str:
    """Remove the line numbers that a tool wrote before the lines of a text, if most lines have one."""
    lines = text.split("\n")
    starts = [_NUMBERED.match(line) for line in lines]
    if sum(start is not None for start in starts) * 2 <= len(lines):
        return text
    return "\n".join(line[start.end() :] if start else line for line, start in zip(lines, starts, strict=True))


def _read(text: str, form: re.Pattern[str], fewest: int) -> tuple[Item, ...]:
    if sum(1 for _ in islice(form.finditer(text), fewest)) < fewest:
        return ()
    items: list[Item] = []
    title: Item | None = None
    number = details = 0
    for line in text.splitlines():
        item = _read_line(line, form)
        if item is not None:
            items.extend((title, item) if title else (item,))
            title, number, details = None, number + 1, 0
            if number == MOST_ITEMS:
                break
        elif _HEADING.match(line):
            title, details = (
                Item(line[:HEADING_CHARS], rank=Rank.TITLE, line=line[:HEADING_CHARS].rstrip()),
                DETAIL_LINES,
            )
        elif line.strip() and line[0] in " \t" and items and details < DETAIL_LINES:
            items[-1] = replace(items[-1], details=f"{items[-1].details}{line[:ITEM_CHARS].rstrip()}\n")
            details += 1
        else:
            details = DETAIL_LINES
    return tuple(items) if number >= fewest else ()


def _read_line(line: str, form: re.Pattern[str]) -> Item | None:
    found = form.match(line)
    if found is None:
        return None
    parts = found.groupdict()
    status = parts["status"] or parts.get("sign") or ""
    if not is_status(status):
        return None
    label = shorten(line[found.start("label") :])
    return Item(label, status.strip(), rank_status(status), parts.get("id") or "", line=line[:LINE_CHARS].rstrip())
