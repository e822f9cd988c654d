"""Read check lists in texts: the items, the headings above them and the details below them.

Law: lines are kept as they are written. Linear: each line is read once, and only its beginning is matched.
"""

import re
from dataclasses import replace
from itertools import islice

from rules.summary.carried.item import ITEM_CHARS, MOST_ITEMS, Item, Rank, is_status, rank_status, shorten

FEWEST_ITEMS = 2
"""Minimum number of items of a check list in the assistant's text: a single one may be an example."""
LINE_CHARS = ITEM_CHARS + 80
"""Maximum number of characters of an item's line: its label, and its bullet, number and status before that. Chosen."""
PROSE_CHARS = 64 * 1024
"""Maximum number of characters read of a plan in prose. Chosen: bounds the work."""
DETAIL_LINES = 8
"""Maximum number of detail lines below one item. Chosen."""
HEADING_CHARS = 200
"""Maximum number of characters of a heading. Chosen."""

_BULLET = r"^[ \t]{0,40}(?:[-*+•][ \t]{1,4}|\d{1,4}[.)][ \t]{1,4})"
_MARKDOWN = re.compile(rf"{_BULLET}\[(?P<status>[ xX~/>*!✓✔-])\][ \t]{{1,8}}(?P<label>\S)", re.MULTILINE)
_SIGNS = "☐☑☒✅⬜✔✓◻◼🔄⏳❌○◐"
_ANY = re.compile(
    rf"^[ \t]{{0,40}}(?:[-*+•][ \t]{{0,4}})?(?:\d{{1,4}}[.):][ \t]{{1,4}})?"
    r"(?:\#?(?P<id>\w[\w-]{0,39})[.:]?[ \t]{1,4})?"
    rf"(?:\[(?P<status>[^\[\]\n]{{1,20}})\]|(?P<sign>[{_SIGNS}])\ufe0f?)[ \t]{{1,8}}(?P<label>\S)",
    re.MULTILINE,
)
_HEADING = re.compile(r"#{1,6}[ \t]{1,8}\S|\*\*[^*]{1,160}\*\*:?[ \t]*\Z")
_NUMBERED = re.compile(r"[ \t]{0,8}\d{1,6}(?:\t|→|│|\|)[ \t]?")
_HINTS = ("[ ]", "[x]", "[X]", "[~]", "[/]", "[-]", "[>]", "[*]", "[✓]", "[✔]")


def read_markdown(text: str, fewest: int = FEWEST_ITEMS) -> tuple[Item, ...]:
    """Read the check list in a Markdown text: its items and the headings above them.

    Empty if there are fewer than `fewest` items.
    """
    return _read(text, _MARKDOWN, fewest) if any(hint in text for hint in _HINTS) else ()


def read_any(text: str, fewest: int = 1) -> tuple[Item, ...]:
    """Read a text that is known to be a task list: statuses may be words or signs, and bullets may be missing.

    Empty if there are fewer than `fewest` items.
    """
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
