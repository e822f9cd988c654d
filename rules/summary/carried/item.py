"""One item of a task list: its label and its status.

Law: values only. Label and status stay as the agent wrote them. The status is interpreted only to rank items.
"""

import re
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache

ITEM_CHARS = 2000
"""Maximum number of characters of an item's label, and of its details. Chosen: a longer text is hardly an item."""
MOST_ITEMS = 512
"""Maximum number of items of one list. Chosen: no agent works on more."""
ID_CHARS = 64
"""Maximum number of characters of an item's id. Chosen."""
STATUS_CHARS = 32
"""Maximum number of characters of a status. Chosen."""

_PLAIN = re.compile(r"[^\w]|_")
# The statuses of the tools that item_lists.py names (normalised), and the signs of check lists. `-` means "in progress"
# in one tool and "cancelled" in another. It counts as active, so that work in progress is not lost.
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
    """The order in which items are taken if not all of them fit."""

    ACTIVE = 0
    OPEN = 1
    TITLE = 2
    CLOSED = 3
    PROSE = 4
    """A plan in prose."""


@dataclass(frozen=True, slots=True)
class Item:
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
        """Return the item updated with all that `other` specifies."""
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


@lru_cache(maxsize=2048)
def normalise(word: str) -> str:
    """Return a status or a key in lower case, without spaces and signs. A text of only signs stays as it is."""
    plain = _PLAIN.sub("", word).lower()
    return plain or word.strip()


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
