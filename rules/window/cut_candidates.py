"""The windows that could come next: pruned, cut, or cut down to the open step.

Law: functions of the sums of a transcript, the room and the policy. Which of them is taken, and when, is decided in
window/cut_decision.py.
"""

from dataclasses import replace

from rules.policy import OverflowStrategy, Policy
from rules.window.images import ImageStop
from rules.window.room import Room
from rules.window.state import Cut, CutKind, Window
from rules.window.sums import Sums

SUMMARY_FRAME_TOKENS = 160
"""Reserved for the lines around a summary: what it is, the headings, an acknowledgement."""
SPARED_STEPS = 1
"""Answered ones, which stay while the window holds them. Chosen: who has just read a long file goes by it for a while,
and would have to read it again."""
PROTECTED_SHARE = 0.8
"""Of high water. Newest user turns that are longer are pruned, too: an agent's session is often a single one."""


class Cuts:
    """The windows that could follow a given one, after the messages that `sums` has seen."""

    __slots__ = ("_policy", "_room", "_sums")

    def __init__(self, room: Room, policy: Policy, sums: Sums) -> None:
        self._room = room
        self._policy = policy
        self._sums = sums

    @property
    def room_tokens(self) -> int:
        """The room as it is by now: the task statement may not have come yet."""
        return self._room.early if self._sums.task is None else self._room.tokens

    def share(self, share: float) -> int:
        """So much of the room, in tokens."""
        return int(self.room_tokens * share)

    def floor(self, window: Window) -> int:
        """The first message that is forwarded behind the head."""
        return window.cut.at if window.cut else min(self._room.leading, len(self._sums))

    def size(self, window: Window) -> int:
        """What would be forwarded behind the head in a state."""
        base = window.cut.tokens if window.cut else 0
        return base + self._sums.behind(self.floor(window), window.prune_stop, window.images)

    @property
    def open_tokens(self) -> int:
        """What the open step costs."""
        return self._sums.between(self._sums.open_step, len(self._sums))

    def rest(self, window: Window) -> int:
        """What would be forwarded between the head and the open step in a state."""
        return self.size(window) - self.open_tokens

    def choose(self, window: Window, *, over: bool) -> Window | None:
        """Without images or pruned where that is enough, else cut; None where nothing is to be had.

        Nor where a cut is not worth asking a model for.
        """
        policy = self._policy
        pruned = self.prune(window)
        cut = self._summarise(window, over=over)
        asks = cut is not None and cut.cuts[-1].kind is CutKind.SUMMARISE
        enough = policy.low_water if asks else policy.high_water
        if (without := self.remove_images(window, 0)) is not None and self.size(without) <= self.share(enough):
            return without
        if pruned is not None and self.size(pruned) <= self.share(enough):
            return pruned
        return cut if asks or over or policy.overflow_strategy is OverflowStrategy.PRUNE else None

    def prune(self, window: Window) -> Window | None:
        """The window with the results before the next cut pruned; None where that is not allowed or does nothing."""
        if self._policy.overflow_strategy is OverflowStrategy.SUMMARIZE or window.next_cut is None:
            return None
        stop = min(window.next_cut, self._protected())
        if stop <= max(window.prune_stop, self.floor(window)):
            return None
        images = self._stop_images(stop) if stop > window.images.at else window.images
        return replace(window, prune_stop=stop, images=images)

    def remove_images(self, window: Window, growth_tokens: int) -> Window | None:
        """The window without so many of its oldest images that low water is left, this growth included.

        Without all but those of the newest step if even that leaves more. None if results may not be pruned either, or
        if nothing is saved.
        """
        strategy = self._policy.overflow_strategy
        if strategy in {OverflowStrategy.SUMMARIZE, OverflowStrategy.ERROR} or not self._sums.images:
            return None
        excess = self.size(window) + growth_tokens - self.share(self._policy.low_water)
        start = max(self.floor(window), window.images.at)
        stop = self._sums.images.find_stop(start, excess)
        images = self._stop_images(min(stop, self._sums.open_step))
        if images.spared >= start:
            excess += self._sums.images.saved(images.spared, images.spared + 1)
            images = self._stop_images(min(self._sums.images.find_stop(start, excess), self._sums.open_step))
        return self._without(window, images)

    def keep_images(self, window: Window, number: int) -> Window | None:
        """The window with its newest images, so many; None while there are less than twice as many.

        Each removal breaks the cache from the oldest image on. Removed one by one, they would break it at every step.
        """
        start = max(self.floor(window), window.images.at)
        words = self._sums.last_words
        images = self._sums.images
        spared = images.number(words, words + 1) if start <= words < self._sums.open_step else 0
        if images.number(start, len(self._sums)) - spared < max(2 * number, 1):
            return None
        return self._without(window, self._stop_images(min(images.find_newest(number), self._sums.open_step)))

    def _stop_images(self, stop: int) -> ImageStop:
        words = self._sums.last_words
        return ImageStop(stop, words if words < stop else -1)

    def _without(self, window: Window, images: ImageStop) -> Window | None:
        without = replace(window, images=images)
        return without if images.at > window.images.at and self.size(without) < self.size(window) else None

    def _protected(self) -> int:
        """Where the newest `protect_turns` user turns begin; the end, if those alone nearly reach high water."""
        turns, users = self._policy.protect_turns, self._sums.users
        if turns == 0:
            return len(self._sums)
        start = users[-turns] if len(users) >= turns else min(self._room.leading, len(self._sums))
        protected = self._sums.between(start, len(self._sums))
        return len(self._sums) if protected > self.share(self._policy.high_water * PROTECTED_SHARE) else start

    def _summarise(self, window: Window, *, over: bool) -> Window | None:
        """The window with a summary up to the next cut.

        If the room is exceeded, that is chosen anew if what stays would still be too much, or what goes too little to
        ask a model for.
        """
        at = window.next_cut
        if at is None:
            return None
        candidate = self.cut_at(window, at)
        too_few = candidate.cuts[-1].kind is CutKind.DIGEST and self._policy.overflow_strategy.asks_a_model
        if over and (too_few or self.size(candidate) > self.share(self._policy.high_water)):
            at = self.find_cut(window, 0)
            candidate = self.cut_at(window, at) if at is not None else candidate
        return candidate

    def find_cut(self, window: Window, growth_tokens: int, *, spares: bool = False) -> int | None:
        """Where to cut so that about low water is left when `growth_tokens` have come on top.

        The open step where no other leaves so little; None where there is nothing new to cut. If it `spares`, the
        newest answered steps stay, however long they are.
        """
        low = self._policy.low_water
        stays = self.share(low) - growth_tokens - SUMMARY_FRAME_TOKENS - self._reserve - self._anchor_tokens
        at = self._sums.find_step(max(stays, 0), window.images)
        if spares:
            at = min(at, self._sums.newest_answers(SPARED_STEPS))
        return at if self._sums.between(self.floor(window), at) > 0 else None

    @property
    def _reserve(self) -> int:
        return min(self._policy.summary_max_tokens, self.share(self._policy.low_water) // 2)

    def cut_at(self, window: Window, at: int) -> Window:
        """The window cut before message `at`, with a summary if enough steps go."""
        policy = self._policy
        steps = self._sums.steps(self.floor(window), at)
        asks = policy.overflow_strategy.asks_a_model and steps >= policy.summary_min_steps
        kind = CutKind.SUMMARISE if asks else CutKind.DIGEST
        cut = self._make_cut(kind, at, self._reserve, self.keep_budget, self._anchor_tokens)
        return replace(window, cuts=(*window.cuts, replace(cut, prune_stop=window.prune_stop, images=window.images)))

    @property
    def keep_budget(self) -> int:
        """What the user's words behind a cut may cost."""
        return min(self._policy.keep_user_tokens, self.share(self._policy.low_water) // 4)

    @property
    def _anchor_tokens(self) -> int:
        """What the index of names behind a summary may have."""
        return int(self.share(self._policy.low_water) * self._policy.anchor_share)

    def _make_cut(self, kind: CutKind, at: int, reserved: int, budget: int, anchor_tokens: int = 0) -> Cut:
        """A cut that keeps user messages of `budget` tokens; which ones is written down when it is applied.

        Their images are gone, but for those of the user's last words if the budget allows for them.
        """
        kept = self._sums.newest_users(at, budget)
        words = self._sums.user_tokens(kept)
        spared = self._sums.last_words if kept and self._sums.last_words < at else -1
        saved = self._sums.images.saved(spared, spared + 1)
        if words + saved > budget:
            spared, saved = -1, 0
        systems = self._sums.systems(min(self._room.leading, at), at)
        tokens = SUMMARY_FRAME_TOKENS + reserved + anchor_tokens + systems + words + saved
        return Cut(kind, at, reserved, (), tokens, anchor_tokens=anchor_tokens, spared=spared)

    def shrink(self, window: Window) -> Window | None:
        """The last cut with as little as can be in its place: the open step alone takes what is left of the room."""
        at = self._sums.open_step
        if self._sums.between(min(self._room.leading, at), at) == 0:
            return None
        last = window.cut
        earlier = (window.earlier or window) if last is not None and last.at == at else window
        bare = replace(window, cuts=(*earlier.cuts, self._make_cut(CutKind.DIGEST, at, 0, 0)))
        reserved = min(max(self.room_tokens - self.size(bare), 0), self._policy.summary_max_tokens)
        cut = self._make_cut(CutKind.DIGEST, at, reserved, 0)
        cut = replace(cut, prune_stop=earlier.prune_stop, images=earlier.images)
        return replace(window, cuts=(*earlier.cuts, cut))

    def make_way(self, window: Window) -> Window | None:
        """The window cut right before an open step that is too long; None where little stands before it."""
        at = self._sums.open_step
        if self.rest(window) <= self.share(self._policy.low_water) or self._sums.between(self.floor(window), at) <= 0:
            return None
        return self.cut_at(window, at)
