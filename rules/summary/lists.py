"""Lists of what happened, within a budget: the user's rows as they are, all others in one quotation.

Law: rows are taken or left whole, the newest first, so that the quotation is always closed. Nothing that a row says
can end it: markers are broken across rows, too.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rules.conversation import CountTokens
from rules.summary.quoting import break_markers
from rules.text.head_tail import truncate_text
from rules.text.markers import QUOTE_END, QUOTE_START

ROUNDS = 8
"""Of fitting at most: rows are counted one by one, and cost a little less or more together."""

LINE_CHARS = 240
"""Of a line that several rows share."""


@dataclass(frozen=True, slots=True)
class Rows:
    """One list: single lines, oldest first. `share` is the part of the budget that is kept for it if it needs that.

    `unit` is what `left_out` rows are counted in; without it they are not counted. Rows that the `user` said stand
    outside the quotation, and the first of them goes last. `order` are the places of rows in the order in which they
    are taken, if that is not the newest first. With a `joint` between them rows share lines.
    """

    title: str
    rows: tuple[str, ...]
    share: float
    unit: str = ""
    left_out: int = 0
    is_users: bool = False
    order: tuple[int, ...] = ()
    joint: str = ""


def write_lists(opening: str, lists: Sequence[Rows], *, max_tokens: int, count: CountTokens) -> str:
    """`opening` and the lists below it, at most `max_tokens`."""
    room = max_tokens - count(opening)
    frame = count(f"{QUOTE_START}\n{QUOTE_END}\n") if any(one.rows and not one.is_users for one in lists) else 0
    if room <= frame:
        frame, lists = 0, [one for one in lists if one.is_users]
    costs = [_count_rows(one, room, count) for one in lists]
    for number in range(ROUNDS):
        if room <= frame:
            break
        chosen = _choose(lists, costs, room - frame)
        if frame and not any(one.rows and not one.is_users for one in chosen):
            return write_lists(opening, [one for one in lists if one.is_users], max_tokens=max_tokens, count=count)
        text = opening + _render(chosen)
        excess = count(text) - max_tokens
        if excess <= 0:
            return text
        room -= max(excess, room >> (ROUNDS - number))
    return truncate_text(opening, max_tokens, count)


def _render(lists: Sequence[Rows]) -> str:
    said = "".join(_write(one, "- ") for one in lists if one.is_users)
    quoted = "".join(_write(one, "> ") for one in lists if not one.is_users)
    return f"{said}{QUOTE_START}\n{quoted}{QUOTE_END}\n" if quoted else said


def _write(rows: Rows, prefix: str) -> str:
    """A list under its title; what is left out is told before it, or behind the user's first row."""
    if not rows.rows:
        return ""
    first = 1 if rows.is_users else 0
    left_out = f"({rows.left_out} earlier {rows.unit} omitted)\n" if rows.left_out and rows.unit else ""
    lines = tuple(_join(rows.rows, rows.joint)) if rows.joint else rows.rows
    groups = (_list(lines[:first], prefix), left_out, _list(lines[first:], prefix))
    return f"## {rows.title}\n{''.join(groups)}"


def _join(rows: Iterable[str], joint: str) -> Iterator[str]:
    """Lines of several rows; no more than LINE_CHARS, unless one row alone is longer."""
    line = ""
    for row in rows:
        if line and len(line) + len(row) > LINE_CHARS:
            yield line
            line = ""
        line += joint + row if line else row
    if line:
        yield line


def _list(rows: Iterable[str], prefix: str) -> str:
    return break_markers("".join(f"{prefix}{row}\n" for row in rows))


def _choose(lists: Sequence[Rows], costs: Sequence[Sequence[int]], room: int) -> list[Rows]:
    """Rows that cost at most `room`: of each list what its share allows, then what is left, the last list first."""
    taken = [0] * len(lists)
    left = room
    for index, one in enumerate(lists):
        left -= _take(costs[index], taken, index, min(left, int(room * one.share)))
    for index in reversed(range(len(lists))):
        left -= _take(costs[index], taken, index, left)
    return [_keep(one, number) for one, number in zip(lists, taken, strict=True)]


def _count_rows(rows: Rows, room: int, count: CountTokens) -> list[int]:
    """What rows cost in the order in which they are taken, the title with the first; only as many as have `room`."""
    title = count(f"## {rows.title}\n") + (
        count(f"({len(rows.rows)} earlier {rows.unit} omitted)\n") if rows.unit else 0
    )
    costs: list[int] = []
    for place in _order(rows):
        row = rows.rows[place]
        costs.append(count(f"{rows.joint}{row}" if rows.joint else f"> {row}\n") + (0 if costs else title))
        room -= costs[-1]
        if room < 0:
            break
    return costs


def _order(rows: Rows) -> Sequence[int]:
    """The places of rows in the order in which they are taken."""
    if rows.order:
        return rows.order
    newest_first = range(len(rows.rows) - 1, -1, -1)
    return [0, *newest_first[:-1]] if rows.is_users and rows.rows else newest_first


def _take(costs: Sequence[int], taken: list[int], index: int, budget: int) -> int:
    """Take further rows of a list within `budget`; what they cost."""
    spent = 0
    for cost in costs[taken[index] :]:
        if spent + cost > budget:
            break
        spent += cost
        taken[index] += 1
    return spent


def _keep(rows: Rows, number: int) -> Rows:
    """The list with `number` of its rows."""
    missing = len(rows.rows) - number
    if not missing:
        return rows
    kept = tuple(rows.rows[place] for place in sorted(_order(rows)[:number]))
    return replace(rows, rows=kept, order=(), left_out=rows.left_out + missing)
