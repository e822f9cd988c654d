"""One item of a task list: its words, and the status that was given to it.

Law: values. Words and status stand as the agent wrote them; only how urgent an item is, is read from its status.
"""

import re
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache

ITEM_CHARS = 2000
"""Of an item's words, and of its details: beyond them it is no item."""
MOST_ITEMS = 512
"""Of one list: no agent works on more."""
ID_CHARS = 64
STATUS_CHARS = 32

_PLAIN = re.compile(r"[^\w]|_")
# The statuses of the tools that item_lists.py names, without blanks and signs, and the signs of check lists. `-` is an
# item that is worked on in one tool, and a cancelled one in another: it counts as open.
_ACTIVE = frozenset({
    "~", "/", ">", "*", "-", "🔄", "▶", "◐", "inprogress", "active", "current", "doing", "ongoing", "running",
    "started", "working", "进行中",
})  # fmt: skip
_CLOSED = frozenset({
    "x", "✓", "✔", "☑", "☒", "✅", "❌", "✗", "done", "complete", "completed", "finish", "finished", "closed",
    "resolved", "cancelled", "canceled", "cancel", "skipped", "dropped", "abandoned", "obsolete",
    "完成", "已完成", "已取消",
})  # fmt: skip
_OPEN = frozenset({
    "!", "☐", "⬜", "◻", "○", "⏳", "pending", "todo", "open", "notstarted", "notdone", "start", "new", "planned",
    "waiting", "blocked", "failed", "queued", "待办", "未开始",
})  # fmt: skip
_GONE = frozenset({"deleted", "delete", "removed", "remove"})


class Rank(IntEnum):
    """What goes first if not all fits."""

    ACTIVE = 0
    OPEN = 1
    TITLE = 2
    CLOSED = 3
    PROSE = 4
    """A plan that is no list."""


@dataclass(frozen=True, slots=True)
class Item:
    """An item, a heading among items, or a plan in prose.

    `id` is what the agent calls it by, if it does. `details` are further words on it. `depth` says in how many others
    it stands. `line` is the line that says all this as the agent wrote it; empty if it was no line.
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
        """Whether the status says that the item is taken off the list."""
        return normalise(self.status) in _GONE

    def write(self) -> str:
        """The item as a line of a check list; with line breaks if its words have some."""
        if self.line:
            return self.line
        status = f"[{self.status}] " if self.status else ""
        name = f"{self.id}: " if self.id else ""
        label = self.label.replace("\n", "\n" + "  " * (self.depth + 1))
        return f"{'  ' * self.depth}- {status}{name}{label}"

    def change(self, other: "Item") -> "Item":
        """The item with whatever the other one says anew."""
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
    """An item of bounded size."""
    status = " ".join(status[:STATUS_CHARS].split())
    name = " ".join(name[:ID_CHARS].split())
    return Item(shorten(label), status, rank_status(status), name, shorten(details), depth)


def shorten(text: str) -> str:
    """At most ITEM_CHARS of a text, without blanks around it."""
    text = text[: ITEM_CHARS + 1].strip()
    return text if len(text) <= ITEM_CHARS else text[:ITEM_CHARS] + "…"


@lru_cache(maxsize=2048)
def normalise(word: str) -> str:
    """A status or a key in small letters, without blanks and signs; a sign alone stays."""
    plain = _PLAIN.sub("", word).lower()
    return plain or word.strip()


def rank_status(status: str) -> Rank:
    """How urgent a status makes an item; one that nobody knows makes it open."""
    word = normalise(status)
    if word in _CLOSED or word in _GONE:
        return Rank.CLOSED
    return Rank.ACTIVE if word in _ACTIVE else Rank.OPEN


def is_status(word: str) -> bool:
    """Whether a word is known as a status of an item."""
    plain = normalise(word)
    return not word.strip() or plain in _CLOSED or plain in _ACTIVE or plain in _OPEN or plain in _GONE
