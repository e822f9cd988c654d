"""The windows that could come next: with fewer images, pruned, cut, or cut down to the open step.

Law: functions of a transcript's sums, the room and the policy. window/cut_decision.py decides which window is taken and
when.
"""

from bisect import bisect_left
from dataclasses import replace

from rules.policy import OverflowStrategy, Policy
from rules.window.images import ImageStop
from rules.window.room import Room
from rules.window.state import Cut, CutKind, Window
from rules.window.sums import Sums

SUMMARY_FRAME_TOKENS = 160
"""Reserved for the lines around a summary: introduction, headings, end, acknowledgement. Chosen: about their sum, with
some room for long numbers."""
SPARED_STEPS = 1
"""Number of newest answered steps that a cut spares if the window still holds them. Chosen: an agent that has just read
a long file works with it for a while. Without the file it would have to read it again."""
REMINDED_TURNS = 3
"""Number of newest user turns that a cut spares if they hold reminders. Chosen: reminders cost more than what is said,
and the model must still see what was said last."""
OPENING_SHARE = 0.25
"""Share of the limit. A client's own summary of an earlier session stays verbatim if it is not longer. Chosen: the same
share that is left to a conversation after its task statement was shortened."""
PROTECTED_SHARE = 0.8
"""Share of high water. If the protected user turns are longer than this, they are pruned too. Chosen: an agent's
session is often a single user turn, which must not be protected whole."""


class Cuts:
    """The windows that could follow a given one, after the messages that `sums` has seen."""

    __slots__ = ("_policy", "_room", "_sums")

    def __init__(self, room: Room, policy: Policy, sums: Sums) -> None:
        self._room = room
        self._policy = policy
        self._sums = sums

    @property
    def room_tokens(self) -> int:
        """The room after the messages so far; it is larger while the task statement has not come yet."""
        return self._room.early if self._sums.task is None else self._room.tokens

    def share(self, share: float) -> int:
        """A share of the room, in tokens."""
        return int(self.room_tokens * share)

    def floor(self, window: Window) -> int:
        """Index of the first message that is forwarded after the head and the summary."""
        return window.cut.at if window.cut else min(self._room.leading, len(self._sums))

    def size(self, window: Window) -> int:
        """Tokens that would be forwarded after the head in this window."""
        base = window.cut.tokens if window.cut else 0
        floor = self.floor(window)
        spared = sum(self._sums.pruned(*step) for step in window.spared if floor <= step[0])
        return base + spared + self._sums.behind(floor, window.prune_stop, window.images)

    @property
    def open_tokens(self) -> int:
        """Tokens of the open step."""
        return self._sums.between(self._sums.open_step, len(self._sums))

    def rest(self, window: Window) -> int:
        """Tokens that would be forwarded between the head and the open step in this window."""
        return self.size(window) - self.open_tokens

    def choose(self, window: Window, *, over: bool) -> Window | None:
        """The mildest window that frees enough: without old images, pruned, or cut, in this order.

        None if none of them is possible. None also if the cut is too short to ask a model for a summary, the room is
        not exceeded (`over`) and the strategy is not `prune`.
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
        """The window with results before the next cut as placeholders; None if not allowed, or if nothing changes."""
        if self._policy.overflow_strategy is OverflowStrategy.SUMMARIZE or window.next_cut is None:
            return None
        stop = min(window.next_cut, self._protected())
        if stop <= max(window.prune_stop, self.floor(window)):
            return None
        images = self._stop_images(stop) if stop > window.images.at else window.images
        known = set(window.spared)
        spared = [step for step in self._find_loops(stop) if step[0] >= max(window.prune_stop, self.floor(window))]
        return replace(window, prune_stop=stop, images=images, spared=tuple(sorted(known.union(spared))))

    def remove_images(self, window: Window, growth_tokens: int) -> Window | None:
        """The window without its oldest images, so that low water is left even after `growth_tokens` more.

        If that needs more than all images before the newest step, those of the newest step still stay. None if the
        strategy forbids pruning, or if nothing is saved.
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
        """The window with only its newest `number` images; None while there are fewer than twice that many.

        Each removal breaks the prompt cache from the oldest removed image on. Images are removed that many at a time:
        one by one, they would break the cache at every step.
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
        """Start of the newest `protect_turns` user turns; the end if these alone nearly reach high water."""
        turns, users = self._policy.protect_turns, self._sums.users
        if turns == 0:
            return len(self._sums)
        start = users[-turns] if len(users) >= turns else min(self._room.leading, len(self._sums))
        protected = self._sums.between(start, len(self._sums))
        return len(self._sums) if protected > self.share(self._policy.high_water * PROTECTED_SHARE) else start

    def _summarise(self, window: Window, *, over: bool) -> Window | None:
        """The window with a summary up to the next cut.

        If the room is exceeded (`over`), the cut is chosen again in two cases: what stays would still be over high
        water, or the cut part is too short to ask a model for a summary.
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
        """Index of the cut that leaves about low water once `growth_tokens` more have come.

        The open step if no earlier cut leaves that little; None if there is nothing new to cut. With `spares`, the
        newest SPARED_STEPS answered steps stay, however long they are. If reminders lie among the newest REMINDED_TURNS
        user turns, these turns stay as far as they fit half of low water.
        """
        low = self._policy.low_water
        stays = self.share(low) - growth_tokens - SUMMARY_FRAME_TOKENS - self._reserve - self._anchor_tokens
        at = self._sums.find_step(max(stays, 0), window.images)
        if spares:
            at = min(at, self._sums.newest_answers(SPARED_STEPS))
        at = min(at, self._find_reminded_turns())
        return at if self._sums.between(self.floor(window), at) > 0 else None

    def _find_reminded_turns(self) -> int:
        """Start of the newest user turns that reminders must not push out; the open step if there are none."""
        sums, most = self._sums, self.share(self._policy.low_water) // 2
        turns = (user for user in sums.users[-REMINDED_TURNS:] if sums.between(user, len(sums)) <= most)
        start = next(turns, sums.open_step)
        return start if sums.reminders.newest > start else sums.open_step

    @property
    def _reserve(self) -> int:
        return min(self._policy.summary_max_tokens, self.share(self._policy.low_water) // 2)

    def cut_at(self, window: Window, at: int) -> Window:
        """The window cut before message `at`: with a summary if enough steps are cut, else with a digest."""
        policy = self._policy
        steps = self._sums.steps(self.floor(window), at)
        asks = policy.overflow_strategy.asks_a_model and steps >= policy.summary_min_steps
        kind = CutKind.SUMMARISE if asks else CutKind.DIGEST
        cut = self._make_cut(kind, at, self._reserve, self._anchor_tokens)
        return replace(window, cuts=(*window.cuts, replace(cut, prune_stop=window.prune_stop, images=window.images)))

    @property
    def _reminder_budget(self) -> int:
        """The most that the reminders kept after a cut may cost, in tokens: a quarter of low water."""
        return self.share(self._policy.low_water) // 4

    @property
    def _user_budget(self) -> int:
        """The most that the user messages kept verbatim after a cut may cost, in tokens."""
        return min(self._policy.keep_user_tokens, self.share(self._policy.low_water) // 4)

    @property
    def _anchor_tokens(self) -> int:
        """The most that the names carried over a cut may cost, in tokens."""
        return int(self.share(self._policy.low_water) * self._policy.anchor_share)

    def _make_cut(
        self, kind: CutKind, at: int, reserved: int, anchor_tokens: int = 0, *, keeps_least: bool = False
    ) -> Cut:
        """A cut and its cost. What it keeps is listed when it is applied (`list_kept`).

        The kept messages lose their images. Only the last user message keeps its own, if the budget allows it.
        With `keeps_least`, only the last user message is kept, and system messages that every cut keeps.
        """
        budget = 0 if keeps_least else self._user_budget
        kept = self._sums.newest_users(at, budget)
        words = self._sums.user_tokens(kept)
        spared = self._sums.last_words if kept and self._sums.last_words < at else -1
        saved = self._sums.images.saved(spared, spared + 1)
        if words + saved > budget:
            spared, saved = -1, 0
        words += 0 if keeps_least else self._count_opening(at, kept)
        systems = self._sums.systems(min(self._room.leading, at), at)
        words += 0 if keeps_least else sum(self._sums.between(*step) for step in self._find_loops(at))
        systems += 0 if keeps_least else self._sums.reminders.fit(at, self._reminder_budget)[1]
        tokens = SUMMARY_FRAME_TOKENS + reserved + anchor_tokens + systems + words + saved
        return Cut(kind, at, reserved, (), tokens, anchor_tokens=anchor_tokens, spared=spared)

    def list_kept(self, cut: Cut, *, keeps_least: bool = False) -> Cut:
        """The cut with the messages that it keeps, if it is made now; `keeps_least` as for `_make_cut`."""
        sums, at = self._sums, cut.at
        ranks = sums.newest_users(at, 0 if keeps_least else self._user_budget)
        oldest = at if keeps_least else sums.reminders.fit(at, self._reminder_budget)[0]
        systems = sorted([*sums.fixed[: bisect_left(sums.fixed, at)], *sums.reminders.list(oldest, at)])
        opening = -1 if keeps_least or self.opening >= at else self.opening
        kept = tuple(sums.users[rank] for rank in ranks if sums.users[rank] != opening)
        steps = () if keeps_least else tuple(self._find_loops(at))
        cut = replace(cut, kept=kept, kept_systems=tuple(systems), kept_steps=steps)
        return replace(cut, opening=opening, made_at=len(sums))

    def _find_loops(self, at: int) -> list[tuple[int, int]]:
        """The steps before `at` whose calls the agent makes again and again, oldest first, as far as they may stay.

        They get a quarter of low water, the newest first. Steps with images do not stay.
        """
        sums, left, steps = self._sums, self.share(self._policy.low_water) // 4, list[tuple[int, int]]()
        for start in sums.repeats.list():
            stop = sums.find_stop(start)
            tokens = sums.between(start, stop)
            if self._room.leading <= start and stop <= at and tokens <= left and not sums.images.number(start, stop):
                steps.append((start, stop))
                left -= tokens
        return sorted(steps)

    @property
    def opening(self) -> int:
        """Index of the client's own summary of an earlier session; -1 without one, or if it is too long to stay."""
        at = self._sums.opening
        return at if at >= 0 and self._sums.between(at, at + 1) <= self._room.limit * OPENING_SHARE else -1

    def _count_opening(self, at: int, ranks: range) -> int:
        """What the client's own summary costs if it stays before `at` and is not among the kept user messages."""
        opening, users = self.opening, self._sums.users
        rank = bisect_left(users, opening)
        if not 0 <= opening < at or (rank in ranks and users[rank] == opening):
            return 0
        return self._sums.between(opening, opening + 1)

    def shrink(self, window: Window) -> Window | None:
        """The window cut before the open step, with a digest as short as needed for the open step to fit."""
        at = self._sums.open_step
        if self._sums.between(min(self._room.leading, at), at) == 0:
            return None
        last = window.cut
        earlier = (window.earlier or window) if last is not None and last.at == at else window
        bare = replace(window, cuts=(*earlier.cuts, self._make_cut(CutKind.DIGEST, at, 0, keeps_least=True)))
        reserved = min(max(self.room_tokens - self.size(bare), 0), self._policy.summary_max_tokens)
        cut = self._make_cut(CutKind.DIGEST, at, reserved, keeps_least=True)
        cut = replace(cut, prune_stop=earlier.prune_stop, images=earlier.images)
        return replace(window, cuts=(*earlier.cuts, cut))

    def make_way(self, window: Window) -> Window | None:
        """The window cut right before an open step that is too long; None if only little lies before that step."""
        at = self._sums.open_step
        if self.rest(window) <= self.share(self._policy.low_water) or self._sums.between(self.floor(window), at) <= 0:
            return None
        return self.cut_at(window, at)
