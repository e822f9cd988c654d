"""What the rules on results count with, what they may remember, and how much they may work through at once.

Law: what is remembered saves time and changes nothing else. Whatever a cache has forgotten is worked out again.
"""

from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from rules.conversation import CountTokens
from rules.text.sketch import Sketch

K_contra = TypeVar("K_contra", contravariant=True)
V = TypeVar("V")


class Cache(Protocol[K_contra, V]):
    """What was worked out before, by key. It may forget anything at any time."""

    def get(self, key: K_contra, /) -> V | None:
        """What was kept under `key`, if anything."""

    def __setitem__(self, key: K_contra, value: V, /) -> None:
        """Keep it for as long as there is room."""


@dataclass(frozen=True, slots=True)
class Shortened:
    """What became of a result's texts: the new ones and the tokens saved. No texts: it was left alone."""

    texts: tuple[str, ...]
    saved_tokens: int


ResultKey = tuple[int, str, str, bytes | tuple[str, ...], bool, str, str]
"""Everything that the outcome for one result depends on: the counter, the rule, the treatment, what the result says,
whether it is an error, and the name and the arguments of its call."""


class LargeWorkError(Exception):
    """There is more text to work through than the caller allowed for."""


class Allowance:
    """How many characters may be worked through; None for any number."""

    def __init__(self, max_chars: int | None = None) -> None:
        self._left = max_chars

    def spend(self, chars: int) -> None:
        """Note that so many are about to be worked through. Raises LargeWorkError if that is more than is left."""
        if self._left is not None:
            self._left -= chars
            if self._left < 0:
                raise LargeWorkError


@dataclass(frozen=True, slots=True)
class Work:
    """What the rules on results work with. Without caches of a caller's, it remembers for as long as it is there.

    If more than `max_chars` are in none of the caches, the rules raise LargeWorkError; what was worked out until
    then is remembered. `counter` names `count` among all that share the caches. Sketches (by text) and diffs (by the
    digests of the older and the newer text) depend on neither the counter nor the policy.
    """

    count: CountTokens
    results: Cache[ResultKey, Shortened] = field(default_factory=dict)
    allowance: Allowance = field(default_factory=Allowance)
    counter: int = 0
    sketches: Cache[str, Sketch] = field(default_factory=dict)
    diffs: Cache[tuple[bytes, bytes], str] = field(default_factory=dict)
    max_chars: int | None = None

    def begin(self) -> "Work":
        """The same for one piece of work, of which nothing is spent yet."""
        return self if self.max_chars is None else replace(self, allowance=Allowance(self.max_chars))
