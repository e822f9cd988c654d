"""The tools of the rules on results: a token counter, caches, and a bound on the text to process at once.

Law: a cache saves time and changes no outcome. An entry that a cache has dropped is computed again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from trimtab.rules.conversation import CountTokens

K_contra = TypeVar("K_contra", contravariant=True)
V = TypeVar("V")


class Cache(Protocol[K_contra, V]):
    """Values computed before, by key. It may drop any entry at any time."""

    def get(self, key: K_contra, /) -> V | None:
        """The value of `key`; None if it is not stored."""

    def __setitem__(self, key: K_contra, value: V, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Sketch:
    """What is compared of a text: the smallest checksums of its lines, none if they are too short on average.

    digest: the SHA-256 of the text.
    """

    digest: bytes
    lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shortened:
    """The new texts of a result, and the tokens that they save. Empty `texts`: the result stays unchanged."""

    texts: tuple[str, ...]
    saved_tokens: int


ResultKey = tuple[int, str, str, bytes | tuple[str, ...], bool, str, str]
"""Everything that the outcome for one result depends on, in this order: the counter, the rule, the treatment, the
result's content, whether the client marked it as an error, and the name and arguments of its call."""


class Archive(Protocol):
    """Passages that can be searched. What is found depends only on the passages and their order."""

    def add(self, passages: Sequence[str]) -> None:
        """Add passages behind the others; the first one has the number 0."""

    def search(self, terms: Sequence[str], *, most: int) -> Sequence[int]:
        """The numbers of at most `most` passages that have one of these rare terms, best first."""


class LargeWorkError(Exception):
    """There is more text to process than the caller allowed."""


class Allowance:
    """How many characters may still be processed; `max_chars` is None for no bound."""

    def __init__(self, max_chars: int | None = None) -> None:
        self._left = max_chars

    def spend(self, chars: int) -> None:
        """Call this before processing `chars` characters. Raises LargeWorkError if fewer are left."""
        if self._left is not None:
            self._left -= chars
            if self._left < 0:
                raise LargeWorkError


@dataclass(frozen=True, slots=True)
class Work:
    """The counter, caches and bound of the rules on results. If the caller gives no caches, it has its own.

    count: counts the tokens of a text.
    results: outcomes of earlier results.
    allowance: how many characters may still be processed.
    counter: number that identifies `count` among all users of the same caches.
    sketches: by text; they depend on neither the counter nor the policy.
    diffs: by the digests of the older and the newer text; they depend on neither the counter nor the policy.
    max_chars: if more new characters than this have to be processed, the rules raise LargeWorkError. What they computed
        until then is in the caches. None for no bound.
    open_archive: makes an index for what was cut; None if nothing can be looked up.
    """

    count: CountTokens
    results: Cache[ResultKey, Shortened] = field(default_factory=dict)
    allowance: Allowance = field(default_factory=Allowance)
    counter: int = 0
    sketches: Cache[str, Sketch] = field(default_factory=dict)
    diffs: Cache[tuple[bytes, bytes], str] = field(default_factory=dict)
    max_chars: int | None = None
    open_archive: Callable[[], Archive] | None = None

    def begin(self) -> "Work":
        """The same for the next piece of work, with the full allowance of `max_chars`."""
        if (most := self.max_chars) is None:
            return self
        # Not `replace`, which takes 20 calls: every request comes here.
        return Work(
            self.count, self.results, Allowance(most), self.counter, self.sketches, self.diffs, most, self.open_archive
        )
