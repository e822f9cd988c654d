"""The window's state: which part of a transcript is pruned and which part a summary replaces.

Law: values only; cut_decision.py computes them.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from operator import attrgetter
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from trimtab.rules.window.prune import NONE_REMOVED, ImageStop
from trimtab.rules.window.room import Cap


class CutKind(StrEnum):
    """The text that replaces the part before a cut: a summary written by a model, or a digest made without a model."""

    SUMMARISE = "summarise"
    DIGEST = "digest"


class ColdCut(StrEnum):
    """What is removed at a cold cache: only what needs no summary (`PRUNE`), or as much as an ordinary cut (`CUT`).

    `ASK`: the same cut, if it also pays when its summary is not written yet. `NOW`: the same cut, whether it pays or
    not, because somebody asked for it.
    """

    PRUNE = "prune"
    CUT = "cut"
    ASK = "ask"
    NOW = "now"


NOT_COLD: Mapping[int, ColdCut] = MappingProxyType({})


# Structs, because `dataclasses.replace` costs a call for each field, and the fold tries several windows a message.
class Cut(msgspec.Struct, frozen=True):
    """A summary of `reserved_tokens` replaces everything between the head and message `at`.

    kept: indexes of the user messages that are forwarded verbatim after the summary.
    opening: index of the client's own summary of an earlier session, if it stays; -1 if not.
    kept_systems: indexes of the system messages that stay: the newest of equal ones, as far as they fit.
    kept_steps: the steps [start, stop) that stay, oldest first: calls that were repeated because their results were
        removed each time, searches that loaded tools, messages that the client wants kept, and the answer to the task
        statement, if the summary does not follow that.
    bare_steps: those of them of which only the search, or what the client wants kept, stays: other results are pruned.
    loads: whether these stay.
    lost: number of messages that the client wants kept and for which there was no room.
    unfit: the newest step that was repeated for the same reason and does not fit; the summary says so; -1 for none.
    tokens: the cost of everything that then lies between the head and message `at`.
    prune_stop, images, memory_stop, users_stop: what was pruned, removed, dropped and short before this cut was made;
        `Window.earlier` needs them.
    made_at: number of messages when the cut was made. The messages from `at` to `made_at` decide which names are
        carried over.
    anchor_tokens: the most that these names may cost.
    spared: the kept message that keeps its images; -1 for none.
    """

    kind: CutKind
    at: int
    reserved_tokens: int
    kept: tuple[int, ...]
    tokens: int
    prune_stop: int = 0
    memory_stop: int = 0
    users_stop: int = 0
    made_at: int = 0
    anchor_tokens: int = 0
    images: ImageStop = NONE_REMOVED
    spared: int = -1
    kept_systems: tuple[int, ...] = ()
    kept_steps: tuple[tuple[int, int], ...] = ()
    opening: int = -1
    unfit: int = -1
    loads: bool = True
    bare_steps: tuple[tuple[int, int], ...] = ()
    lost: int = 0


class ColdSummary(msgspec.Struct, frozen=True):
    """The summary that a cut before message `at` would need if the upstream's cache were cold at the next request.

    reserved_tokens: reserved for the summary.
    freed_tokens: what the cut would remove.
    price: what the summary costs if it is written while the cache is warm.
    saving: what it saves if the cache is cold then. Both are in the price of one uncached input token.
    """

    at: int
    reserved_tokens: int
    freed_tokens: int
    price: float
    saving: float


class Window(msgspec.Struct, frozen=True, eq=False):
    """The fold's state. All indexes are into the messages folded.

    task: the first user message after the leading ones; None before it has come.
    spared: steps [start, stop) before `prune_stop` whose results are not pruned, for the same reason.
    unfit: the same for steps that do not fit; their placeholders say so.
    opening: the client's own summary of an earlier session, which the next cut keeps; -1 if there is none.
    cuts: all cuts so far, oldest first. Only the last one is in effect.
    prune_stop: tool results before this message are placeholders.
    next_cut: the message before which the next cut will be made; fixed at prefetch, not applied yet.
    prefetch_tokens: size reserved for the summary of `next_cut` that is written ahead; 0 if none is.
    caps: messages that did not fit when they were the newest, in the order of these decisions. They are forwarded
        shortened from then on.
    images: which images are replaced by one-line markers.
    memory_stop: retrieved memory in messages before this one is dropped.
    users_stop: long user messages before this one are short.
    is_high: high water was reached at one of the messages so far, after the task statement was shortened to fit.
    is_near: the next request is expected to be cut. It does not count for equality, as nothing is forwarded differently
        because of it.
    is_long: the mark was reached from which on a cold cache is used for a cut. It does not count for
        equality, as nothing is forwarded differently because of it.
    cold_summary: the summary to write ahead in case that the cache will be cold; None for none. It does not count for
        equality, for the same reason.
    removed_from: the first message of which the last cut or prune has removed something.
    """

    task: int | None = None
    cuts: tuple[Cut, ...] = ()
    prune_stop: int = 0
    next_cut: int | None = None
    prefetch_tokens: int = 0
    caps: tuple[Cap, ...] = ()
    images: ImageStop = NONE_REMOVED
    memory_stop: int = 0
    users_stop: int = 0
    is_high: bool = False
    is_near: bool = False
    is_long: bool = False
    cold_summary: ColdSummary | None = None
    removed_from: int = 0
    opening: int = -1
    spared: tuple[tuple[int, int], ...] = ()
    unfit: tuple[tuple[int, int], ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Window) and (self is other or _compared(self) == _compared(other))

    __hash__ = None  # type: ignore[assignment] # nothing keeps windows by their value

    def was_just_removed(self, step: int) -> bool:
        """Whether the results of the step that begins here were removed by the last cut or prune, not by one before."""
        return step >= self.removed_from and self.is_removed(step)

    def is_removed(self, step: int) -> bool:
        if (cut := self.cut) is not None and step < cut.at:
            return all(step != start for start, _ in cut.kept_steps) or any(
                step == start for start, _ in cut.bare_steps
            )
        return step < self.prune_stop and all(step != start for start, _ in self.spared)

    @property
    def pruned(self) -> Iterator[int]:
        """The messages whose results are pruned, oldest first."""
        stays = {index for start, stop in self.spared for index in range(start, stop)}
        start, bare = (self.cut.at, self.cut.bare_steps) if self.cut else (0, ())
        yield from (index for step in bare for index in range(*step))
        yield from (index for index in range(start, self.prune_stop) if index not in stays)

    @property
    def shortens(self) -> bool:
        return bool(self.cuts or self.caps) or self._changes_old

    @property
    def changes_sent(self) -> bool:
        """Whether a message is forwarded otherwise than in an earlier request of the session.

        A message that did not fit when it was the newest has been shortened from the start, unlike the task statement.
        """
        return bool(self.cuts) or self._changes_old or any(cap.at == self.task for cap in self.caps)

    @property
    def _changes_old(self) -> bool:
        return bool(self.prune_stop or self.memory_stop or self.users_stop) or self.images != NONE_REMOVED

    @property
    def has_reached_high(self) -> bool:
        """Whether the client's messages have reached high water so far, also by a task statement that was shortened."""
        return self.is_high or any(cap.at == self.task for cap in self.caps)

    @property
    def cut(self) -> Cut | None:
        return self.cuts[-1] if self.cuts else None

    @property
    def earlier(self) -> "Window | None":
        """The window as it was before its last cut; None if there is no cut."""
        if not self.cuts:
            return None
        last = self.cuts[-1]
        return replace(
            self,
            cuts=self.cuts[:-1],
            prune_stop=last.prune_stop,
            images=last.images,
            memory_stop=last.memory_stop,
            users_stop=last.users_stop,
            is_near=True,
            next_cut=None,
            prefetch_tokens=0,
            cold_summary=None,
        )

    @property
    def without_images(self) -> Iterator[int]:
        """The messages that are forwarded without their images, oldest first."""
        start = 0
        if (cut := self.cut) is not None:
            start = cut.at
            yield from (index for index in cut.kept if index != cut.spared)
        yield from (index for index in range(start, self.images.at) if index not in {self.images.spared, self.task})


_NOT_COMPARED = {"is_near", "is_long", "cold_summary"}
_compared = attrgetter(*(name for name in Window.__struct_fields__ if name not in _NOT_COMPARED))


class Change(msgspec.Struct, frozen=True):
    """A change to another window, and the tokens after the head in both; `open_tokens` of these are the open step's."""

    before: Window
    after: Window
    tokens_before: int
    tokens_after: int
    open_tokens: int

    @property
    def asks(self) -> bool:
        cuts, before = self.after.cuts, self.before.cuts
        return cuts is not before and bool(new := cuts[len(before) :]) and new[-1].kind is CutKind.SUMMARISE

    def with_digest(self) -> "Change":
        """The same with a digest at its cut."""
        *earlier, cut = self.after.cuts
        cuts = (*earlier, replace(cut, kind=CutKind.DIGEST))
        return replace(self, after=replace(self.after, cuts=cuts))


class Choice(msgspec.Struct, frozen=True):
    """The window to change to, if there is one, and its size. pruned: the one that only prunes, chosen or not."""

    window: Window | None
    tokens: int
    pruned: Window | None
