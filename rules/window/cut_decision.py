"""The replayed cut.

Law: a strict left fold. The state after message i depends only on messages[: i + 1] and the policy. So a longer
transcript never changes an earlier decision, and every replica decides the same. The fold uses the size reserved for a
summary, never its real length.

Terms: *head* is what always stays (leading system messages, tools, the first user message). *limit* is the most tokens
that a prompt may have. *room* = limit - head. High and low water are shares of the room.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace as replace_fields
from types import MappingProxyType

from msgspec.structs import replace

from trimtab.rules.conversation import Message, Role
from trimtab.rules.policy import PREFETCH_GAP, OnExceeded, OverflowStrategy, Policy, PreserveSystem
from trimtab.rules.window.cut_candidates import Cuts
from trimtab.rules.window.economics import Economics, choose_cold, note_marks
from trimtab.rules.window.room import LEAST_ROOM_SHARE, Cap, OpenStep, Room
from trimtab.rules.window.state import NOT_COLD, Change, ColdCut, CutKind, Window
from trimtab.rules.window.sums import Sums

NO_TOKENS: Mapping[int, int] = MappingProxyType({})


class Fold:
    """The fold's state, and the sums that it needs to go on. Every method is a function of the messages added.

    room: the room at the start of the fold.
    window: what is decided and will not change. `finish` adds what only a request that ends here needs.
    """

    __slots__ = (
        "_cold",
        "_cuts",
        "_economics",
        "_forwarded",
        "_is_near",
        "_long",
        "_looked",
        "_open",
        "_policy",
        "_room",
        "_sums",
        "_turn",
        "room",
        "window",
    )

    def __init__(self, room: Room, policy: Policy) -> None:
        self.room = room
        self.window = Window()
        self._cold: dict[int, ColdCut] = {}  # those heeded, by number of messages
        self._open = OpenStep()
        self._room = room
        self._policy = policy
        keeps_systems = policy.preserve_system is PreserveSystem.ALL
        self._sums = Sums(room.leading, keeps_systems=keeps_systems, longest=room.tokens)
        self._cuts, self._economics = Cuts(room, policy, self._sums), Economics(policy.prices, policy.risk_share)
        self._long: dict[int, int] = {}  # the long user messages that are not short yet: what they cost when they are
        self._turn = 0  # where the newest turn begins: a user message right behind an answer
        self._is_near = False  # whether the next request is expected to be cut
        self._forwarded = 0  # tokens forwarded after the head now: self._cuts.size(self.window)
        self._looked: tuple[Window, Window] | None = None  # the last answer of _plan_cold_summary, and what it is about

    def __len__(self) -> int:
        return self._sums.number

    @property
    def size_bytes(self) -> int:
        return self._sums.size_bytes + 200 * (len(self.window.cuts) + 1)

    def extend(
        self,
        messages: Sequence[Message],
        memory_tokens: Mapping[int, int] = NO_TOKENS,
        added_tokens: Mapping[int, int] = NO_TOKENS,
        cold: Mapping[int, ColdCut] = NOT_COLD,
        short_tokens: Mapping[int, int] = NO_TOKENS,
        stale_tokens: Mapping[int, int] = NO_TOKENS,
    ) -> "Fold":
        """Add the messages of a transcript that are new; its first messages were added before.

        The messages are without their retrieved memory, which would add `memory_tokens` by their index; `added_tokens`
        is what is appended to them. `cold`: by number of messages, the requests that found the upstream's cache cold.
        `short_tokens`: what long user messages cost when they are short. `stale_tokens`: by the index of a result, what
        pruning saves in the calls of its step.
        """
        if cold:
            self._cut_if_cold(cold)
        for index in range(self._sums.number, len(messages)):
            message, more = messages[index], added_tokens.get(index, 0) if added_tokens else 0
            message = replace_fields(message, tokens=message.tokens + more) if more else message
            memory = memory_tokens.get(index, 0) if memory_tokens else 0
            self.add(message, memory, stale_tokens.get(index, 0) if stale_tokens else 0)
            if index in short_tokens:
                self._long[index] = short_tokens[index]
            if cold:
                self._cut_if_cold(cold)
        return self

    def fits(self, cold: Mapping[int, ColdCut]) -> bool:
        """Whether the fold has heeded exactly these cold cuts; the one after its last message may still come."""
        if not (cold or self._cold):
            return True
        known = {at: kind for at, kind in cold.items() if at <= len(self)}
        return {**known, **self._cold} == known and known.keys() - self._cold <= {len(self)}

    def _cut_if_cold(self, cold: Mapping[int, ColdCut]) -> None:
        """Make the cut that was decided at a cold cache, if the request that ends here has one."""
        if (kind := cold.get(len(self))) is not None and len(self) not in self._cold:
            self._cold[len(self)] = kind
            if change := choose_cold(self._cuts, self.window, self._forwarded, kind, self._economics):
                self._apply(change.after)
                self._is_near = self._is_near and self._nears_due

    def add(self, message: Message, memory_tokens: int = 0, stale_tokens: int = 0) -> None:
        """Add the next message and decide what follows from it; its memory costs `memory_tokens` on top."""
        # Strategy: an answer first closes the request before it, with the sums so far. Then the message is added to the
        # sums, limits of the policy are enforced, and what is forwarded is compared with the marks. A decision replaces
        # `window`, and `_forwarded` is measured again; without one, the message's tokens are added to it.
        shows_answer = self._sums.shows_answer(message)
        if shows_answer:
            self.window = self._plan_cold_summary()
            self._answer()
            head = self._room.limit - self._cuts.marks.tokens
            self._economics.send(head + self._forwarded, head + self._sums.between(0, self._sums.number))
        if message.role is Role.TOOL:
            self._sums.repeats.answer(message)
        elif message.role is Role.USER and self._sums.ends_with_answer:
            self._economics.note_turn(self.window)
            self._begin_turn()
        self._looked = None
        self._forwarded += self._sums.add(message, memory_tokens, stale_tokens)
        if message.tool_calls:
            self._sums.repeats.add(self._sums.newest_start, message, self.window.was_just_removed)
        is_task = self.window.task != self._sums.task
        self._open.add(message, is_task=is_task, shows_answer=shows_answer)
        if is_task:
            self._note_task(message)
        if self._sums.opening >= 0 and (opening := self._cuts.opening) != self.window.opening:
            self.window = replace(self.window, opening=opening)
        if not self.window.is_high:
            self.window = note_marks(self._cuts, self.window, self._forwarded)
        self._is_near = False
        self._enforce_limits()
        self._cut_at_marks(is_request=shows_answer)

    def _enforce_limits(self) -> None:
        policy = self._policy
        if self._sums.memory.places:
            self._drop_memory()
        if self._room.late is not None:
            self._make_room(self._room.late)
        if policy.keep_images is not None:
            self._keep_images(policy.keep_images)
        if policy.max_turns is not None and policy.overflow_strategy is not OverflowStrategy.ERROR:
            self._keep_turns(policy.max_turns)

    def _cut_at_marks(self, *, is_request: bool) -> None:
        """Cut, or fix the next cut, if what is forwarded has reached a mark."""
        marks = self._cuts.marks
        if self._forwarded < marks.high and self._forwarded < int(marks.due * (1 - PREFETCH_GAP)):
            return
        if not (self._cuts.is_roomy or self._policy.cuts_at_threshold or self._is_worth_it):
            return
        if self._forwarded >= marks.high and self._policy.overflow_strategy is not OverflowStrategy.ERROR:
            self._cut(is_request=is_request)
        if self._nears_due:
            self._is_near = True
            self.window = self._look_ahead(marks.due)

    @property
    def _nears_due(self) -> bool:
        """Whether one more step of the same size would make a cut due."""
        due = self._cuts.marks.due
        if self._forwarded < due * (1 - PREFETCH_GAP):
            return False
        return due - self._forwarded <= max(self._cuts.open_tokens, self._economics.growth_tokens)

    def finish(self) -> Window:
        """The window for a request that ends here: its newest messages are shortened if they do not fit."""
        caps, window = self._share_room(), self._plan_cold_summary()
        if self._is_near != window.is_near:
            window = replace(window, is_near=self._is_near)
        return replace(window, caps=(*window.caps, *caps)) if caps else window

    def _plan_cold_summary(self) -> Window:
        """The window with the summary for a cold cache, for a request that ends here and for the answer to it."""
        if self._looked is None or self._looked[0] is not self.window:
            looked = self._economics.plan_cold_summary(self._cuts, self.window, self._forwarded)
            self._looked = self.window, looked
        return self._looked[1]

    def _with_caps(self, caps: Sequence[Cap]) -> Window:
        return replace(self.window, caps=(*self.window.caps, *caps)) if caps else self.window

    def _answer(self) -> None:
        """The model has answered the open step: messages shortened for that request stay shortened."""
        caps = self._share_room()
        for cap in caps:
            saved_tokens = self._sums.between(cap.at, cap.at + 1) - cap.tokens
            self._sums.shorten(cap.at, saved_tokens, self._open.saving_tokens(cap))
        if caps:
            self.window = self._with_caps(caps)
            self._forwarded = self._cuts.size(self.window)

    def _note_task(self, task: Message) -> None:
        self._cuts.note_task()
        caps, cap = self.window.caps, self._room.task_tokens
        if cap is not None and cap < task.tokens:
            caps = (*caps, Cap(len(self) - 1, cap))
            # A shortened message must not change again, so its memory goes at once.
            self.window = replace(self.window, memory_stop=len(self))
            self._forwarded = self._cuts.size(self.window)
        self.window = replace(self.window, task=self._sums.task, caps=caps)

    def _drop_memory(self) -> None:
        """Drop memory as soon as the room is exceeded, before anything else is shortened, pruned or cut.

        Also drop what exceeds the share of memory, if the policy limits it.
        """
        window = self._cuts.limit_memory(self.window) or self.window
        if self._cuts.size(window) > self._cuts.marks.tokens:
            window = self._cuts.drop_memory(window, 0, over=True) or window
        if window is not self.window:
            self.window = window
            self._forwarded = self._cuts.size(window)

    def _begin_turn(self) -> None:
        """Shorten the long user messages of earlier turns, unless that saves less than is read again for it.

        A message that a cut has kept whole waits for the next cut.
        """
        self._turn = len(self)
        if not self._long:
            return
        saved_tokens = self._find_long()
        start, saved = min(saved_tokens, default=0), sum(saved_tokens.values())
        if saved and start >= self._cuts.floor(self.window) and 2 * saved >= self._sums.between(start, len(self)):
            self._shorten_users(saved_tokens)
            self.window = replace(self.window, users_stop=self._turn)
            self._forwarded = self._cuts.size(self.window)

    def _find_long(self) -> dict[int, int]:
        costs = ((at, tokens, self._sums.between(at, at + 1)) for at, tokens in self._long.items())
        return {at: max(cost - tokens, 0) for at, tokens, cost in costs if at < self._turn}

    def _shorten_users(self, saved_tokens: Mapping[int, int]) -> None:
        self._sums.shorten_users(saved_tokens)
        for at in saved_tokens:
            del self._long[at]

    def _keep_turns(self, number: int) -> None:
        if (window := self._cuts.limit_turns(self.window, number)) is not None:
            self._change(self._cuts.compare(self.window, window), keeps_least=True)

    def _make_room(self, late: Room) -> None:
        """Shorten for all later requests a task statement that leaves no room for cuts, once a request does not fit."""
        task = self._sums.task
        if late.task_tokens is None or task is None:
            return
        if self._forwarded > self._cuts.marks.tokens + self._room.spare:
            self._room, self._cuts = late, Cuts(late, self._policy, self._sums)
            self.window = self._with_caps([Cap(task, late.task_tokens)])

    def _keep_images(self, number: int) -> None:
        if (window := self._cuts.keep_images(self.window, number)) is not None:
            self.window = window
            self._forwarded = self._cuts.size(window)

    def _share_room(self) -> tuple[Cap, ...]:
        """Caps for the newest messages; empty if all fit.

        They fit if the window holds them and the completion. If they do not fit, they share what is left below
        prefetch. If they filled the room up to the limit, the next message would have them cut away again.
        """
        most = self._cuts.marks.tokens + self._room.spare
        if self._policy.on_exceeded is not OnExceeded.TRUNCATE or self._forwarded <= most:
            return ()
        excesses = [
            self._forwarded - size for size in (self._cuts.share(1 - PREFETCH_GAP), most - self._room.spare, most)
        ]
        return self._open.share_first(excesses, self._sums.open_step, takes_all=self.window.cut is not None)

    @property
    def _is_worth_it(self) -> bool:
        """With little room left after the head, cut only if the request would not fit otherwise."""
        return self._forwarded > self._cuts.marks.tokens >= self._room.limit * LEAST_ROOM_SHARE

    def _look_ahead(self, due_tokens: int) -> Window:
        """The window with its next cut fixed. Its summary is asked for ahead unless pruning will probably be enough.

        The cut is due when `due_tokens` are forwarded.
        """
        growth = max(due_tokens - self._forwarded, 0)
        window = self._fix_cut(growth, spares=self._policy.keep_recent_steps is not None)
        if window.next_cut is None or window.prefetch_tokens:
            return window
        cuts, bare, enough = self._cuts, self._cuts.without_memory(window), self._cuts.marks.low
        smaller = (cuts.drop_memory(window, growth), cuts.remove_images(bare, growth), cuts.prune(bare))
        if any(one and self._cuts.size(one) + growth <= enough for one in smaller):
            return window
        cut = self._cuts.cut_at(window, window.next_cut).cuts[-1]
        return window if cut.kind is CutKind.DIGEST else replace(window, prefetch_tokens=cut.reserved_tokens)

    def _fix_cut(self, growth_tokens: int, *, spares: bool = False) -> Window:
        """The window with a next cut: the one fixed earlier, else one that leaves low water after this growth."""
        if self.window.next_cut is not None:
            return self.window
        return replace(self.window, next_cut=self._cuts.find_cut(self.window, growth_tokens, spares=spares))

    def _fix_due_cut(self, *, over: bool) -> Window:
        """The window with a cut for now. It spares the newest steps, unless it could then not be made and must be."""
        window = self._fix_cut(0, spares=not over or self._policy.keep_recent_steps is not None)
        return self._fix_cut(0) if over and window.next_cut is None else window

    def _cut(self, *, is_request: bool) -> None:
        """At high water or above: cut if that frees enough and pays. Over the room: cut whatever it frees.

        At a threshold, cut if that frees enough.
        """
        cuts, over = self._cuts, self._forwarded > self._cuts.marks.tokens
        if over or self._forwarded >= cuts.marks.due:
            choice = cuts.choose(self._fix_due_cut(over=over), over=True)
        else:
            choice = cuts.propose(self.window)
        chosen, size = choice.window, choice.tokens
        if over:
            self._cut_over(chosen, size)
        elif chosen:
            change = Change(self.window, chosen, self._forwarded, size, cuts.open_tokens)
            if due := self._find_due(change, is_request=is_request):
                self._change(due)

    def _cut_over(self, chosen: Window | None, size: int) -> None:
        """Cut whatever it frees. `chosen` leaves `size` tokens after the head, if it is not None."""
        cuts = self._cuts
        if chosen and size < self._forwarded and size <= cuts.marks.tokens:
            self._change(cuts.compare(self.window, chosen))
        elif self._can_share_room(made_way := cuts.make_way(self.window)):
            if made_way:
                self._change(cuts.compare(self.window, made_way))
        elif shrunk := cuts.shrink(self.window):
            self._change(cuts.compare(self.window, shrunk), keeps_least=True)

    def _can_share_room(self, made_way: Window | None) -> bool:
        """Whether the open step can be shortened enough to fit after the cut of `made_way` with a full-size summary.

        `made_way` is None if only little lies before the open step; then no cut is needed.
        """
        if self._policy.on_exceeded is not OnExceeded.TRUNCATE:
            return False
        start, open_tokens, room = self._sums.open_step, self._cuts.open_tokens, self._cuts.marks.tokens
        least_tokens = open_tokens - self._open.most_spare(start, open_tokens - room)
        return least_tokens + self._cuts.rest(made_way or self.window) <= room

    def _find_due(self, change: Change, *, is_request: bool) -> Change | None:
        """The change if it is to be made: it frees enough, and waiting for it has cost enough to justify its price.

        With a digest if the session cannot bear a summary yet; the next cut asks a model about all of it.
        """
        gain, marks = change.tokens_before - change.tokens_after, self._cuts.marks
        if gain < marks.least_gain:
            return None
        if self._forwarded >= marks.due:
            return change if change.tokens_after <= marks.due else None
        if is_request:
            self._economics.wait(gain)
        economics, price = self._economics, self._economics.price(change)
        if self._policy.overflow_strategy is OverflowStrategy.AUTO_COMPACT and economics.is_heavy(change, price):
            change = change.with_digest()
            price = economics.price(change)
        self._is_near = economics.pays(price, gain)
        return change if self._is_near and economics.pays(price) else None

    def _change(self, change: Change, *, keeps_least: bool = False) -> None:
        self._economics.cut(change)
        self._apply(change.after, keeps_least=keeps_least)
        self._is_near = False

    def _apply(self, chosen: Window, *, keeps_least: bool = False) -> None:
        """Change to a window; list the messages that a new cut keeps."""
        if chosen.cuts and chosen.cut != self.window.cut:
            cut = self._cuts.list_kept(chosen.cuts[-1], keeps_least=keeps_least)
            saved_tokens = self._find_long()
            cut = replace(cut, tokens=cut.tokens - sum(saved_tokens.get(at, 0) for at in cut.kept))
            self._shorten_users(saved_tokens)
            chosen = replace(chosen, cuts=(*chosen.cuts[:-1], cut), users_stop=max(chosen.users_stop, self._turn))
        if (chosen.cut, chosen.prune_stop) != (self.window.cut, self.window.prune_stop):
            start = max(self._cuts.floor(self.window), self.window.prune_stop)
            chosen = replace(chosen, removed_from=start)
        self.window = replace(chosen, next_cut=None, prefetch_tokens=0, cold_summary=None)
        self._forwarded = self._cuts.size(self.window)
