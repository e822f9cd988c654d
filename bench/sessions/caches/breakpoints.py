"""The cache of GPT-5.6 and later: exact prefixes at breakpoints, without blocks.

Sources: OpenAI's prompt caching guide and types as quoted in iii-hq/workers#1202 ("automatically chooses one implicit
cache breakpoint"; "each request can write up to four breakpoints"; "considers up to the latest 80 breakpoints in the
conversation, without a content-block lookback limit") and ../shared/notes/field.md, 2.1. Not tried with a real key.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.sessions.caches.cache import MINIMUM_TOKENS, Reading
from bench.sessions.caches.marked import Entries, end_of
from bench.sessions.marks import Marks, Place
from bench.sessions.prompts import Part

MOST_LOOKED = 80
MOST_WRITTEN = 4
IMPLICIT_ROLES = ("user", "tool")


@dataclass(frozen=True, slots=True)
class Breakpoints:
    """A prefix is read only if it ends at a breakpoint and was written.

    The implicit breakpoint is the end of the latest user or tool message; the request's marks are the others.
    `reads_earlier`: the ends of earlier user and tool messages are looked at, too, since each was the implicit
    breakpoint of an earlier request. Sources disagree on this: 73,386 calls of Codex read 96.7 % (then it holds);
    maximhq/bifrost#6699 and ax-llm/ax#573 report that an agent's loop "reads almost nothing back" (then it does not).
    `prompt_cache_key` is taken to be set.
    """

    minimum_tokens: int = MINIMUM_TOKENS
    lifetime_seconds: float | None = None
    reads_earlier: bool = True

    @property
    def is_shared(self) -> bool:
        """Nobody pushes anybody out."""
        return False

    def open(self) -> "BreakpointsCache":
        """An empty cache of this kind."""
        return BreakpointsCache(self, Entries(self.lifetime_seconds, self.minimum_tokens))


@dataclass(slots=True)
class BreakpointsCache:
    """The breakpoints of one session."""

    kind: Breakpoints
    entries: Entries

    def read(self, parts: Sequence[Part], marks: Marks, now_seconds: float) -> Reading:
        """Read up to the latest known breakpoint, and write the latest four of the request's own."""
        ends = [end_of(parts, index) for index, part in enumerate(parts) if part.role in IMPLICIT_ROLES]
        implicit = [] if marks.is_explicit else ends
        own = _sort({*marks.breakpoints, *implicit[-1:]})
        looked = _sort({*own, *implicit}) if self.kind.reads_earlier else own
        path = self.entries.follow(parts)
        return self.entries.read(path, own[-MOST_WRITTEN:], looked[-MOST_LOOKED:], now_seconds)


def _sort(places: set[Place]) -> list[Place]:
    return sorted(places, key=lambda place: (place.index, place.chars))
