"""The replayed cut: where a transcript is pruned and where it gives way to a summary.

Law: a strict left fold. The state after message i depends on messages[: i + 1] and the policy and on nothing else, so
a longer transcript never changes an earlier decision, and every replica decides the same. Sizes are reserved sizes: a
summary's real length never enters.

Words: *head* is what always stays (leading system messages, tools, the first user message); *limit* what a prompt may
have; *room* = limit - head. All waters are shares of room.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from rules.conversation import HEAD_ROLES, Message, count_leading, starts_step
from rules.policy import PREFETCH_GAP, OverflowStrategy, Policy
from rules.prune import PLACEHOLDER_TOKENS

SUMMARY_FRAME_TOKENS = 160
"""Reserved for the lines around a summary: what it is, the headings, an acknowledgement."""
MIN_ROOM_SHARE = 0.25
"""Of the limit. Below it cuts would come at every step and free nothing."""
HEAD_STEPS = 16
"""The head's size is rounded up to limit / 16: a timestamp or a tool more or less does not move a cut."""


class CutKind(StrEnum):
    """What stands in for the part before a cut: a model's summary, or a digest made without one."""

    SUMMARISE = "summarise"
    DIGEST = "digest"


@dataclass(frozen=True, slots=True)
class Cut:
    """Everything between head and message `at` gives way to a summary of `reserved_tokens`.

    The user messages at `kept` stand verbatim behind it. `tokens` is all that stands between head and `at` then.
    """

    kind: CutKind
    at: int
    reserved_tokens: int
    kept: tuple[int, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class Window:
    """The fold's state. Indexes are into the messages folded.

    `cuts` are the summaries so far, oldest first: the last one stands. Results before `prune_stop` are placeholders.
    `next_cut` is the cut fixed at prefetch and not applied yet. `task` is the first user message.
    """

    task: int | None = None
    cuts: tuple[Cut, ...] = ()
    prune_stop: int = 0
    next_cut: int | None = None

    @property
    def cut(self) -> Cut | None:
        """The cut that stands."""
        return self.cuts[-1] if self.cuts else None


def replay_cut(messages: Sequence[Message], *, fixed_tokens: int, limit: int, policy: Policy) -> Window:
    """Fold the messages, oldest first, into the window's state; `fixed_tokens` is what stands outside them."""
    fold = _Fold(messages, fixed_tokens, limit, policy)
    window = Window()
    for index in range(len(messages)):
        window = fold.step(window, index)
    return window


class _Fold:
    """The transcript's running sums, extended message by message; every method is a function of messages[: i + 1]."""

    def __init__(self, messages: Sequence[Message], fixed_tokens: int, limit: int, policy: Policy) -> None:
        self._messages = messages
        self._policy = policy
        self._limit = limit
        self._leading = count_leading(messages)
        self._head_tokens = fixed_tokens
        self._room = 0
        self._prefetch_tokens = 0
        self._forwarded = 0  # what would be forwarded behind the head now
        self._full = [0]  # running sums; the head's messages enter as nothing
        self._pruned = [0]  # the same with every result a placeholder
        self._systems = [0]  # running sums of system messages
        self._starts: list[int] = []
        self._start_sums: list[int] = []
        self._users: list[int] = []
        self._set_room()

    def step(self, window: Window, index: int) -> Window:
        """The state after message `index`, given the one before it."""
        if window.task is None and self._messages[index].role == "user":
            window = replace(window, task=index)
        self._extend(window, index)
        if self._forwarded < self._prefetch_tokens or self._room < self._limit * MIN_ROOM_SHARE:
            return window
        if window.next_cut is None:
            window = replace(window, next_cut=self._choose(window, self._policy.low_water - PREFETCH_GAP))
        if self._forwarded < self._share(self._policy.high_water):
            return window
        applied = self._apply(window, self._forwarded)
        if applied is not window:
            self._forwarded = self._size(applied)
        return applied

    def _extend(self, window: Window, index: int) -> None:
        message = self._messages[index]
        full = pruned = message.tokens
        if index < self._leading or index == window.task:
            self._head_tokens += message.tokens
            self._set_room()
            full = pruned = 0
        if starts_step(message) or not self._starts:
            self._starts.append(index)
            self._start_sums.append(self._full[-1])
        else:
            pruned = min(full, PLACEHOLDER_TOKENS)
        if message.role == "user":
            self._users.append(index)
        self._forwarded += full
        self._full.append(self._full[-1] + full)
        self._pruned.append(self._pruned[-1] + pruned)
        self._systems.append(self._systems[-1] + (message.tokens if message.role in HEAD_ROLES else 0))

    def _set_room(self) -> None:
        grain = max(self._limit // HEAD_STEPS, 1)
        self._room = self._limit - -(-self._head_tokens // grain) * grain
        self._prefetch_tokens = self._share(self._policy.high_water - PREFETCH_GAP)

    def _share(self, share: float) -> int:
        return int(self._room * share)

    def _choose(self, window: Window, share: float) -> int | None:
        """The oldest step behind which at most `share` of room stays; the open step where none is that short.

        None where there is nothing new to cut.
        """
        target = self._full[-1] - self._share(max(share, 0.0))
        at = self._starts[min(bisect_left(self._start_sums, target), len(self._starts) - 1)]
        return at if self._full[at] > self._full[self._floor(window)] else None

    def _floor(self, window: Window) -> int:
        return window.cut.at if window.cut else self._leading

    def _size(self, window: Window) -> int:
        """What would be forwarded behind the head in a state."""
        base = window.cut.tokens if window.cut else 0
        return base + self._body(self._floor(window), window.prune_stop)

    def _body(self, start: int, prune_stop: int) -> int:
        middle = max(start, prune_stop)
        return self._pruned[middle] - self._pruned[start] + self._full[-1] - self._full[middle]

    def _apply(self, window: Window, size: int) -> Window:
        """The window cut anew, where that frees enough; over the room, whatever it frees."""
        policy = self._policy
        over = size > self._room
        if policy.overflow_strategy is OverflowStrategy.ERROR:
            return window
        pruned = self._prune(window)
        cut = self._summarise(window)
        worth_asking = cut is not None and cut.cuts[-1].kind is CutKind.SUMMARISE
        enough = policy.low_water + (policy.high_water - policy.low_water) / 4 if worth_asking else policy.high_water
        if pruned is not None and self._size(pruned) <= self._share(enough):
            chosen: Window | None = pruned
        elif worth_asking or over or policy.overflow_strategy is OverflowStrategy.PRUNE:
            chosen = cut
        else:
            chosen = None
        gain = size - self._size(chosen) if chosen else 0
        if over and (chosen is None or gain <= 0 or self._size(chosen) > self._room):
            return self._shrink(window)
        if chosen and (over or gain >= self._share((policy.high_water - policy.low_water) / 4)):
            return replace(chosen, next_cut=None)
        return window

    def _prune(self, window: Window) -> Window | None:
        """The window with the results before the next cut pruned; None where that is not allowed or does nothing."""
        if self._policy.overflow_strategy is OverflowStrategy.SUMMARIZE or window.next_cut is None:
            return None
        stop = min(window.next_cut, self._protected())
        return replace(window, prune_stop=stop) if stop > max(window.prune_stop, self._floor(window)) else None

    def _protected(self) -> int:
        """Where the newest `protect_turns` user turns begin; the end, where those alone exceed prefetch."""
        turns = self._policy.protect_turns
        if turns == 0:
            return len(self._full) - 1
        start = self._users[-turns] if len(self._users) >= turns else self._leading
        protected = self._full[-1] - self._full[start]
        too_large = protected > self._share(self._policy.high_water - PREFETCH_GAP)
        return len(self._full) - 1 if too_large else start

    def _summarise(self, window: Window) -> Window | None:
        """The window with a summary up to the next cut.

        Chosen anew if what stays would still be too much, or what goes too little to ask a model for.
        """
        at = window.next_cut
        if at is None:
            return None
        candidate = self._cut_at(window, at)
        too_few = candidate.cuts[-1].kind is CutKind.DIGEST and self._policy.overflow_strategy.asks_a_model
        if too_few or self._size(candidate) > self._share(self._policy.high_water):
            at = self._choose(window, self._policy.low_water)
            candidate = self._cut_at(window, at) if at is not None else candidate
        return candidate

    def _cut_at(self, window: Window, at: int) -> Window:
        policy = self._policy
        floor = self._floor(window)
        steps = bisect_left(self._starts, at) - bisect_left(self._starts, floor)
        asks = policy.overflow_strategy.asks_a_model and steps >= policy.summary_min_steps
        low_tokens = self._share(policy.low_water)
        reserved = min(policy.summary_max_tokens, low_tokens // 2)
        kept = self._keep(window, at, min(policy.keep_user_tokens, low_tokens // 4))
        kind = CutKind.SUMMARISE if asks else CutKind.DIGEST
        return replace(window, cuts=(*window.cuts, self._make_cut(kind, at, reserved, kept)))

    def _make_cut(self, kind: CutKind, at: int, reserved: int, kept: tuple[int, ...]) -> Cut:
        systems = self._systems[at] - self._systems[self._leading]
        words = sum(self._messages[index].tokens for index in kept)
        tokens = SUMMARY_FRAME_TOKENS + reserved + systems + words
        return Cut(kind, at, reserved, kept, tokens)

    def _keep(self, window: Window, at: int, budget: int) -> tuple[int, ...]:
        """The newest user messages before `at` within `budget`, oldest first.

        The newest of all is kept whatever it costs while no newer one stands behind the cut.
        """
        kept: list[int] = []
        for index in reversed(self._users):
            if index >= at or index == window.task:
                continue
            last_of_all = index == self._users[-1]
            budget -= self._messages[index].tokens
            if budget < 0 and not last_of_all:
                break
            kept.append(index)
        return tuple(reversed(kept))

    def _shrink(self, window: Window) -> Window:
        """The last cut with as little as can be in its place: the open step alone takes what is left of the room."""
        at = self._starts[-1]
        if self._full[at] == self._full[self._leading]:
            return window
        earlier = window.cuts[:-1] if window.cut and window.cut.at == at else window.cuts
        kept = self._keep(window, at, 0)
        shrunk = replace(window, cuts=(*earlier, self._make_cut(CutKind.DIGEST, at, 0, kept)), next_cut=None)
        reserved = min(max(self._room - self._size(shrunk), 0), self._policy.summary_max_tokens)
        return replace(shrunk, cuts=(*earlier, self._make_cut(CutKind.DIGEST, at, reserved, kept)))
