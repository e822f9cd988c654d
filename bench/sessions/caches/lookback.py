"""Anthropic's cache: exact prefixes at `cache_control`, found again from a mark up to 20 blocks back.

Sources: Anthropic's documentation as collected in ../shared/notes/field.md, 2.2: at most four marks; an automatic one
(`cache_control` beside the messages) takes one of the four and stands at the last block; a look-up goes back over 20
blocks and finds only what was written at a mark; a use renews an entry.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.sessions.caches.cache import MINIMUM_TOKENS, Reading
from bench.sessions.caches.marked import Entries
from bench.sessions.marks import Marks, Place
from bench.sessions.prompts import Part

MOST_MARKS = 4
LOOK_BACK_BLOCKS = 20


@dataclass(frozen=True, slots=True)
class LookBack:
    """A prefix is read only if it was written at a mark that is at most 20 blocks before one of the request's marks.

    `is_automatic`: each request is taken to have the automatic mark at its last block, beside its own marks, as agents
    on Claude send it. Without, only the request's own marks count: Claude behind chat completions.
    A request with five marks is refused by the upstream; here the first four of them count.
    """

    minimum_tokens: int = MINIMUM_TOKENS
    lifetime_seconds: float | None = None
    is_automatic: bool = True
    look_back_blocks: int = LOOK_BACK_BLOCKS

    @property
    def is_shared(self) -> bool:
        """Nobody pushes anybody out."""
        return False

    def open(self) -> "LookBackCache":
        """An empty cache of this kind."""
        return LookBackCache(self, Entries(self.lifetime_seconds, self.minimum_tokens))


@dataclass(slots=True)
class LookBackCache:
    """The marks of one session."""

    kind: LookBack
    entries: Entries

    def read(self, parts: Sequence[Part], marks: Marks, now_seconds: float) -> Reading:
        """Read from the latest entry within the look-back of a mark, and write at the marks."""
        blocks = [
            Place(index, chars) for index, part in enumerate(parts) for chars in part.block_ends or (len(part.text),)
        ]
        own = list(marks.controls[:MOST_MARKS])
        if (self.kind.is_automatic or marks.is_automatic) and len(own) < MOST_MARKS and blocks[-1] not in own:
            own.append(blocks[-1])
        numbers = {block: number for number, block in enumerate(blocks)}
        looked: set[Place] = set()
        for place in own:
            stop = numbers.get(place, 0) + 1
            looked.update(blocks[max(stop - self.kind.look_back_blocks, 0) : stop])
        return self.entries.read(self.entries.follow(parts), own, looked, now_seconds)
