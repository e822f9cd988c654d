"""The replayed cut.

Law: a strict left fold. The state after message i depends on messages[: i + 1] and the policy and on nothing else, so
a longer transcript never changes an earlier decision, and every replica decides the same. Sizes are reserved sizes: a
summary's real length never enters.

Words: *head* is what always stays (leading system messages, tools, the first user message); *limit* what a prompt may
have; *room* = limit - head. All waters are shares of room.
"""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Protocol

from rules.conversation import Message
from rules.open_step import Cap, OpenStep
from rules.policy import PREFETCH_GAP, OnExceeded, OverflowStrategy, Policy
from rules.room import LEAST_ROOM_SHARE, MIN_ROOM_SHARE, Room
from rules.sums import Sums
from rules.window import Cut, CutKind, Window

SUMMARY_FRAME_TOKENS = 160
"""Reserved for the lines around a summary: what it is, the headings, an acknowledgement."""
AIM = 2 / 3
"""Of low water: what a cut is placed to leave, its summary included. Steps are not equally long, and what stays grows
until the cut is applied: so at most low water is left, nearly always."""
PATIENCE = 0.25
"""A cut is put off until waiting has cost this share of what the cut costs, counted over the whole session: one that
has outlasted its first wait is taken to go on.

Source: the break-even rule of renting and buying, by which waiting costs at most twice what foresight would have; of
0, 0.1, 0.2, 0.25, 0.33 and 0.4 a quarter cost the recorded sessions least at the worst, at windows of 32k and 64k.
"""
REQUESTS_AHEAD = 2
"""A summary takes a model about as long as two turns of an agent."""


class FoldMemo(Protocol):
    """Folds by the prefix that they have seen, so that a grown transcript is folded from where it was left."""

    def take(self, key: bytes) -> "Fold | None":
        """The fold kept under a key, which is its taker's own from now on."""

    def keep(self, key: bytes, fold: "Fold") -> None:
        """Keep a fold until it is taken, or forgotten."""


def replay_cut(
    messages: Sequence[Message],
    hashes: Sequence[bytes],
    *,
    room: Room,
    policy: Policy,
    memo: FoldMemo | None = None,
) -> Window:
    """Fold the messages, oldest first, into the window's state; `hashes` are those of their prefixes (prefix.py)."""
    if memo is None:
        return _extend(Fold(room, policy), messages).finish()
    context = sha256(repr((room, policy)).encode()).digest()
    found = (memo.take(context + hashes[stop]) for stop in range(len(messages), 0, -1))
    known = next((fold for fold in found if fold is not None and fold.has_seen(messages)), None)
    fold = _extend(known or Fold(room, policy), messages)
    window = fold.finish()
    memo.keep(context + hashes[len(messages)], fold)
    return window


def _extend(fold: "Fold", messages: Sequence[Message]) -> "Fold":
    for message in messages[len(fold) :]:
        fold.add(message)
    return fold


def _ask_ahead(window: Window, chosen: Window) -> Window:
    """The window with the summary of the chosen one to be written before it is applied, if it needs one."""
    cut = chosen.cut
    if cut is None or cut.kind is CutKind.DIGEST or len(chosen.cuts) == len(window.cuts):
        return window
    return replace(window, next_cut=cut.at, prefetch_tokens=cut.reserved_tokens)


class Fold:
    """The fold's state and the sums that it needs to go on. Every method is a function of the messages added.

    `window` is what has been decided for good; `finish` adds what a request that ends here needs.
    """

    __slots__ = ("_forwarded", "_open", "_policy", "_room", "_sums", "_waited", "window")

    def __init__(self, room: Room, policy: Policy) -> None:
        self.window = Window()
        self._open = OpenStep()
        self._room = room
        self._policy = policy
        self._sums = Sums(room.leading)
        self._forwarded = 0  # tokens that would be forwarded behind the head now
        self._waited = 0.0  # what putting cuts off has cost so far, in the price of an input token

    def __len__(self) -> int:
        return len(self._sums)

    @property
    def size_bytes(self) -> int:
        """What the fold holds in memory, about."""
        return self._sums.size_bytes + 200 * (len(self.window.cuts) + 1)

    def has_seen(self, messages: Sequence[Message]) -> bool:
        """Whether the messages added cost what the first of these do: hashes leave out texts beside the content.

        Leading ones do not count: the room that they leave is all that matters of them.
        """
        leading = self._room.leading
        return self._sums.costs[leading:].tolist() == [message.tokens for message in messages[leading : len(self)]]

    def add(self, message: Message) -> None:
        """Go on by one message."""
        if message.role == "assistant":
            self._answer()
        self._forwarded += self._sums.add(message)
        is_task = self.window.task != self._sums.task
        self._open.add(message, is_task=is_task)
        if is_task:
            self._note_task(message)
        high = self._policy.high_water
        if self._forwarded < self._share(high - PREFETCH_GAP):
            return
        if self._tokens < self._room.limit * MIN_ROOM_SHARE and not self._is_worth_it:
            return
        if self.window.next_cut is None:
            self.window = replace(self.window, next_cut=self._choose(PREFETCH_GAP))
        if not self.window.prefetch_tokens and self._forwarded >= self._share(high - PREFETCH_GAP / 2):
            self.window = self._look_ahead()
        if self._forwarded >= self._share(high):
            self._cut(is_request=message.role == "assistant")

    def finish(self) -> Window:
        """The state for a request that ends here: its newest messages are shortened if they do not fit."""
        caps = self._share_room()
        return replace(self.window, caps=(*self.window.caps, *caps)) if caps else self.window

    def _answer(self) -> None:
        """The model has answered what stands here: what was shortened for that stays so."""
        window = self.finish()
        for cap in window.caps[len(self.window.caps) :]:
            self._sums.shorten(cap.at, self._sums.costs[cap.at] - cap.tokens)
        self.window = window
        self._forwarded = self._size(window)

    def _note_task(self, task: Message) -> None:
        caps, cap = self.window.caps, self._room.task_tokens
        if cap is not None and cap < task.tokens:
            caps = (*caps, Cap(len(self) - 1, cap))
        self.window = replace(self.window, task=self._sums.task, caps=caps)

    def _share_room(self) -> tuple[Cap, ...]:
        """What each of the newest messages may keep; nothing where all fit, or where it would not help.

        They fit while the window holds them beside the completion; if not, they share what the limit leaves.
        """
        if self._policy.on_exceeded is not OnExceeded.TRUNCATE or self._forwarded <= self._tokens + self._room.spare:
            return ()
        excesses = (self._forwarded - self._tokens, self._forwarded - self._tokens - self._room.spare)
        return next((caps for caps in map(self._open.share, excesses) if caps is not None), ())

    @property
    def _is_worth_it(self) -> bool:
        """In a small room cuts would be many and save little: only what would not fit otherwise is worth them."""
        return self._forwarded > self._tokens >= self._room.limit * LEAST_ROOM_SHARE

    @property
    def _tokens(self) -> int:
        return self._room.early if self._sums.task is None else self._room.tokens

    def _share(self, share: float) -> int:
        return int(self._tokens * share)

    def _look_ahead(self) -> Window:
        """The window with its next summary asked for, where one is expected to be needed soon.

        Not while a first cut may still be put off: that leaves the time.
        """
        policy, window = self._policy, self.window
        if window.next_cut is None:
            return window
        candidate = self._cut_at(window, window.next_cut)
        growth = max(self._share(policy.high_water) - self._forwarded, 0)
        pruned = self._prune(window)
        prune_does = pruned is not None and self._size(pruned) + growth <= self._share(policy.low_water)
        soon = REQUESTS_AHEAD * (self._forwarded - self._size(candidate)) * policy.prices.cached_input
        waits = self._waited + soon < self._price(candidate) * PATIENCE
        return window if prune_does or waits else _ask_ahead(window, candidate)

    def _choose(self, growth: float) -> int | None:
        """Where to cut so that about low water is left when `growth` of room has come on top.

        The open step where no other leaves so little; None where there is nothing new to cut.
        """
        low = self._policy.low_water
        stays = self._share(low * AIM - growth) - SUMMARY_FRAME_TOKENS - self._reserve
        at = self._sums.find_step(max(stays, 0))
        return at if self._sums.between(self._floor(self.window), at) > 0 else None

    @property
    def _reserve(self) -> int:
        return min(self._policy.summary_max_tokens, self._share(self._policy.low_water) // 2)

    def _floor(self, window: Window) -> int:
        """The first message that is forwarded behind the head."""
        return window.cut.at if window.cut else min(self._room.leading, len(self))

    def _size(self, window: Window) -> int:
        """What would be forwarded behind the head in a state."""
        base = window.cut.tokens if window.cut else 0
        return base + self._sums.behind(self._floor(window), window.prune_stop)

    def _cut(self, *, is_request: bool) -> None:
        """At high water or above: cut where that frees enough and pays; over the room, whatever it frees."""
        if self._policy.overflow_strategy is OverflowStrategy.ERROR:
            return
        over = self._forwarded > self._tokens
        chosen = self._choose_window(over=over)
        size = self._size(chosen) if chosen else self._forwarded
        if not over:
            if chosen and self._is_due(chosen, self._forwarded - size, is_request=is_request):
                self._apply(chosen, self._keep_budget)
        elif chosen and size < self._forwarded and size <= self._tokens:
            self._apply(chosen, self._keep_budget)
        elif self._can_share_room():
            if made_way := self._make_way():
                self._apply(made_way, self._keep_budget)
        elif shrunk := self._shrink():
            self._apply(shrunk, 0)

    def _can_share_room(self) -> bool:
        """Whether the open step could be shortened so much that it fits behind a cut with a summary of its own size."""
        if self._policy.on_exceeded is not OnExceeded.TRUNCATE:
            return False
        open_tokens = self._sums.between(self._sums.open_step, len(self)) - self._open.spare_tokens
        return open_tokens + min(self._rest, self._share(self._policy.low_water)) <= self._tokens

    @property
    def _rest(self) -> int:
        """What is forwarded between the head and the open step."""
        return self._forwarded - self._sums.between(self._sums.open_step, len(self))

    def _make_way(self) -> Window | None:
        """The window cut right before an open step that is too long; None where little stands before it."""
        at = self._sums.open_step
        if self._rest <= self._share(self._policy.low_water) or self._sums.between(self._floor(self.window), at) <= 0:
            return None
        return self._cut_at(self.window, at)

    def _is_due(self, chosen: Window, gain: int, *, is_request: bool) -> bool:
        """Whether a window frees enough, and having waited for it has cost enough; else its summary is asked for."""
        policy = self._policy
        if gain < self._share((policy.high_water - policy.low_water) / 4):
            return False
        self._waited += gain * policy.prices.cached_input if is_request else 0.0
        if self._waited >= self._price(chosen) * PATIENCE:
            return True
        self.window = _ask_ahead(self.window, chosen)
        return False

    def _price(self, chosen: Window) -> float:
        """What moving to a window costs: what stays is read anew, and its summary must be written.

        What is new in the open step is read for the first time anyway; the summary's call reads the cache.
        """
        prices = self._policy.prices
        fresh = self._sums.between(self._sums.open_step, len(self))
        price = max(self._size(chosen) - fresh, 0) * (prices.input - prices.cached_input)
        if len(chosen.cuts) > len(self.window.cuts) and chosen.cuts[-1].kind is CutKind.SUMMARISE:
            price += chosen.cuts[-1].reserved_tokens * prices.output + self._forwarded * prices.cached_input
        return price

    def _choose_window(self, *, over: bool) -> Window | None:
        """Pruned where that is enough, else cut; None where neither is to be had or worth asking a model for."""
        policy = self._policy
        pruned = self._prune(self.window)
        cut = self._summarise()
        asks = cut is not None and cut.cuts[-1].kind is CutKind.SUMMARISE
        enough = policy.low_water if asks else policy.high_water
        if pruned is not None and self._size(pruned) <= self._share(enough):
            return pruned
        return cut if asks or over or policy.overflow_strategy is OverflowStrategy.PRUNE else None

    def _prune(self, window: Window) -> Window | None:
        """The window with the results before the next cut pruned; None where that is not allowed or does nothing."""
        if self._policy.overflow_strategy is OverflowStrategy.SUMMARIZE or window.next_cut is None:
            return None
        stop = min(window.next_cut, self._protected())
        return replace(window, prune_stop=stop) if stop > max(window.prune_stop, self._floor(window)) else None

    def _protected(self) -> int:
        """Where the newest `protect_turns` user turns begin; the end, where those alone exceed prefetch."""
        turns, users = self._policy.protect_turns, self._sums.users
        if turns == 0:
            return len(self)
        start = users[-turns] if len(users) >= turns else min(self._room.leading, len(self))
        protected = self._sums.between(start, len(self))
        return len(self) if protected > self._share(self._policy.high_water - PREFETCH_GAP) else start

    def _summarise(self) -> Window | None:
        """The window with a summary up to the next cut.

        Chosen anew if what stays would still be too much, or what goes too little to ask a model for.
        """
        at = self.window.next_cut
        if at is None:
            return None
        candidate = self._cut_at(self.window, at)
        too_few = candidate.cuts[-1].kind is CutKind.DIGEST and self._policy.overflow_strategy.asks_a_model
        if too_few or self._size(candidate) > self._share(self._policy.high_water):
            at = self._choose(0.0)
            candidate = self._cut_at(self.window, at) if at is not None else candidate
        return candidate

    def _cut_at(self, window: Window, at: int) -> Window:
        policy = self._policy
        steps = self._sums.steps(self._floor(window), at)
        asks = policy.overflow_strategy.asks_a_model and steps >= policy.summary_min_steps
        kind = CutKind.SUMMARISE if asks else CutKind.DIGEST
        cut = self._make_cut(kind, at, self._reserve, self._keep_budget)
        return replace(window, cuts=(*window.cuts, replace(cut, prune_stop=window.prune_stop)))

    @property
    def _keep_budget(self) -> int:
        return min(self._policy.keep_user_tokens, self._share(self._policy.low_water) // 4)

    def _make_cut(self, kind: CutKind, at: int, reserved: int, budget: int) -> Cut:
        """A cut that keeps user messages of `budget` tokens; which ones is written down when it is applied."""
        words = self._sums.user_tokens(self._sums.newest_users(at, budget))
        systems = self._sums.systems(min(self._room.leading, at), at)
        return Cut(kind, at, reserved, (), SUMMARY_FRAME_TOKENS + reserved + systems + words)

    def _apply(self, chosen: Window, budget: int) -> None:
        """Go over to a window; a new cut names the user messages that it keeps."""
        if chosen.cuts and chosen.cut != self.window.cut:
            cut = chosen.cuts[-1]
            kept = tuple(self._sums.users[rank] for rank in self._sums.newest_users(cut.at, budget))
            chosen = replace(chosen, cuts=(*chosen.cuts[:-1], replace(cut, kept=kept)))
        self.window = replace(chosen, next_cut=None, prefetch_tokens=0)
        self._forwarded = self._size(self.window)

    def _shrink(self) -> Window | None:
        """The last cut with as little as can be in its place: the open step alone takes what is left of the room."""
        window, at = self.window, self._sums.open_step
        if self._sums.between(min(self._room.leading, at), at) == 0:
            return None
        last = window.cut
        earlier = (window.earlier or window) if last is not None and last.at == at else window
        bare = replace(window, cuts=(*earlier.cuts, self._make_cut(CutKind.DIGEST, at, 0, 0)))
        reserved = min(max(self._tokens - self._size(bare), 0), self._policy.summary_max_tokens)
        cut = replace(self._make_cut(CutKind.DIGEST, at, reserved, 0), prune_stop=earlier.prune_stop)
        return replace(window, cuts=(*earlier.cuts, cut))
