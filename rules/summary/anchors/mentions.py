"""Who named what: the names in each message, and how likely each is to be needed again.

Law: a function of the messages. Names that the model wrote into a call, that it or the user said, and that were named
last come first.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import log1p
from typing import Any

import msgspec

from rules.conversation import Message, Role, ToolCall
from rules.summary.anchors.names import MAX_NAME_CHARS, find_labels, find_names
from rules.text.markers import strip_markers

MAX_DEPTH = 16
"""Of nested arguments: deeper ones are not looked into."""

# Source: logistic regression over 206,197 names behind 228 cuts of the recorded sessions at a window of 32k: was a name
# that no message in the tail holds needed by an answer before the next cut? At 64k, 16k and 128k they do as well.
# Doubling or leaving out any one of them but the first changes what is recalled by less than 1.5 points.
RECENCY = -0.65
"""For the logarithm of how many messages before the cut a name was last mentioned."""
ASKED = 1.1
"""For a name that a call's arguments hold."""
ASKED_OFTEN = 0.6
"""For the logarithm of how many messages' calls hold it."""
SAID = 0.7
"""For the logarithm of how many messages of the assistant, and of the user, say it."""
TOLD_OFTEN = -0.3
"""For the logarithm of how many results hold it: what stands everywhere tells little."""
LONG = -1.0
"""For the logarithm of its length: a budget holds fewer long ones."""

_ID = re.compile(r"#?(?=[A-Za-z_-]{0,64}\d)[A-Za-z0-9_-]{5,64}")
"""An argument that is an id or a number, and nothing else: its key is its label."""
_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class Mentions:
    """The names in one message: `asked` in the arguments of calls, `told` in its text; `labels` of ids and numbers."""

    role: Role
    asked: AbstractSet[str]
    told: AbstractSet[str]
    labels: Mapping[str, str]

    @property
    def size_bytes(self) -> int:
        """What they hold in memory, about."""
        names = 300 + sum(110 + len(name) for names in (self.asked, self.told) for name in names)
        return names + sum(200 + len(number) + len(label) for number, label in self.labels.items())


def read_mentions(message: Message) -> Mentions:
    """The names in a message; what trimtab has written into it names nothing."""
    text = strip_markers(message.text)
    members = list(_read_members(message.tool_calls))
    labels = {} if message.role is Role.TOOL else find_labels(text)
    labels |= {value: key for key, value in members if key and _ID.fullmatch(value)}
    asked = "\n".join(value for _, value in members)
    return Mentions(message.role, find_names(asked), find_names(text), labels)


def read_arguments(calls: Iterable[ToolCall]) -> Iterator[str]:
    """The texts in the arguments of calls, decoded; the arguments as they stand if they are no JSON."""
    return (value for _, value in _read_members(calls))


def _read_members(calls: Iterable[ToolCall]) -> Iterator[tuple[str, str]]:
    """The texts and numbers in arguments, each with its key; without one in a list, or if they are no JSON."""
    for call in calls:
        try:
            yield from _walk("", _decode(call.arguments), MAX_DEPTH)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            yield "", call.arguments


def _walk(key: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield key, str(value)
    elif depth > 0 and isinstance(value, dict):
        for name, item in value.items():
            yield from _walk(name, item, depth - 1)
    elif depth > 0 and isinstance(value, list):
        for item in value:
            yield from _walk("", item, depth - 1)


def rank_names(mentions: Sequence[Mentions], *, without: AbstractSet[str]) -> list[str]:
    """Names that may be needed again, the likeliest first; none of those `without`. Equal ones by their letters."""
    last: dict[str, int] = {}
    asked: Counter[str] = Counter()
    told: dict[Role, Counter[str]] = {role: Counter() for role in Role}
    for index, message in enumerate(mentions):
        if message.role is not Role.SYSTEM:
            last.update(dict.fromkeys(message.asked, index))
            last.update(dict.fromkeys(message.told, index))
            asked.update(message.asked)
            told[message.role].update(message.told)
    by_assistant, by_user, by_tools = told[Role.ASSISTANT], told[Role.USER], told[Role.TOOL]
    logs = [log1p(number) for number in range(max(len(mentions), MAX_NAME_CHARS) + 1)]
    scores: dict[str, float] = {}
    for name, index in last.items():
        if name in without:
            continue
        score = RECENCY * logs[len(mentions) - index] + LONG * logs[len(name)]
        if name in asked:
            score += ASKED + ASKED_OFTEN * logs[asked[name]]
        score += SAID * (logs[by_assistant.get(name, 0)] + logs[by_user.get(name, 0)])
        scores[name] = score + TOLD_OFTEN * logs[by_tools.get(name, 0)]
    return sorted(scores, key=lambda name: (-scores[name], name))
