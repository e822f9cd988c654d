"""Who named what: the names in each message, and how likely each is to be needed again.

Law: a function of the messages. Names that the model wrote into a call, that it or the user said, and that were named
last come first.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from math import log1p
from typing import Any

import msgspec

from rules.conversation import Message, Role, ToolCall
from rules.summary.anchors.names import find_labels, find_names

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
WRITTEN = 1.0
"""For a file that was written, and not only read. Chosen: what the agent has changed is its work."""

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


@dataclass(slots=True)
class Tally:
    """What is known of one name: in how many messages of whom it stands, and the last one."""

    last: int = 0
    asked: int = 0
    told: dict[Role, int] = field(default_factory=dict)


def read_mentions(message: Message) -> Mentions:
    """The names in a message."""
    text = message.text
    asked = "\n".join(read_arguments(message.tool_calls))
    labels = {} if message.role is Role.TOOL else find_labels(text)
    return Mentions(message.role, find_names(asked), find_names(text), {**labels, **find_labels(asked)})


def read_arguments(calls: Iterable[ToolCall]) -> Iterator[str]:
    """The texts in the arguments of calls, decoded; the arguments as they stand if they are no JSON."""
    for call in calls:
        yield call.name
        try:
            yield from _walk(_decode(call.arguments), MAX_DEPTH)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            yield call.arguments


def _walk(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
    elif depth > 0 and isinstance(value, dict):
        for key, item in value.items():
            label = isinstance(item, int | float | str)
            yield from (f"{key}: {text}" if label else text for text in _walk(item, depth - 1))
    elif depth > 0 and isinstance(value, list):
        for item in value:
            yield from _walk(item, depth - 1)


def rank_names(
    mentions: Sequence[Mentions], *, without: AbstractSet[str], written: AbstractSet[str] = frozenset()
) -> list[str]:
    """Names that may be needed again, the likeliest first; none of those `without`. Equal ones by their letters."""
    tallies: dict[str, Tally] = {}
    for index, message in enumerate(mentions):
        if message.role is Role.SYSTEM:
            continue
        for name in message.asked | message.told:
            tally = tallies.setdefault(name, Tally())
            tally.last = index
            tally.asked += name in message.asked
            if name in message.told:
                tally.told[message.role] = tally.told.get(message.role, 0) + 1
    scores = {
        name: _score(name, tally, len(mentions) - tally.last) + WRITTEN * (name in written)
        for name, tally in tallies.items()
        if name not in without
    }
    return sorted(scores, key=lambda name: (-scores[name], name))


def _score(name: str, tally: Tally, age_messages: int) -> float:
    score = RECENCY * log1p(age_messages) + LONG * log1p(len(name))
    score += (ASKED + ASKED_OFTEN * log1p(tally.asked)) if tally.asked else 0.0
    said = tally.told.get(Role.ASSISTANT, 0), tally.told.get(Role.USER, 0)
    return score + SAID * sum(map(log1p, said)) + TOLD_OFTEN * log1p(tally.told.get(Role.TOOL, 0))
