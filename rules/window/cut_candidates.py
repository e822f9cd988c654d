"""The windows that could come next: with fewer images, pruned, cut, or cut down to the open step.

Law: functions of a transcript's sums, the room and the policy. window/cut_decision.py decides which window is taken and
when.
"""

from bisect import bisect_left
from dataclasses import replace

from rules.policy import PREFETCH_GAP, OverflowStrategy, Policy
from rules.window.cut_making import SUMMARY_FRAME_TOKENS, CutMaker
from rules.window.images import ImageStop
from rules.window.room import MIN_ROOM_SHARE, Marks, Room
from rules.window.state import Cut, CutKind, Window
from rules.window.sums import Sums

SPARED_STEPS = 1
"""Number of newest answered steps that a cut spares if the window still holds them. Chosen: an agent that has just read
a long file works with it for a while. Without the file it would have to read it again."""


class Cuts:
    """The windows that could follow a given one, after the messages that `sums` has seen."""

    __slots__ = ("_making", "_policy", "_room", "_sums")

    def __init__(self, room: Room, policy: Policy, sums: Sums) -> None:
        self._room = room
        self._policy = policy
        self._sums = sums
        self._making = CutMaker(room, policy, sums)

    @property
    def marks(self) -> Marks:
        """The marks after the messages so far."""
        return self._making.marks

    @property
    def opening(self) -> int:
        """Index of the client's own summary of an earlier session; -1 without one, or if it is too long to stay."""
        return self._making.opening

    def list_kept(self, cut: Cut, *, keeps_least: bool = False) -> Cut:
        """The cut with the messages that it keeps, if it is made now; `keeps_least` as for `CutMaker.make`."""
        return self._making.list_kept(cut, keeps_least=keeps_least)

    @property
    def room_tokens(self) -> int:
        """The room after the messages so far."""
        return self.marks.tokens

    @property
    def is_roomy(self) -> bool:
        """Whether the head leaves so much room that cuts do not come at nearly every step."""
        return self.marks.tokens >= self._room.limit * MIN_ROOM_SHARE

    def share(self, share: float) -> int:
        """A share of the room, in tokens."""
        return int(self.marks.tokens * share)

    def floor(self, window: Window) -> int:
        """Index of the first message that is forwarded after the head and the summary."""
        return window.cut.at if window.cut else min(self._room.leading, len(self._sums))

    def size(self, window: Window) -> int:
        """Tokens that would be forwarded after the head in this window."""
        base, floor = window.cut.tokens if window.cut else 0, self.floor(window)
        spared = sum(self._sums.pruned(*step) for step in window.spared if floor <= step[0])
        memory_tokens = self._sums.memory.behind(max(floor, window.memory_stop))
        return base + spared + memory_tokens + self._sums.behind(floor, window.prune_stop, window.images)

    @property
    def open_tokens(self) -> int:
        """Tokens of the open step."""
        return self._sums.between(self._sums.open_step, len(self._sums))

    def rest(self, window: Window) -> int:
        """Tokens that would be forwarded between the head and the open step in this window."""
        return self.size(window) - self.open_tokens

    def choose(self, window: Window, *, over: bool) -> Window | None:
        """The mildest window that frees enough: without memory, without old images, pruned, or cut, in this order.

        The later ones drop memory, too. None if none of them is possible. None also if the cut is too short to ask a
        model for a summary, it is not forced (`over`: the room is exceeded, or a threshold), and the strategy is not
        `prune`.
        """
        policy = self._policy
        light, memory_stop = self.drop_memory(window, 0), window.memory_stop
        window = self.without_memory(window)
        pruned = self.prune(window)
        cut = self._summarise(window, over=over)
        if cut is not None:  # if the cut is put off, its memory must still be there
            cut = replace(cut, cuts=(*cut.cuts[:-1], replace(cut.cuts[-1], memory_stop=memory_stop)))
        asks = cut is not None and cut.cuts[-1].kind is CutKind.SUMMARISE
        enough = self.marks.low if asks else self.marks.high
        if light is not None and self.size(light) <= enough:
            return light
        if (without := self.remove_images(window, 0)) is not None and self.size(without) <= enough:
            return without
        if pruned is not None and self.size(pruned) <= enough and not (asks and self._has_pruned(window)):
            return pruned
        return cut if asks or over or policy.overflow_strategy is OverflowStrategy.PRUNE else light

    def _has_pruned(self, window: Window) -> bool:
        """Whether results were pruned since the last cut."""
        return window.prune_stop > self.floor(window)

    def drop_memory(self, window: Window, growth_tokens: int, *, over: bool = False) -> Window | None:
        """The window without its oldest memory, so that low water is left even after `growth_tokens` more.

        Memory of the open step stays, unless the room is exceeded (`over`) and high water is not reached without it.
        None if nothing is saved.
        """
        excess = self.size(window) + growth_tokens - self.marks.low
        start = max(self.floor(window), window.memory_stop)
        stop = self._sums.memory.find_stop(start, excess)
        spared = min(stop, self._sums.open_step)
        saved_tokens = self._sums.memory.saved(start, spared)
        if not over or self.size(window) - saved_tokens <= self.marks.high:
            stop = spared
        is_saved = excess > 0 and self._sums.memory.saved(start, stop) > 0
        return replace(window, memory_stop=stop) if is_saved else None

    def limit_memory(self, window: Window) -> Window | None:
        """The window with memory of half its share, if it had more than its share; else None.

        Only half is left, so that the prompt cache does not break each time memory is added. Memory of the open step
        stays.
        """
        shares = self._policy.sections
        most = None if shares is None else int(self._room.limit * shares.memory)
        start = max(self.floor(window), window.memory_stop)
        if most is None or (tokens := self._sums.memory.behind(start)) <= most:
            return None
        stop = min(self._sums.memory.find_stop(start, tokens - most // 2), self._sums.open_step)
        return replace(window, memory_stop=stop) if self._sums.memory.saved(start, stop) else None

    def limit_turns(self, window: Window, number: int) -> Window | None:
        """The window cut so that half of `number` user turns stay, if there were more than `number`; else None.

        The task statement is no turn here. None also if the cut would not save anything. Half, so that cuts are rare.
        """
        users, floor = self._sums.users, self.floor(window)
        turns = len(users) - bisect_left(users, floor)
        turns -= window.task is not None and window.task >= floor
        newest = users[-((number + 1) // 2)] if turns > number else floor
        at = self._sums.find_start(min(newest, self._sums.open_step)) if turns > number else floor
        if self._sums.between(floor, at) <= 0:
            return None
        kind = self.cut_at(window, at).cuts[-1].kind
        bare = self._with_cut(window, self._making.make(kind, at, 0, keeps_least=True))
        saved_tokens = self.size(window) - self.size(bare)
        # The summary gets at most half of what the cut saves, and the exact names a quarter.
        reserved = min(self._making.reserve, saved_tokens // 2)
        anchors = min(self._making.anchor_tokens, saved_tokens // 4)
        cut = self._making.make(kind, at, reserved, anchors, keeps_least=True)
        return self._with_cut(window, cut) if saved_tokens > 0 else None

    def without_memory(self, window: Window) -> Window:
        """The window without any memory before the open step."""
        start, stop = max(self.floor(window), window.memory_stop), self._sums.open_step
        return replace(window, memory_stop=stop) if self._sums.memory.saved(start, stop) else window

    def prune(self, window: Window) -> Window | None:
        """The window with results before the next cut as placeholders; None if not allowed, or if nothing changes."""
        if self._policy.overflow_strategy is OverflowStrategy.SUMMARIZE or window.next_cut is None:
            return None
        stop = min(window.next_cut, self._protected())
        if stop <= max(window.prune_stop, self.floor(window)):
            return None
        images = self._stop_images(stop) if stop > window.images.at else window.images
        start = max(window.prune_stop, self.floor(window))
        spared = {*window.spared, *(step for step in self._making.find_loops(stop) if step[0] >= start)}
        unfit = {*window.unfit, *(step for step in self._making.find_unfit(stop) if step[0] >= start)}
        pruned = replace(window, prune_stop=stop, images=images)
        return replace(pruned, spared=tuple(sorted(spared)), unfit=tuple(sorted(unfit)))

    def remove_images(self, window: Window, growth_tokens: int) -> Window | None:
        """The window without its oldest images, so that low water is left even after `growth_tokens` more.

        If that needs more than all images before the newest step, those of the newest step still stay. None if the
        strategy forbids pruning, or if nothing is saved.
        """
        strategy = self._policy.overflow_strategy
        if strategy in {OverflowStrategy.SUMMARIZE, OverflowStrategy.ERROR} or not self._sums.images:
            return None
        excess = self.size(window) + growth_tokens - self.marks.low
        start = max(self.floor(window), window.images.at)
        stop = self._sums.images.find_stop(start, excess)
        images = self._stop_images(min(stop, self._sums.open_step))
        if images.spared >= start:
            excess += self._sums.images.saved(images.spared, images.spared + 1)
            images = self._stop_images(min(self._sums.images.find_stop(start, excess), self._sums.open_step))
        return self._without(window, images)

    def keep_images(self, window: Window, number: int) -> Window | None:
        """The window with only its newest `number` images; None while there are fewer than twice that many.

        Those of the task statement and of the last user message count, too, and they stay.
        Each removal breaks the prompt cache from the oldest removed image on. Images are removed that many at a time:
        one by one, they would break the cache at every step.
        """
        start = max(self.floor(window), window.images.at)
        images, spared = self._sums.images, window.images.spared
        others = self._sums.task_images
        if self.floor(window) <= spared < start:
            others += images.number(spared, spared + 1)
        if others + images.number(start, len(self._sums)) < max(2 * number, 1):
            return None
        return self._without(window, self._stop_images(min(images.find_newest(number), self._sums.open_step)))

    def _stop_images(self, stop: int) -> ImageStop:
        words = self._sums.last_words
        return ImageStop(stop, words if words < stop else -1)

    def _without(self, window: Window, images: ImageStop) -> Window | None:
        without = replace(window, images=images)
        return without if images.at > window.images.at and self.size(without) < self.size(window) else None

    def _protected(self) -> int:
        """Start of the newest `protect_turns` user turns; the end if these alone nearly reach high water."""
        turns, users = self._policy.protect_turns, self._sums.users
        if turns == 0:
            return len(self._sums)
        start = users[-turns] if len(users) >= turns else min(self._room.leading, len(self._sums))
        protected = self._sums.between(start, len(self._sums))
        return len(self._sums) if protected > self.marks.protected else start

    def _summarise(self, window: Window, *, over: bool) -> Window | None:
        """The window with a summary up to the next cut.

        If the room is exceeded (`over`), the cut is chosen again in two cases: too much would stay, or the cut part is
        too short to ask a model for a summary. Too much is more than high water; if the summary was asked for ahead,
        more than the size from which on the next one would be.
        """
        at = window.next_cut
        if at is None:
            return None
        candidate = self.cut_at(window, at)
        too_few = candidate.cuts[-1].kind is CutKind.DIGEST and self._policy.overflow_strategy.asks_a_model
        most = max(self.marks.high, self.share(1 - PREFETCH_GAP) if window.prefetch_tokens else 0)
        if over and (too_few or self.size(candidate) > most):
            at = self.find_cut(window, 0)
            candidate = self.cut_at(window, at) if at is not None else candidate
        return candidate

    def find_cut(self, window: Window, growth_tokens: int, *, spares: bool = False) -> int | None:
        """Index of the cut that leaves about low water once `growth_tokens` more have come.

        The open step if no earlier cut leaves that little; None if there is nothing new to cut. With `spares`, the
        newest answered steps stay, however long they are: `keep_recent_steps` of the policy, else SPARED_STEPS. The
        newest user turns stay, too, if reminders would push them out.
        """
        making = self._making
        stays = self.marks.low - growth_tokens - SUMMARY_FRAME_TOKENS - making.reserve - making.anchor_tokens
        at = self._sums.find_step(max(stays, 0), window.images)
        if spares:
            number = self._policy.keep_recent_steps
            at = min(at, self._sums.newest_answers(SPARED_STEPS if number is None else number))
        at = self._sums.find_start(min(at, making.find_reminded_turns()))
        return at if self._sums.between(self.floor(window), at) > 0 else None

    def cut_at(self, window: Window, at: int) -> Window:
        """The window cut before message `at`: with a summary if enough steps are cut, else with a digest."""
        policy = self._policy
        steps = self._sums.steps(self.floor(window), at)
        asks = policy.overflow_strategy.asks_a_model and steps >= policy.summary_min_steps
        kind = CutKind.SUMMARISE if asks else CutKind.DIGEST
        cut = self._making.make(kind, at, self._making.reserve, self._making.anchor_tokens)
        return self._with_cut(window, cut)

    def _with_cut(self, window: Window, cut: Cut) -> Window:
        cut = _note_before(cut, window)
        memory_stop = max(window.memory_stop, self._stop_memory(cut.at))
        return replace(window, cuts=(*window.cuts, cut), memory_stop=memory_stop)

    def _stop_memory(self, at: int) -> int:
        """`at`, if memory before it is still forwarded in some window; else 0."""
        return at if self._sums.memory.saved(0, at) else 0

    def shrink(self, window: Window) -> Window | None:
        """The window cut before the open step, with a digest as short as needed for the open step to fit."""
        at = self._sums.open_step
        if self._sums.between(min(self._room.leading, at), at) == 0:
            return None
        last = window.cut
        earlier = (window.earlier or window) if last is not None and last.at == at else window
        bare, loads = self._bare(window, earlier, at, loads=True), True
        if self.size(bare) > self.room_tokens:
            bare, loads = self._bare(window, earlier, at, loads=False), False
        reserved = min(max(self.room_tokens - self.size(bare), 0), self._policy.summary_max_tokens)
        cut = self._making.make(CutKind.DIGEST, at, reserved, keeps_least=True, loads=loads)
        cut = _note_before(cut, earlier)
        memory_stop = max(window.memory_stop, self._stop_memory(at))
        return replace(window, cuts=(*earlier.cuts, cut), memory_stop=memory_stop)

    def _bare(self, window: Window, earlier: Window, at: int, *, loads: bool) -> Window:
        cut = self._making.make(CutKind.DIGEST, at, 0, keeps_least=True, loads=loads)
        return replace(window, cuts=(*earlier.cuts, cut))

    def make_way(self, window: Window) -> Window | None:
        """The window cut right before an open step that is too long; None if only little lies before that step."""
        at = self._sums.open_step
        if self.rest(window) <= self.marks.low or self._sums.between(self.floor(window), at) <= 0:
            return None
        return self.cut_at(window, at)


def _note_before(cut: Cut, window: Window) -> Cut:
    """The cut with what was done before it."""
    cut = replace(cut, prune_stop=window.prune_stop, images=window.images)
    return replace(cut, memory_stop=window.memory_stop, users_stop=window.users_stop)
