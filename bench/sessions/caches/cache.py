"""What all kinds of caches have in common: their promise, and the tree of the prompts that were sent.

Law: parts are compared by identity, as everywhere in the bench; see prompts.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bench.sessions.marks import Marks
from bench.sessions.prompts import Part

MINIMUM_TOKENS = 1024
"""The shortest prompt that is cached. Sources: OpenAI; Anthropic for Opus 4.8 and Sonnet 4.6 (others 512 to 4,096)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What an upstream did with a prompt, in tokens.

    `written_tokens` are those that it newly wrote into the cache. The rest of the prompt was neither read from the
    cache nor written. `lost_tokens` would have been read if nothing had expired or been evicted.
    """

    cached_tokens: int
    written_tokens: int
    lost_tokens: int = 0


class Cache(Protocol):
    """A cache, filled by the prompts that it has seen."""

    def read(self, parts: Sequence[Part], marks: Marks, now_seconds: float) -> Reading:
        """Read a prompt, and keep of it what this kind of cache keeps."""
        ...


class CacheKind(Protocol):
    """How an upstream caches, as a value."""

    @property
    def is_shared(self) -> bool:
        """Whether sessions push each other out."""
        ...

    def open(self) -> Cache:
        """An empty cache of this kind."""
        ...


@dataclass(slots=True, eq=False)
class Node:
    """A prefix of whole parts that was sent, with the parts that followed it. `used_at` is when it was last sent."""

    children: dict[Part, "Node"] = field(default_factory=dict)
    used_at: float = 0.0


def is_alive(used_at: float, now_seconds: float, lifetime_seconds: float | None) -> bool:
    """Whether an entry that was last used then is still there. A lifetime of None has no end."""
    return lifetime_seconds is None or now_seconds - used_at <= lifetime_seconds
