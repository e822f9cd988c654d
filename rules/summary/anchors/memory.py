"""What was read of a transcript's names, kept for the request that continues it.

Law: it saves time and changes nothing else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rules.conversation import CountTokens, Message
from rules.summary.anchors.mentions import Mentions, read_mentions
from rules.summary.anchors.write import Removed, write_anchors
from rules.window.state import Cut

MAX_TEXTS = 4
"""Cuts whose index is kept: the last one stands, those before it stand in while its text is being written."""
Spend = Callable[[int], None]
"""Notes that so many characters are about to be worked through; may raise what ends the work."""


@dataclass(frozen=True, slots=True)
class Place:
    """A cut, the task statement, which stands before it verbatim, and whether a digest stands there, which is `told`."""

    cut: Cut
    task: int | None
    told: bool


class Anchors:
    """The names of a transcript's messages, read as far as a cut needed them, and the texts made of them."""

    __slots__ = ("_mentions", "_messages", "_size_bytes", "_texts")

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._messages: list[Message] = []
        self._mentions: list[Mentions] = []
        self._texts: dict[Place, str] = {}
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """What is kept in memory, about."""
        return self._size_bytes + sum(map(len, self._texts.values()))

    def find(self, messages: Sequence[Message], place: Place, *, count: CountTokens, spend: Spend) -> str:
        """The index for a cut. `spend` is told of the characters that were not read before."""
        if self._messages != list(messages[: len(self._messages)]):
            self._forget()
        text = self._texts.get(place)
        if text is None:
            self._read(messages[: place.cut.made_at], spend)
            text = self._texts[place] = self._write(place, count)
            while len(self._texts) > MAX_TEXTS:
                del self._texts[next(iter(self._texts))]
        return text

    def _read(self, messages: Sequence[Message], spend: Spend) -> None:
        new = messages[len(self._messages) :]
        spend(sum(len(text) for message in new for text in message.texts))
        for message in new:
            mentions = read_mentions(message)
            self._messages.append(message)
            self._mentions.append(mentions)
            self._size_bytes += mentions.size_bytes

    def _write(self, place: Place, count: CountTokens) -> str:
        cut = place.cut
        verbatim = [*cut.kept, *(() if place.task is None else (place.task,)), *range(cut.at, cut.made_at)]
        present = {name for index in verbatim for name in self._mentions[index].asked | self._mentions[index].told}
        removed = Removed(self._messages[: cut.at], self._mentions[: cut.at], present, place.told)
        return write_anchors(removed, max_tokens=cut.anchor_tokens, count=count)
