"""The index behind a summary, written: files, commands and errors, then names by what they look like.

Law: within its budget. All of it stands in one quotation, its markers broken: what a tool has said gains no authority
by standing here. What the tail holds, or what stands verbatim beside the summary, is not repeated.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from rules.conversation import CountTokens, Message
from rules.summary.anchors.mentions import Mentions, rank_names
from rules.summary.anchors.names import Kind, find_kind
from rules.summary.anchors.running import find_running
from rules.summary.carried.answered import Answered
from rules.summary.carried.list_calls import read_list_call
from rules.summary.digest.errors import find_open_errors
from rules.summary.digest.steps import find_steps
from rules.summary.quoting import break_markers
from rules.text.markers import QUOTE_END, QUOTE_START

MIN_TOKENS = 80
"""A smaller index holds its own frame and little else."""
DEED_MESSAGES = 256
"""The newest removed ones, of which deeds are told: older ones would not be among what there is room for."""
DEEDS_SHARE = 0.2
"""Of the budget, for all that is no name: files with what was done to them, commands, errors, what is running."""
TITLE = "Exact names from that part, those first that may be needed"
_SEPARATOR = ", "


@dataclass(frozen=True, slots=True)
class Removed:
    """What the index is made of: the messages that were cut, the names in them, and those that need no index.

    `is_told` says that a digest stands before the index, which tells of deeds itself.
    """

    messages: Sequence[Message]
    mentions: Sequence[Mentions]
    present: AbstractSet[str]
    is_told: bool = False


def write_anchors(removed: Removed, *, max_tokens: int, count: CountTokens) -> str:
    """The index, of at most `max_tokens`; empty if there is nothing to tell, or too little room."""
    frame = f"{QUOTE_START}\n> {TITLE}\n{QUOTE_END}"
    room = max_tokens - count(frame)
    if max_tokens < MIN_TOKENS or room <= 0:
        return ""
    deeds = [] if removed.is_told else _write_deeds(removed.messages[-DEED_MESSAGES:], int(room * DEEDS_SHARE), count)
    room -= sum(count(f"> {line}\n") for line in deeds)
    for _ in range(8):
        lines = [*deeds, *_write_names(removed, room, count)]
        text = f"{QUOTE_START}\n> {TITLE}\n" + "".join(f"> {break_markers(line)}\n" for line in lines) + QUOTE_END
        excess = count(text) - max_tokens
        if excess <= 0 or not lines:
            return text if lines and excess <= 0 else ""
        room -= excess
    return ""


def _write_names(removed: Removed, room_tokens: int, count: CountTokens) -> list[str]:
    """Lines of names, a kind each, as many as there is room for."""
    ranked = rank_names(removed.mentions, without=removed.present)
    labels: dict[str, str] = {}
    for mentions in removed.mentions:
        labels.update(mentions.labels)
    kinds: dict[Kind, list[str]] = {}
    for name in ranked:
        label = labels.get(name)
        told = name if label is None else f"{label} {name}"
        cost = count(f"{_SEPARATOR}{told}")
        kind = find_kind(name)
        cost += 0 if kind in kinds else count(f"> {kind}: \n")
        if cost > room_tokens:
            break
        room_tokens -= cost
        kinds.setdefault(kind, []).append(told)
    return [f"{kind}: {_SEPARATOR.join(names)}" for kind in Kind if (names := kinds.get(kind))]


def _write_deeds(messages: Sequence[Message], room_tokens: int, count: CountTokens) -> list[str]:
    """Lines of what was done: files, what is running, errors that were not resolved, commands; the newest of each."""
    steps = find_steps([_leave_out_lists(message) for message in messages])
    files = [steps.files[index] for index in steps.order]
    groups = (
        ("still running", list(reversed(find_running(messages))), 0.2),
        ("errors that were not resolved", list(reversed(find_open_errors(messages))), 0.3),
        ("files", files, 0.6),
        ("calls", list(reversed(steps.calls)), 1.0),
    )
    lines: list[str] = []
    for title, rows, share in groups:
        line, left = f"{title}: ", int(room_tokens * share)
        taken: list[str] = []
        left -= count(f"> {line}\n")
        for row in rows:
            left -= count(f"; {row}")
            if left < 0:
                break
            taken.append(row)
        if taken:
            lines.append(line + "; ".join(taken))
            room_tokens -= count(f"> {lines[-1]}\n")
    return lines


def _leave_out_lists(message: Message) -> Message:
    """The message without calls that tell a task list: the newest one is carried, or stands in the tail."""
    told = (read_list_call(Answered(call, None)) for call in message.tool_calls)
    calls = tuple(call for call, one in zip(message.tool_calls, told, strict=True) if one is None or not one.is_whole)
    return message if len(calls) == len(message.tool_calls) else replace(message, tool_calls=calls)
