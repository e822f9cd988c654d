"""The earlier results that a later one may point to, found by their texts or by the lines that they share.

Law: an index only. It answers which result is equal or nearly so, never what becomes of it. Each question is answered
in time that does not grow with the number of results.
"""

from collections import Counter
from dataclasses import dataclass

from rules.conversation import Message, ToolCall
from rules.text.sketch import Sketch

MIN_SHARED = 0.25
"""Of a sketch: below it, more than half of the lines differ, nearly always."""


@dataclass(slots=True, eq=False)
class Compared:
    """A result that stands in full, the `number`th of those looked at, and the call that it answers."""

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
        """From here on the result may be pointed to."""
        self._equal.setdefault(result.message.texts, result)
        if result.sketch is not None:
            self._by_line.update(dict.fromkeys(result.sketch.lines, result))

    def find_equal(self, message: Message) -> Compared | None:
        """The first result with the same texts."""
        return self._equal.get(message.texts)

    def find_near(self, sketch: Sketch | None) -> Compared | None:
        """The result that shares the most of a sketch; None if all share little."""
        lines = () if sketch is None else sketch.lines
        found = [other for line in lines if (other := self._by_line.get(line)) is not None]
        if not found or len(found) < len(lines) * MIN_SHARED:
            return None
        most, shared = Counter(found).most_common(1)[0]
        return most if shared >= len(lines) * MIN_SHARED else None
