"""What a replay notes on its course: the identifiers that the next answer needs, and the points of a picture.

Law: whole identifiers only, and a definition that does not change, so that figures of different days compare. Nobody
answers from the shorter prompt: the answer is the one that followed in the recording. A picture has at most MAX_POINTS
points: if there are too many, every second one is left out, and from then on fewer are taken.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.proxy.cli.options import StoppedError
from trimtab.proxy.lru import BytesLRU
from trimtab.rules.conversation import Conversation, Message, Role

LEAST_CHARS, MOST_CHARS = 5, 200
"""Of an identifier. Source: the same definition as below."""
_STRIPPED = ".,:;-"
_IDENTIFIER = re.compile(
    r"""(?:[\w.+-]+@[\w-]+\.[\w.-]+)"""
    r"""|(?:https?://[^\s"'<>)\]]+)"""
    r"""|(?:(?:[\w.@~-]*/)+[\w.@~-]+)"""
    r"""|(?:[A-Za-z_]\w*(?:\.\w+)+)"""
    r"""|(?:\b[A-Za-z]+(?:_[A-Za-z0-9]+)+\b)"""
    r"""|(?:\b[a-z]+[A-Z]\w+\b)"""
    r"""|(?:#?\b(?=\w*\d)[A-Za-z0-9-]{5,}\b)"""
)
"""In this order: mail addresses, URLs, paths, dotted, snake and camel names, ids, and numbers of five characters and
more. Source: the definition in issue 16, copied exactly."""
MAX_READ_BYTES = 64 * 1024 * 1024
MAX_WAITING_BYTES = 256 * 1024 * 1024
"""Of messages that were read, and of requests whose answer has not come. Chosen: some hundred long sessions."""
TOKEN_BYTES, MESSAGE_BYTES, IDENTIFIER_BYTES = 4, 64, 120
"""What a token, a message that several conversations share, and an identifier cost. Estimates for CPython."""


def find_identifiers(text: str) -> frozenset[str]:
    found = (word.strip(_STRIPPED) for word in _IDENTIFIER.findall(text))
    return frozenset(word for word in found if LEAST_CHARS <= len(word) <= MOST_CHARS)


@dataclass(slots=True)
class Tally:
    """Sums over requests.

    `needed`: identifiers of the next answer that the transcript contained. `kept`: those of them that are forwarded in
    some form.
    """

    needed: int = 0
    kept: int = 0

    def share_kept(self) -> float | None:
        return self.kept / self.needed if self.needed else None


@dataclass(slots=True)
class Needed:
    """The needed identifiers of requests, by the variant in which they were forwarded.

    A request is measured when the next one of its session comes, because that one holds the answer.
    """

    tallies: dict[str, Tally] = field(default_factory=dict)
    _read: "BytesLRU[tuple[str, ...], frozenset[str]]" = field(
        default_factory=lambda: BytesLRU(
            MAX_READ_BYTES, lambda key, names: sum(map(len, key)) + len(names) * IDENTIFIER_BYTES
        )
    )
    _waiting: "BytesLRU[str, tuple[Conversation, dict[str, Conversation]]]" = field(
        default_factory=lambda: BytesLRU(MAX_WAITING_BYTES, lambda _, one: _weigh(*one))
    )

    def add(self, session: str, original: Conversation, forwarded: dict[str, Conversation]) -> None:
        """Measure the session's request before this one, and keep this one. `forwarded`: by variant, if it was sent."""
        before = self._waiting.get(session)
        self._waiting[session] = original, forwarded
        for name in forwarded:
            self.tallies.setdefault(name, Tally())
        if before is None or (answer := _find_answer(before[0].messages, original.messages)) is None:
            return
        changed = {name: sent for name, sent in before[1].items() if sent.messages != before[0].messages}
        wanted = self._name(answer) & self._name(*before[0].messages) if changed else frozenset()
        for name, sent in changed.items() if wanted else ():
            tally = self.tallies.setdefault(name, Tally())
            tally.needed += len(wanted)
            tally.kept += len(wanted & self._name(*sent.messages))

    def _name(self, *messages: Message) -> frozenset[str]:
        """The identifiers in some messages. Each message is read once."""
        found: set[str] = set()
        for message in messages:
            key = tuple(_list_texts(message))
            names = self._read.get(key)
            if names is None:
                names = self._read[key] = find_identifiers("\n".join(key))
            found |= names
        return frozenset(found)


def _list_texts(message: Message) -> Iterator[str]:
    yield from message.texts
    yield from (f"{call.name} {call.arguments}" for call in message.tool_calls)


def _find_answer(before: Sequence[Message], after: Sequence[Message]) -> Message | None:
    """The model's answer to a request, which the next one holds; None if that one does not continue it."""
    at = len(before)
    is_continued = 0 < at < len(after) and after[at - 1] == before[-1] and after[at].role is Role.ASSISTANT
    return after[at] if is_continued else None


def _weigh(original: Conversation, forwarded: Mapping[str, Conversation]) -> int:
    return TOKEN_BYTES * original.tokens + MESSAGE_BYTES * len(original.messages) * (1 + len(forwarded))


MAX_POINTS = 2000  # chosen: more than the pixels of a picture's width
_SIZE_INCHES = (10.0, 7.0)
_NAMES = {"trimtab": "with trimtab", "nothing": "unchanged", "sliding": "sliding window", "summaries": "summaries"}


@dataclass(frozen=True, slots=True)
class Point:
    """The state after a request. sent_tokens: by variant. costs: all so far, by variant and strategy."""

    number: int
    original_tokens: int
    sent_tokens: Mapping[str, int]
    costs: Mapping[str, Mapping[str, float]]


@dataclass(slots=True)
class Series:
    points: list[Point] = field(default_factory=list)
    _number: int = 0
    _stride: int = 1

    def begin(self) -> bool:
        """Begin a request. Returns whether it becomes a point."""
        self._number += 1
        return (self._number - 1) % self._stride == 0

    def add(
        self, original_tokens: int, sent_tokens: Mapping[str, int], costs: Mapping[str, Mapping[str, float]]
    ) -> None:
        self.points.append(Point(self._number, original_tokens, sent_tokens, costs))
        if len(self.points) >= MAX_POINTS:
            self.points = self.points[::2]
            self._stride *= 2


def draw(series: Series, file: Path) -> None:
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        message = "--plot needs matplotlib; install it with: pip install 'trimtab[plot]'"
        raise StoppedError(message) from error
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    _draw_tokens(above, series)
    _draw_costs(below, series)
    for axes in (above, below):
        axes.set_ylim(bottom=0)
        if axes.lines:
            axes.legend()
    try:
        figure.savefig(file)
    except OSError as error:
        message = f"{file}: {error.strerror}"
        raise StoppedError(message) from error


def _draw_tokens(axes: Any, series: Series) -> None:
    numbers = [point.number for point in series.points]
    axes.plot(numbers, [point.original_tokens for point in series.points], label="as the client sent it")
    for name in series.points[-1].sent_tokens if series.points else ():
        axes.plot(numbers, [point.sent_tokens.get(name) for point in series.points], label=f"sent, {name}")
    axes.set_ylabel("prompt tokens")


def _draw_costs(axes: Any, series: Series) -> None:
    numbers = [point.number for point in series.points]
    for name, costs in (series.points[-1].costs if series.points else {}).items():
        for strategy in costs:
            course = [point.costs[name].get(strategy, 0.0) for point in series.points]
            if any(course):
                axes.plot(numbers, course, label=f"{_NAMES[strategy]}, {name}")
    axes.set_xlabel("requests")
    axes.set_ylabel("cost so far")
