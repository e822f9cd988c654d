"""The names in each message, and how likely each name is to be needed again.

Law: a function of the messages. A name ranks higher if the model wrote it into a call, if the model or the user said
it, and if it was mentioned late.
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
"""Arguments that are nested deeper are not read. Chosen: bounds the recursion."""

# Source of the weights below: a logistic regression over 206,197 names before 228 cuts of the recorded sessions, at a
# window of 32k. It predicts whether an answer before the next cut needs a name that is in no message of the tail. The
# weights do as well at 16k, 64k and 128k. If any one of them except RECENCY is doubled or left out, the recall changes
# by less than 1.5 points.
RECENCY = -0.65
"""Weight of log(1 + number of messages since the name was last mentioned)."""
ASKED = 1.1
"""Added if the name is in the arguments of a call."""
ASKED_OFTEN = 0.6
"""Weight of log(1 + number of messages with calls that contain the name)."""
SAID = 0.7
"""Weight of log(1 + number of messages that say the name), separately for the assistant and the user."""
TOLD_OFTEN = -0.3
"""Weight of log(1 + number of tool results that contain the name): a name that is everywhere is not specific."""
LONG = -1.0
"""Weight of log(1 + number of characters): the budget holds fewer long names."""

_ID = re.compile(r"#?(?=[A-Za-z_-]{0,64}\d)[A-Za-z0-9_-]{5,64}")
"""An argument that is only an id or a number. Its key is used as its label."""
_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class Mentions:
    """The names in one message.

    `asked` are those in the arguments of calls, `told` those in the text. `labels` maps ids and numbers to the word
    that says what they are.
    """

    role: Role
    asked: AbstractSet[str]
    told: AbstractSet[str]
    labels: Mapping[str, str]

    @property
    def size_bytes(self) -> int:
        """Approximate memory in use."""
        names = 300 + sum(110 + len(name) for names in (self.asked, self.told) for name in names)
        return names + sum(200 + len(number) + len(label) for number, label in self.labels.items())


def read_mentions(message: Message) -> Mentions:
    """Find the names in a message. Text in trimtab's own markers does not count."""
    text = strip_markers(message.text)
    members = list(_read_members(message.tool_calls))
    labels = {} if message.role is Role.TOOL else find_labels(text)
    labels |= {value: key for key, value in members if key and _ID.fullmatch(value)}
    asked = "\n".join(value for _, value in members)
    return Mentions(message.role, find_names(asked), find_names(text), labels)


def read_arguments(calls: Iterable[ToolCall]) -> Iterator[str]:
    """The strings and numbers in the arguments of calls. If arguments are not JSON, their whole text."""
    return (value for _, value in _read_members(calls))


def _read_members(calls: Iterable[ToolCall]) -> Iterator[tuple[str, str]]:
    """(key, value) for each string and number in arguments.

    The key is empty for an item of a list. Arguments that are not JSON are one value without a key.
    """
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
    """Rank the names that may be needed again, except those in `without`.

    The most likely is first; equally likely ones are in alphabetical order.
    """
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
