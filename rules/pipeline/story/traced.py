"""A change and the places of its message: what the sentences are written from.

Law: values only.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from rules.conversation import Origin
from rules.pipeline.story.values import OUTSIDE, Change, Fate
from rules.text.markers import INTRODUCTION


@dataclass(frozen=True, slots=True)
class Traced:
    """A change, and all elements of the request's list in which the message stood; none for one that trimtab made."""

    change: Change
    elements: tuple[int, ...] = ()

    @property
    def is_summary(self) -> bool:
        """Whether this is the summary, or the digest."""
        return self.change.fate is Fate.ADDED and INTRODUCTION in self.change.after

    @property
    def saved_tokens(self) -> int:
        """Tokens saved, by the count of the change; negative if some were added."""
        return self.change.tokens_before - self.change.tokens_after


def list_elements(origin: Origin | None) -> tuple[int, ...]:
    """The indexes of a message's elements in the request's own list; OUTSIDE if it is not in the list."""
    if origin is None:
        return ()
    return tuple(range(origin.start, origin.stop)) or (OUTSIDE,)


def list_places(traced: Iterable[Traced]) -> tuple[int, ...]:
    """All elements of these messages, ascending."""
    return tuple(sorted({element for one in traced for element in one.elements}))
