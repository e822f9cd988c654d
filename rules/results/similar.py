"""An index of earlier results, to find one with equal texts or with many lines in common.

Law: it finds results and decides nothing about them. The time of a search does not grow with the number of results.
"""

from collections import Counter
from dataclasses import dataclass

from rules.conversation import Message, ToolCall
from rules.text.sketch import Sketch

MIN_SHARED = 0.25
"""Share of a sketch's lines that two results must share. Chosen: two of eight lines. In a simulation with texts of 100
lines, 95 % of the pairs with 50 common lines share that many. A diff of less similar texts would save too little."""


@dataclass(slots=True, eq=False)
class Compared:
    """A result, the call that it answers, and its sketch.

    number: its rank among all results that are compared, from 1 on.
    sketch: None if the result takes no part in diffs, or if an equal one was added before.
    """

    number: int
    message: Message
    call: ToolCall | None
    sketch: Sketch | None


class Index:
    """The results added so far."""

    def __init__(self) -> None:
        self._equal: dict[tuple[str, ...], Compared] = {}
        self._by_line: dict[int, Compared] = {}  # the newest result with the line in its sketch

    def add(self, result: Compared) -> None:
        """Add a result: searches may find it from now on."""
        self._equal.setdefault(result.message.texts, result)
        if result.sketch is not None:
            self._by_line.update(dict.fromkeys(result.sketch.lines, result))

    def find_equal(self, message: Message) -> Compared | None:
        """The first result with the same texts."""
        return self._equal.get(message.texts)

    def find_near(self, sketch: Sketch | None) -> Compared | None:
        """The result that shares most lines with a sketch; None if none shares MIN_SHARED of them."""
        lines = () if sketch is None else sketch.lines
        found = [other for line in lines if (other := self._by_line.get(line)) is not None]
        if not found or len(found) < len(lines) * MIN_SHARED:
            return None
        most, shared = Counter(found).most_common(1)[0]
        return most if shared >= len(lines) * MIN_SHARED else None
