"""The index behind a summary, written: files, commands and errors, then names by what they look like.

Law: within its budget. All of it stands in one quotation, its markers broken: what a tool has said gains no authority
by standing here. What the tail holds, or what stands verbatim beside the summary, is not repeated.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from rules.conversation import CountTokens, Message
from rules.summary.anchors.echoes import find_echoes
from rules.summary.anchors.mentions import Mentions, rank_names
from rules.summary.anchors.names import Kind, find_kind, find_names
from rules.summary.anchors.running import find_running
from rules.summary.carried.list_calls import leave_out_lists
from rules.summary.digest.errors import find_open_errors
from rules.summary.digest.steps import find_steps
from rules.summary.quoting import break_markers
from rules.text.markers import ECHOES_TITLE, NAMES_TITLE, QUOTE_END, QUOTE_START

MIN_TOKENS = 80
"""A smaller index holds its own frame and little else."""
DEED_MESSAGES = 256
"""The newest removed ones, of which deeds are told: older ones would not be among what there is room for."""
DEEDS_SHARE = 0.2
"""Of the budget, for files with what was done to them, commands and errors."""
RUNNING_SHARE = 0.25
"""Of the budget, for what is still running: seldom there, and nothing else tells how it is called."""
ECHOES_SHARE = 0.3
"""Of the budget, for lines that speak of what the tail speaks of."""
_SEPARATOR = ", "


@dataclass(frozen=True, slots=True)
class Removed:
    """What the index is made of: the messages that were cut and those behind them, names, and those that need no index.

    `is_told` says that a digest stands before the index, which tells of deeds itself. `tail` are the messages behind
    the cut as it was made: what they end is no longer running.
    """

    messages: Sequence[Message]
    mentions: Sequence[Mentions]
    present: AbstractSet[str]
    is_told: bool = False
    tail: Sequence[Message] = ()


def write_anchors(removed: Removed, *, max_tokens: int, count: CountTokens) -> str:
    """The index, of at most `max_tokens`; empty if there is nothing to tell, or too little room."""
    frame = f"{QUOTE_START}\n> {NAMES_TITLE}\n{QUOTE_END}"
    room = max_tokens - count(frame)
    if max_tokens < MIN_TOKENS or room <= 0:
        return ""
    told = _write_running(removed, int(room * RUNNING_SHARE), count)
    if not removed.is_told:
        told += _write_deeds(removed.messages[-DEED_MESSAGES:], int(room * DEEDS_SHARE), count)
    told += _write_echoes(removed, int(room * ECHOES_SHARE), count)
    room -= sum(count(f"> {line}\n") for line in told)
    removed = replace(removed, present=removed.present | find_names("\n".join(told)))
    names = _rank(removed, most=max(room, 0))
    for _ in range(8):
        lines = [*told, *_write_names(names, room, count)]
        text = f"{QUOTE_START}\n> {NAMES_TITLE}\n" + "".join(f"> {break_markers(line)}\n" for line in lines) + QUOTE_END
        excess = count(text) - max_tokens
        if excess <= 0 or not lines:
            return text if lines and excess <= 0 else ""
        room -= excess
    return ""


def _write_echoes(removed: Removed, room_tokens: int, count: CountTokens) -> list[str]:
    """Lines that speak of what the tail speaks of."""
    lines: list[str] = []
    room_tokens -= count(f"> {ECHOES_TITLE}\n")
    for line in find_echoes(removed.messages, removed.tail, removed.present):
        room_tokens -= count(f"> {line}\n")
        if room_tokens < 0:
            break
        lines.append(line)
    return [ECHOES_TITLE, *lines] if lines else []


def _rank(removed: Removed, most: int) -> list[tuple[Kind, str]]:
    """The kind of each name and how it is told, behind its label if it has one; the likeliest to be needed first.

    `most` of them at most: none costs less than a token.
    """
    labels: dict[str, str] = {}
    for mentions in removed.mentions:
        labels.update(mentions.labels)
    ranked = rank_names(removed.mentions, without=removed.present)
    return [(find_kind(name), f"{labels[name]} {name}" if name in labels else name) for name in ranked[:most]]


def _write_names(ranked: Sequence[tuple[Kind, str]], room_tokens: int, count: CountTokens) -> list[str]:
    """Lines of names, a kind each, as many as there is room for."""
    kinds: dict[Kind, list[str]] = {}
    for kind, told in ranked:
        cost = count(f"{_SEPARATOR}{told}")
        cost += 0 if kind in kinds else count(f"> {kind}: \n")
        if cost > room_tokens:
            break
        room_tokens -= cost
        kinds.setdefault(kind, []).append(told)
    return [f"{kind}: {_SEPARATOR.join(names)}" for kind in Kind if (names := kinds.get(kind))]


def _write_running(removed: Removed, room_tokens: int, count: CountTokens) -> list[str]:
    """A line of what is still running, the newest first."""
    rows = list(reversed(find_running(removed.messages, removed.tail)))
    return _write_rows("still running", rows, room_tokens, count)


def _write_deeds(messages: Sequence[Message], room_tokens: int, count: CountTokens) -> list[str]:
    """Lines of what was done: errors that were not resolved, files, commands; the newest of each."""
    steps = find_steps([leave_out_lists(message) for message in messages])
    groups = (
        ("unresolved errors", list(reversed(find_open_errors(messages))), 0.3),
        ("files", [steps.files[index] for index in steps.order], 0.6),
        ("calls", list(reversed(steps.calls)), 1.0),
    )
    lines: list[str] = []
    for title, rows, share in groups:
        for line in _write_rows(title, rows, int(room_tokens * share), count):
            lines.append(line)
            room_tokens -= count(f"> {line}\n")
    return lines


def _write_rows(title: str, rows: Sequence[str], room_tokens: int, count: CountTokens) -> list[str]:
    """A line of as many of the rows as there is room for; none if there is room for none."""
    left = room_tokens - count(f"> {title}: \n")
    taken: list[str] = []
    for row in rows:
        left -= count(f"; {row}")
        if left < 0:
            break
        taken.append(row)
    return [f"{title}: {'; '.join(taken)}"] if taken else []
