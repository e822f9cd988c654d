"""Write lists of what happened within a token budget: the user's rows plainly, all other rows in one quotation.

Law: a row is taken whole or left out, so the quotation is always closed. No text of a row can close it: markers are
broken, also those that span several rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rules.conversation import CountTokens
from rules.summary.quoting import break_markers
from rules.text.head_tail import truncate_text
from rules.text.markers import QUOTE_END, QUOTE_START

ROUNDS = 8
"""Maximum number of attempts to fit the budget. Rows are counted one by one, and their sum differs a little from the
count of the whole text, so the first attempt may be too long. Chosen: bounds the work."""

LINE_CHARS = 240
"""Maximum number of characters of a line that several rows share. Chosen."""


@dataclass(frozen=True, slots=True)
class Rows:
    """One list. Each row is a single line; the oldest is first.

    - `share`: the part of the budget that is reserved for this list.
    - `unit`: the name of what `left_out` counts. Without it, the list does not say how many rows are left out.
    - `is_users`: the user or the client said these rows. They are written outside the quotation, and the first row is
      taken first.
    - `order`: the indexes of rows in the order in which they are taken. If empty: the newest first.
    - `joint`: if set, several rows share a line, with this text between them.
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
    """Write `opening` and the lists below it, together at most `max_tokens`.

    If there is no room for the quotation, only the user's lists are written; if there is no room for any row, only
    `opening`, shortened if it must be.
    """
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
        room -= max(excess, room >> (ROUNDS - number))  # ever larger steps, so that few rounds suffice
    return truncate_text(opening, max_tokens, count)


def _render(lists: Sequence[Rows]) -> str:
    said = "".join(_write(one, "- ") for one in lists if one.is_users)
    quoted = "".join(_write(one, "> ") for one in lists if not one.is_users)
    return f"{said}{QUOTE_START}\n{quoted}{QUOTE_END}\n" if quoted else said


def _write(rows: Rows, prefix: str) -> str:
    """A list below its title. If rows are left out, a line says how many, before the rows or after the user's first."""
    if not rows.rows:
        return ""
    first = 1 if rows.is_users else 0
    left_out = f"({rows.left_out} earlier {rows.unit} omitted)\n" if rows.left_out and rows.unit else ""
    lines = tuple(_join(rows.rows, rows.joint)) if rows.joint else rows.rows
    groups = (_list(lines[:first], prefix), left_out, _list(lines[first:], prefix))
    return f"## {rows.title}\n{''.join(groups)}"


def _join(rows: Iterable[str], joint: str) -> Iterator[str]:
    """The rows joined to lines of at most LINE_CHARS characters, unless one row alone is longer."""
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
    """The lists with rows that cost at most `room`.

    Each list first gets rows for its share. The rest of the room is then filled from the last list to the first.
    """
    taken = [0] * len(lists)
    left = room
    for index, one in enumerate(lists):
        left -= _take(costs[index], taken, index, min(left, int(room * one.share)))
    for index in reversed(range(len(lists))):
        left -= _take(costs[index], taken, index, left)
    return [_keep(one, number) for one, number in zip(lists, taken, strict=True)]


def _count_rows(rows: Rows, room: int, count: CountTokens) -> list[int]:
    """The tokens of rows, in the order in which they are taken; the first includes the title.

    Counting stops after the first row that exceeds `room`.
    """
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
    """The indexes of rows in the order in which they are taken."""
    if rows.order:
        return rows.order
    newest_first = range(len(rows.rows) - 1, -1, -1)
    return [0, *newest_first[:-1]] if rows.is_users and rows.rows else newest_first


def _take(costs: Sequence[int], taken: list[int], index: int, budget: int) -> int:
    """Take further rows of a list within `budget`. Updates `taken`; returns the tokens spent."""
    spent = 0
    for cost in costs[taken[index] :]:
        if spent + cost > budget:
            break
        spent += cost
        taken[index] += 1
    return spent


def _keep(rows: Rows, number: int) -> Rows:
    missing = len(rows.rows) - number
    if not missing:
        return rows
    kept = tuple(rows.rows[place] for place in sorted(_order(rows)[:number]))
    return replace(rows, rows=kept, order=(), left_out=rows.left_out + missing)
