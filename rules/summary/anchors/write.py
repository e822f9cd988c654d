"""Write the index after a summary: what is still running, errors, files, calls, related lines, and names by their form.

Law: never larger than its budget. All of it is in one quotation, with markers in it broken, so that tool output gains
no authority here. Names in the tail or in verbatim messages are not repeated.
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
"""With a smaller budget there is no index. Chosen: it would hold little more than its frame."""
DEED_MESSAGES = 256
"""Files, calls and errors come from this many of the newest removed messages. Chosen: there is no room for more."""
DEEDS_SHARE = 0.2
"""Share of the budget for errors, files and calls. Chosen."""
RUNNING_SHARE = 0.25
"""Share of the budget for what is still running. Chosen: it is rare, and its ids are nowhere else."""
ECHOES_SHARE = 0.3
"""Share of the budget for lines that share rare words with the tail. Chosen."""
_SEPARATOR = ", "


@dataclass(frozen=True, slots=True)
class Removed:
    """The material of the index.

    - `messages`: the removed messages, without those that are forwarded verbatim.
    - `mentions`: the names in all messages before the cut.
    - `present`: names that the reader sees already; they are not repeated.
    - `is_told`: a digest precedes the index and lists errors, files and calls itself.
    - `tail`: the messages after the cut when it was made. What they end is no longer running.
    """

    messages: Sequence[Message]
    mentions: Sequence[Mentions]
    present: AbstractSet[str]
    is_told: bool = False
    tail: Sequence[Message] = ()


def write_anchors(removed: Removed, *, max_tokens: int, count: CountTokens) -> str:
    """Write the index, at most `max_tokens`; empty if it has no content or too little room."""
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
    # The count of the whole text differs a little from the sum of its parts, so the first attempt may be too long.
    for _ in range(8):
        lines = [*told, *_write_names(names, room, count)]
        text = f"{QUOTE_START}\n> {NAMES_TITLE}\n" + "".join(f"> {break_markers(line)}\n" for line in lines) + QUOTE_END
        excess = count(text) - max_tokens
        if excess <= 0 or not lines:
            return text if lines and excess <= 0 else ""
        room -= excess
    return ""


def _write_echoes(removed: Removed, room_tokens: int, count: CountTokens) -> list[str]:
    lines: list[str] = []
    room_tokens -= count(f"> {ECHOES_TITLE}\n")
    for line in find_echoes(removed.messages, removed.tail, removed.present):
        room_tokens -= count(f"> {line}\n")
        if room_tokens < 0:
            break
        lines.append(line)
    return [ECHOES_TITLE, *lines] if lines else []


def _rank(removed: Removed, most: int) -> list[tuple[Kind, str]]:
    """At most `most` names with their kinds, the most likely to be needed first.

    A name is written after its label if it has one. `most` may be the budget, as no name costs less than a token.
    """
    labels: dict[str, str] = {}
    for mentions in removed.mentions:
        labels.update(mentions.labels)
    ranked = rank_names(removed.mentions, without=removed.present)
    return [(find_kind(name), f"{labels[name]} {name}" if name in labels else name) for name in ranked[:most]]


def _write_names(ranked: Sequence[tuple[Kind, str]], room_tokens: int, count: CountTokens) -> list[str]:
    """A line for each kind of name, with as many names as there is room for."""
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
    rows = list(reversed(find_running(removed.messages, removed.tail)))
    return _write_rows("still running", rows, room_tokens, count)


def _write_deeds(messages: Sequence[Message], room_tokens: int, count: CountTokens) -> list[str]:
    """Lines with unresolved errors, files and calls, the newest of each."""
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
    """One line with as many of the rows as there is room for; no line if there is room for none."""
    left = room_tokens - count(f"> {title}: \n")
    taken: list[str] = []
    for row in rows:
        left -= count(f"; {row}")
        if left < 0:
            break
        taken.append(row)
    return [f"{title}: {'; '.join(taken)}"] if taken else []
