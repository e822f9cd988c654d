"""The window's state: where a transcript is pruned and where it gives way to a summary; cut_decision.py finds it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from rules.window.images import NONE_REMOVED, ImageStop
from rules.window.open_step import Cap


class CutKind(StrEnum):
    """What stands in for the part before a cut: a model's summary, or a digest made without one."""

    SUMMARISE = "summarise"
    DIGEST = "digest"


@dataclass(frozen=True, slots=True)
class Cut:
    """Everything between head and message `at` gives way to a summary of `reserved_tokens`.

    The user messages at `kept` stand verbatim behind it. `tokens` is all that stands between head and `at` then.
    Results before `prune_stop` were placeholders until the cut was made, and `images` were removed. There were
    `made_at` messages then: those from `at` up to it are the tail by which it is decided what is carried over, in at
    most `anchor_tokens`. Of the kept messages `spared` keeps its images.
    """

    kind: CutKind
    at: int
    reserved_tokens: int
    kept: tuple[int, ...]
    tokens: int
    prune_stop: int = 0
    made_at: int = 0
    anchor_tokens: int = 0
    images: ImageStop = NONE_REMOVED
    spared: int = -1


@dataclass(frozen=True, slots=True)
class Window:
    """The fold's state. Indexes are into the messages folded.

    `cuts` are the summaries so far, oldest first: the last one stands. Results before `prune_stop` are placeholders.
    `next_cut` is the cut fixed at prefetch and not applied yet; `prefetch_tokens` the reserve of the summary that is to
    be written for it ahead of time, 0 for none. `task` is the first user message. `caps` are the messages that did not
    fit when they were the newest ones, in the order of these decisions: they are forwarded shortened from then on.
    `images` says which images are lines.
    """

    task: int | None = None
    cuts: tuple[Cut, ...] = ()
    prune_stop: int = 0
    next_cut: int | None = None
    prefetch_tokens: int = 0
    caps: tuple[Cap, ...] = ()
    images: ImageStop = NONE_REMOVED

    @property
    def cut(self) -> Cut | None:
        """The cut that stands."""
        return self.cuts[-1] if self.cuts else None

    @property
    def earlier(self) -> "Window | None":
        """The window without its last cut, as it was forwarded before that was made; None where there is no cut."""
        if not self.cuts:
            return None
        last = self.cuts[-1]
        before = replace(self, cuts=self.cuts[:-1], prune_stop=last.prune_stop, images=last.images)
        return replace(before, next_cut=None, prefetch_tokens=0)

    @property
    def without_images(self) -> Iterator[int]:
        """The messages that are forwarded without their images, oldest first."""
        start = 0
        if (cut := self.cut) is not None:
            start = cut.at
            yield from (index for index in cut.kept if index != cut.spared)
        yield from (index for index in range(start, self.images.at) if index not in {self.images.spared, self.task})
