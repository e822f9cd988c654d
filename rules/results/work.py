"""What the rules on results count with, what they may remember, and how much they may work through at once.

Law: what is remembered saves time and changes nothing else. Whatever a cache has forgotten is worked out again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from rules.conversation import CountTokens
from rules.text.sketch import Sketch

K_contra = TypeVar("K_contra", contravariant=True)
V = TypeVar("V")


class Cache(Protocol[K_contra, V]):
    """What was worked out before, by key. It may forget anything at any time."""

    def get(self, key: K_contra, /) -> V | None:
        """What was kept under `key`, if anything."""

    def get_many(self, keys: Iterable[K_contra], /) -> Sequence[V | None]:
        """What was kept under each key, if anything."""

    def __setitem__(self, key: K_contra, value: V, /) -> None:
        """Keep it for as long as there is room."""


class _NoCache:
    """Remembers nothing."""

    def get(self, _key: object, /) -> None:
        return None

    def get_many(self, keys: Iterable[object], /) -> Sequence[None]:
        return [None for _ in keys]

    def __setitem__(self, _key: object, _value: object, /) -> None:
        pass


NO_CACHE = _NoCache()


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


UNBOUNDED = Allowance()


@dataclass(frozen=True, slots=True)
class Work:
    """What the rules on results work with.

    If more than the `allowance` is in none of the caches, the rules raise LargeWorkError; what was worked out until
    then is remembered. `counter` names `count` among all that share the caches. Sketches (by text) and diffs (by the
    digests of the older and the newer text) depend on neither the counter nor the policy.
    """

    count: CountTokens
    results: Cache[ResultKey, Shortened] = NO_CACHE
    allowance: Allowance = UNBOUNDED
    counter: int = 0
    sketches: Cache[str, Sketch] = NO_CACHE
    diffs: Cache[tuple[bytes, bytes], str] = NO_CACHE
