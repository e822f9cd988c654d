"""Check lists in texts: which lines are items, and which belong to them.

Law: lines stand as they are. Linear: each line is looked at once, and only its beginning is matched.
"""

import re
from dataclasses import replace
from itertools import islice

from rules.summary.carried.item import ITEM_CHARS, MOST_ITEMS, Item, Rank, is_status, rank_status, shorten

FEWEST_ITEMS = 2
"""Of a check list in what the assistant says: a single one may be an example."""
LINE_CHARS = ITEM_CHARS + 80
PROSE_CHARS = 64 * 1024
DETAIL_LINES = 8
"""Below one item."""
HEADING_CHARS = 200

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
    """The items of the check list in a Markdown text, with the headings above them; none of fewer than `fewest`."""
    return _read(text, _MARKDOWN, fewest) if any(hint in text for hint in _HINTS) else ()


def read_any(text: str, fewest: int = 1) -> tuple[Item, ...]:
    """The same of a text that is known for a task list: statuses may be words or signs, and bullets may be missing."""
    return _read(text, _ANY, fewest)


def read_prose(text: str) -> tuple[Item, ...]:
    """A plan that is no check list, as it stands; nothing of one line."""
    text = text[:PROSE_CHARS].strip()
    return (Item(shorten(text), rank=Rank.PROSE, line=text),) if "\n" in text else ()


def strip_line_numbers(text: str) -> str:
    """A text without the numbers that a tool wrote before each of its lines."""
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
