"""Caches that keep a prompt only up to certain places, and find it again only there.

Law: an entry is the exact prefix up to the end of a content block. It is used whenever a longer prefix is read.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from bench.sessions.caches.cache import Node, Reading, is_alive
from bench.sessions.marks import Place
from bench.sessions.prompts import Part, count_text

Key = tuple[Node, str]
"""A prefix: its whole parts, and the text of the part that it ends in; empty if it ends with a whole part."""


@dataclass(slots=True)
class Entries:
    """The entries of one session: when each was last used."""

    lifetime_seconds: float | None
    minimum_tokens: int
    _root: Node = field(default_factory=Node)
    _used_at: dict[Node, dict[str, float]] = field(default_factory=dict)

    def follow(self, parts: Sequence[Part]) -> "Path":
        """The way of a prompt through the tree; prefixes that are new are added, without entries."""
        nodes, node = [self._root], self._root
        for part in parts:
            node = node.children.setdefault(part, Node())
            nodes.append(node)
        return Path(parts, nodes, (0, *accumulate(part.tokens for part in parts)))

    def read(self, path: "Path", own: Sequence[Place], looked: Iterable[Place], now_seconds: float) -> Reading:
        """Read the longest of the places that were `looked` at, and write the request's own."""
        known = cached = 0
        for place in looked:
            used_at = self._find(path, place)
            if used_at is not None:
                tokens = path.count(place)
                known = max(known, tokens)
                if is_alive(used_at, now_seconds, self.lifetime_seconds):
                    cached = max(cached, tokens)
        self._renew(path, cached, now_seconds)
        sizes = {place: path.count(place) for place in own}
        written = [place for place in own if sizes[place] >= self.minimum_tokens]
        for place in written:
            node, text = path.name(place)
            self._used_at.setdefault(node, {})[text] = now_seconds
        end = max((sizes[place] for place in written), default=0)
        return Reading(cached, max(end - cached, 0), known - cached)

    def _find(self, path: "Path", place: Place) -> float | None:
        node, text = path.name(place)
        return self._used_at.get(node, {}).get(text)

    def _renew(self, path: "Path", cached_tokens: int, now_seconds: float) -> None:
        """All entries within what was read are used."""
        for index, node in enumerate(path.nodes):
            if path.sums[index] > cached_tokens:
                return
            used_at = self._used_at.get(node, {})
            for text in used_at:
                if not text or path.covers(index, text, cached_tokens):
                    used_at[text] = now_seconds


@dataclass(frozen=True, slots=True)
class Path:
    """A prompt in the tree: the node before each part and after the last, with the tokens up to there."""

    parts: Sequence[Part]
    nodes: Sequence[Node]
    sums: Sequence[int]

    def name(self, place: Place) -> Key:
        """What the prefix up to a place is known by."""
        part = self.parts[place.index]
        if place.chars >= len(part.text):
            return self.nodes[place.index + 1], ""
        return self.nodes[place.index], f"{part.role}\n{part.text[: place.chars]}"

    def covers(self, index: int, text: str, tokens: int) -> bool:
        """Whether a part begins with the text by which an entry is known, and that lies within so many tokens."""
        if index == len(self.parts) or not f"{self.parts[index].role}\n{self.parts[index].text}".startswith(text):
            return False
        return self.count(Place(index, len(text) - len(self.parts[index].role) - 1)) <= tokens

    def count(self, place: Place) -> int:
        """Tokens of the prefix up to a place."""
        part = self.parts[place.index]
        if place.chars >= len(part.text):
            return self.sums[place.index + 1]
        return self.sums[place.index] + min(count_text(part.text[: place.chars]), part.tokens)


def end_of(parts: Sequence[Part], index: int) -> Place:
    """The end of a part."""
    return Place(index, len(parts[index].text))
