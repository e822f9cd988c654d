"""The windows that could come next: with fewer images, pruned, cut, or cut down to the open step.

Law: functions of a transcript's sums, the room and the policy. window/cut_decision.py decides which is taken and when.
"""

from bisect import bisect_left
from collections.abc import Sequence

from msgspec.structs import replace

from trimtab.rules.policy import PREFETCH_GAP, OverflowStrategy, Policy, SummaryRole
from trimtab.rules.window.prune import ImageStop
from trimtab.rules.window.room import MIN_ROOM_SHARE, Marks, Room, find_reserve
from trimtab.rules.window.state import Change, Choice, Cut, CutKind, Window
from trimtab.rules.window.sums import Sums

SPARED_STEPS = 1
"""Number of newest answered steps that a cut spares if the window still holds them. Chosen: an agent that has just read
a long file works with it for a while. Without the file it would have to read it again."""
SUMMARY_FRAME_TOKENS = 160
"""Reserved for the lines around a summary: introduction, headings, end, acknowledgement. Chosen: about their sum."""
REMINDED_TURNS = 3
"""Number of newest user turns that a cut spares if they hold reminders. Chosen: reminders cost more than what is said,
and the model must still see what was said last."""
LOOP_TOKENS = 80
"""Reserved for the line about a repeated call whose result is too long to keep. Chosen: the line costs about 45 tokens,
and a tool's name up to 30 more; a line that costs more is left out."""
OPENING_SHARE = 0.25
"""Share of the limit. A client's own summary of an earlier session stays verbatim if it is not longer. Chosen: the same
share that is left to a conversation after its task statement was shortened."""

NOTHING_DONE = Window()


class Cuts:
    """The windows that could follow a given one, after the messages that `sums` has seen.

    marks: the marks after these messages. They are higher while the task statement has not come yet; `note_task` lowers
        them.
    is_roomy: the head leaves so much room that cuts do not come at nearly every step.
    """

    __slots__ = (
        "_anchor_tokens", "_asks_a_model", "_proposed", "_reserves", "_room", "_sums", "_user_budget", "is_roomy",
        "marks", "policy",
    )  # fmt: skip

    def __init__(self, room: Room, policy: Policy, sums: Sums) -> None:
        self._room = room
        self.policy, self._asks_a_model = policy, policy.overflow_strategy.asks_a_model
        self._sums = sums
        self._proposed: tuple[Window, int, Choice] | None = None  # the last answer of `propose`, and what it is about
        if sums.task is None:
            self._measure(Marks.measure(room.early, None, policy))
        else:
            self.note_task()

    def note_task(self) -> None:
        self._measure(Marks.measure(self._room.tokens, self._room.soft, self.policy))

    def _measure(self, marks: Marks) -> None:
        """Take over marks, and what follows from them: the most that each part of a cut may cost, in tokens."""
        policy, limit = self.policy, self._room.limit
        self.marks, self.is_roomy = marks, marks.tokens >= limit * MIN_ROOM_SHARE
        self._anchor_tokens = int(marks.low * policy.anchor_share)
        self._reserves = [find_reserve(policy, limit, marks.low, share) for share in (0, 1)]
        if policy.cuts_at_threshold:  # a low one leaves little room, and a cut that frees too little is not made
            left = marks.low - self._reserves[1] - SUMMARY_FRAME_TOKENS
            self._anchor_tokens = max(min(self._anchor_tokens, left), 0)
        self._user_budget = min(policy.keep_user_tokens, marks.low // 4)

    def share(self, share: float) -> int:
        return int(self.marks.tokens * share)

    def floor(self, window: Window) -> int:
        """Index of the first message that is forwarded after the head and the summary."""
        return window.cuts[-1].at if window.cuts else min(self._room.leading, self._sums.number)

    def size(self, window: Window) -> int:
        sums, floor, tokens = self._sums, self._room.leading, 0
        if window.cuts:
            floor, tokens = window.cuts[-1].at, window.cuts[-1].tokens
        elif floor > sums.number:
            floor = sums.number
        tokens += sums.behind(floor, window.prune_stop, window.images)
        if sums.memory.places:
            tokens += sums.memory.behind(max(floor, window.memory_stop))
        for start, stop in window.spared:
            if floor <= start:
                tokens += sums.pruned(start, stop)
        return tokens

    @property
    def open_tokens(self) -> int:
        return self._sums.between(self._sums.open_step, self._sums.number)

    def rest(self, window: Window) -> int:
        return self.size(window) - self.open_tokens

    def compare(self, before: Window, after: Window) -> Change:
        return Change(before, after, self.size(before), self.size(after), self.open_tokens)

    def propose(self, window: Window) -> Choice:
        """What follows if nothing forces a cut: before the next cut if there is one, else at one that spares.

        The fold asks after each message, and again whether a cold cache would change it.
        """
        known = self._proposed
        if known is None or known[0] is not window or known[1] != self._sums.number:
            at = window.next_cut
            fixed = replace(window, next_cut=self.find_cut(window, 0, spares=True)) if at is None else window
            known = self._proposed = window, self._sums.number, self.choose(fixed, over=False)
        return known[2]

    def choose(self, window: Window, *, over: bool) -> Choice:
        """The mildest window that frees enough: without memory, without old images, pruned, or cut, in this order.

        The later ones drop memory, too. None if none of them is possible. None also if the cut is too short to ask a
        model for a summary, it is not forced (`over`: the room is exceeded, or a threshold), and the strategy is not
        `prune`.
        """
        light, memory_stop = None, window.memory_stop
        if self._sums.memory.places:
            light, window = self.drop_memory(window, 0), self.without_memory(window)
        pruned = self.prune(window)
        cut = self._summarise(window, over=over)
        if cut is not None and window.memory_stop != memory_stop:  # it must be there if the cut is put off
            cut = replace(cut, cuts=(*cut.cuts[:-1], replace(cut.cuts[-1], memory_stop=memory_stop)))
        asks = cut is not None and cut.cuts[-1].kind is CutKind.SUMMARISE
        enough = self.marks.low if asks else self.marks.high
        has_pruned = asks and window.prune_stop > self.floor(window)  # since the last cut
        for milder in (light, self.remove_images(window, 0), None if has_pruned else pruned):
            if milder is not None and (tokens := self.size(milder)) <= enough:
                return Choice(milder, tokens, pruned)
        last = cut if asks or over or self.policy.overflow_strategy is OverflowStrategy.PRUNE else light
        return Choice(last, 0 if last is None else self.size(last), pruned)

    def drop_memory(self, window: Window, growth_tokens: int, *, over: bool = False) -> Window | None:
        """The window without its oldest memory, so that low water is left even after `growth_tokens` more.

        Memory of the open step stays, unless the room is exceeded (`over`) and high water is not reached without it.
        None if nothing is saved.
        """
        if not self._sums.memory.places:
            return None
        size = self.size(window)
        excess = size + growth_tokens - self.marks.low
        start = max(self.floor(window), window.memory_stop)
        stop = self._sums.memory.find_stop(start, excess)
        spared = min(stop, self._sums.open_step)
        saved_tokens = self._sums.memory.saved(start, spared)
        if not over or size - saved_tokens <= self.marks.high:
            stop = spared
        is_saved = excess > 0 and self._sums.memory.saved(start, stop) > 0
        return replace(window, memory_stop=stop) if is_saved else None

    def limit_memory(self, window: Window) -> Window | None:
        """The window with memory of half its share, if it had more than its share; else None.

        Only half is left, so that the prompt cache does not break each time memory is added. Memory of the open step
        stays.
        """
        if (shares := self.policy.sections) is None:
            return None
        most = int(self._room.limit * shares.memory)
        start = max(self.floor(window), window.memory_stop)
        if (tokens := self._sums.memory.behind(start)) <= most:
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
        whole = self.cut_at(window, at).cuts[-1]
        bare = self._with_cut(window, self.make(whole.kind, at, 0, keeps_least=True, before=window))
        saved_tokens = self.size(window) - self.size(bare)
        # The summary gets at most half of what the cut saves, and the exact names a quarter.
        reserved, anchors = min(whole.reserved_tokens, saved_tokens // 2), min(self._anchor_tokens, saved_tokens // 4)
        cut = self.make(whole.kind, at, reserved, anchors, keeps_least=True, before=window)
        return self._with_cut(window, cut) if saved_tokens > 0 else None

    def without_memory(self, window: Window) -> Window:
        if not self._sums.memory.places:
            return window
        start, stop = max(self.floor(window), window.memory_stop), self._sums.open_step
        return replace(window, memory_stop=stop) if self._sums.memory.saved(start, stop) else window

    def prune(self, window: Window) -> Window | None:
        """The window with results before the next cut as placeholders; None if not allowed, or if nothing changes."""
        if self.policy.overflow_strategy is OverflowStrategy.SUMMARIZE or window.next_cut is None:
            return None
        stop, start = min(window.next_cut, self._protected()), max(window.prune_stop, self.floor(window))
        if stop <= start:
            return None
        images = self._stop_images(stop) if stop > window.images.at else window.images
        if not self._sums.repeats.loops:
            return replace(window, prune_stop=stop, images=images)
        loops, unfit = ([step for step in steps if step[0] >= start] for steps in self.divide_loops(stop))
        spared = tuple(sorted({*window.spared, *loops}))
        return replace(
            window, prune_stop=stop, images=images, spared=spared, unfit=tuple(sorted({*window.unfit, *unfit}))
        )

    def remove_images(self, window: Window, growth_tokens: int) -> Window | None:
        """The window without its oldest images, so that low water is left even after `growth_tokens` more.

        If that needs more than all images before the newest step, those of the newest step still stay. None if the
        strategy forbids pruning, or if nothing is saved.
        """
        strategy = self.policy.overflow_strategy
        if strategy in {OverflowStrategy.SUMMARIZE, OverflowStrategy.ERROR} or not self._sums.images.places:
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
        if others + images.number(start, self._sums.number) < max(2 * number, 1):
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
        turns, users, end = self.policy.protect_turns, self._sums.users, self._sums.number
        if turns == 0:
            return end
        start = users[-turns] if len(users) >= turns else min(self._room.leading, end)
        return end if self._sums.between(start, end) > self.marks.protected else start

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
        too_few = candidate.cuts[-1].kind is CutKind.DIGEST and self._asks_a_model
        if not over:
            return candidate
        most = max(self.marks.high, self.share(1 - PREFETCH_GAP) if window.prefetch_tokens else 0)
        if (too_few or self.size(candidate) > most) and (at := self.find_cut(window, 0)) is not None:
            candidate = self.cut_at(window, at)
        return candidate

    def find_cut(self, window: Window, growth_tokens: int, *, spares: bool = False) -> int | None:
        """Index of the cut that leaves about low water once `growth_tokens` more have come.

        The open step if no earlier cut leaves that little; None if there is nothing new to cut. With `spares`, the
        newest answered steps stay, however long they are: `keep_recent_steps` of the policy, else SPARED_STEPS. The
        newest user turns stay, too, if reminders would push them out.
        """
        carried = SUMMARY_FRAME_TOKENS + self._find_reserve(self._sums.number) + self._anchor_tokens
        at = self._sums.find_step(max(self.marks.low - growth_tokens - carried, 0), window.images)
        if spares:
            number = self.policy.keep_recent_steps
            at = min(at, self._sums.newest_answers(SPARED_STEPS if number is None else number))
        if self._sums.reminders.last >= 0:
            at = self._sums.find_start(min(at, self._find_reminded_turns()))
        return at if self._sums.between(self.floor(window), at) > 0 else None

    def cut_at(self, window: Window, at: int) -> Window:
        """The window cut before message `at`: with a summary if enough steps are cut, else with a digest."""
        steps = self._sums.steps(self.floor(window), at)
        asks = self._asks_a_model and steps >= self.policy.summary_min_steps
        kind = CutKind.SUMMARISE if asks else CutKind.DIGEST
        return self._with_cut(window, self.make(kind, at, self._find_reserve(at), self._anchor_tokens, before=window))

    def _find_reserve(self, at: int) -> int:
        least, most = self._reserves  # as `find_reserve` shares between the two; least with no words but the task's
        return least + int((most - least) * self._sums.find_chat_share(at)) if self._sums.users[1:2] else least

    def _with_cut(self, window: Window, cut: Cut) -> Window:
        """The window after this cut. No memory before it is forwarded."""
        stop = window.memory_stop
        if self._sums.memory.places and self._sums.memory.saved(0, cut.at):
            stop = max(stop, cut.at)
        return replace(window, cuts=(*window.cuts, cut), memory_stop=stop)

    def shrink(self, window: Window) -> Window | None:
        """The window cut before the open step, with a digest as short as needed for the open step to fit."""
        at = self._sums.open_step
        if self._sums.between(min(self._room.leading, at), at) == 0:
            return None
        earlier = (window.earlier or window) if window.cuts and window.cuts[-1].at == at else window
        bare, loads = self._bare(window, earlier, at, loads=True), True
        if self.size(bare) > self.marks.tokens:
            bare, loads = self._bare(window, earlier, at, loads=False), False
        reserved = min(max(self.marks.tokens - self.size(bare), 0), self.policy.summary_max_tokens)
        cut = self.make(CutKind.DIGEST, at, reserved, keeps_least=True, loads=loads, before=earlier)
        return self._with_cut(replace(window, cuts=earlier.cuts), cut)

    def _bare(self, window: Window, earlier: Window, at: int, *, loads: bool) -> Window:
        cut = self.make(CutKind.DIGEST, at, 0, keeps_least=True, loads=loads)
        return replace(window, cuts=(*earlier.cuts, cut))

    def make_way(self, window: Window) -> Window | None:
        """The window cut right before an open step that is too long; None if only little lies before that step."""
        at = self._sums.open_step
        if self.rest(window) <= self.marks.low or self._sums.between(self.floor(window), at) <= 0:
            return None
        return self.cut_at(window, at)

    @property
    def opening(self) -> int:
        """Index of the client's own summary of an earlier session; -1 without one, or if it is too long to stay."""
        at = self._sums.opening  # without one, both below are -1
        return at if self._sums.between(at, at + 1) <= self._room.limit * OPENING_SHARE else -1

    def _find_reminded_turns(self) -> int:
        """Start of the newest user turns that reminders must not push out; the open step if there are none.

        These are the newest REMINDED_TURNS turns, as far as they fit half of low water.
        """
        sums, most = self._sums, self.marks.low // 2
        turns = (user for user in sums.users[-REMINDED_TURNS:] if sums.between(user, sums.number) <= most)
        start = next(turns, sums.open_step)
        return start if sums.reminders.last > start else sums.open_step

    def make(  # noqa: PLR0913 - what a cut is made of
        self,
        kind: CutKind,
        at: int,
        reserved: int,
        anchor_tokens: int = 0,
        *,
        keeps_least: bool = False,
        loads: bool = True,
        before: Window = NOTHING_DONE,
    ) -> Cut:
        """A cut of the window `before`, and its cost. What it keeps is listed when it is applied (`list_kept`).

        The kept messages lose their images, but the last user message if the budget allows it. With `keeps_least`, only
        that is kept, system messages that every cut keeps, and searches that loaded tools; these only with `loads`.
        """
        sums = self._sums
        spared, words = self._weigh_users(at, keeps_least=keeps_least)
        loops, unfit = ([], []) if keeps_least else self._divide(at)
        tokens = SUMMARY_FRAME_TOKENS + reserved + anchor_tokens + words
        if sums.fixed:
            tokens += sums.systems(min(self._room.leading, at), at)
        tokens += (LOOP_TOKENS if unfit else 0) + (sum([sums.between(*step) for step in loops]) if loops else 0)
        if sums.reminders.last >= 0 and not keeps_least:
            tokens += self._fit_reminders(at)[1]
        if loads and (sums.loaded.steps or sums.loaded.marked):
            tokens += sum(sums.between(*step) - sums.pruned(*step) for step in self._find_loaded(at, loops))
        return Cut(
            kind,
            at,
            reserved,
            (),
            tokens,
            *(before.prune_stop, before.memory_stop, before.users_stop),
            anchor_tokens=anchor_tokens,
            images=before.images,
            spared=spared,
            unfit=unfit[-1][0] if unfit else -1,
            loads=loads,
        )

    def list_kept(self, cut: Cut, *, keeps_least: bool = False) -> Cut:
        """The cut with the messages that it keeps, if it is made now; `keeps_least` as for `make`."""
        sums, at = self._sums, cut.at
        ranks = sums.newest_users(at, self._find_user_budget(at, keeps_least=keeps_least))
        oldest = at if keeps_least else self._fit_reminders(at)[0]
        systems = sorted([*sums.fixed[: bisect_left(sums.fixed, at)], *sums.reminders.list(oldest, at)])
        opening = -1 if keeps_least or self.opening >= at else self.opening
        loops = [] if keeps_least else self._divide(at)[0]
        bare = self._find_loaded(at, loops) if cut.loads else []
        steps = sorted((*loops, *bare))
        stays = {start for start, _ in steps}.union(systems, (opening, sums.task), range(self._room.leading))
        words = [sums.users[rank] for rank in ranks]
        return replace(
            cut,
            kept=tuple([word for word in words if word not in stays]),
            tokens=cut.tokens
            - sum(sums.between(word, word + 1) for word in words if word in stays and word != opening),
            kept_systems=tuple(systems),
            kept_steps=tuple(steps),
            lost=len(set(sums.loaded.list_marked(at)) - stays),
            bare_steps=tuple(bare),
            opening=opening,
            made_at=sums.number,
        )

    def _fit_reminders(self, at: int) -> tuple[int, int]:
        """Where the reminders begin that stay of those before `at`, and their tokens: at most low water / 4."""
        reminders = self._sums.reminders
        return reminders.fit(at, self.marks.low // 4) if reminders.last >= 0 else (at, 0)

    def _find_loaded(self, at: int, loops: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """The steps before `at` that the client wants kept or that loaded tools, without those in `loops`.

        They get a quarter of the size at which a cut must be made; those that the client wants kept, and those of tools
        that were called, up to half of it, the newest first. Low water is no measure: without them, later calls are
        refused. Only what is kept, or the searches stay, and the other results are pruned.
        """
        sums, steps, spent = self._sums, list[tuple[int, int]](), 0
        for start, is_wanted in sums.loaded.list(at):
            stop = sums.find_stop(start)
            tokens = sums.between(start, stop) - sums.pruned(start, stop)
            most = self.marks.due // (2 if is_wanted else 4)
            is_there = self._room.leading <= start and stop <= at and start not in {sums.task, self.opening}
            if is_there and spent + tokens <= most:
                steps.append((start, stop))
                spent += tokens
        return [step for step in sorted(steps) if step not in loops]

    def _divide(self, at: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """As `divide_loops`, and the answer to the task statement stays, too, if the summary stands elsewhere."""
        loops, unfit = self.divide_loops(at) if self._sums.repeats.loops else ([], [])
        if self.policy.summary_role is SummaryRole.LAST:
            loops = sorted({*loops, *self._sums.find_first_answer(at, self.marks.low)})
        return loops, unfit

    def divide_loops(self, at: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """The steps before `at` whose calls the agent makes again and again: those that may stay, and the others.

        They get half of the gap between the waters, the newest first: so a cut still leaves less than high water. Steps
        with images do not stay. The oldest of each come first.
        """
        sums, steps, unfit = self._sums, list[tuple[int, int]](), list[tuple[int, int]]()
        left = (self.marks.high - self.marks.low) // 2
        for start in sums.repeats.list():
            stop = sums.find_stop(start)
            tokens = sums.between(start, stop)
            if start < self._room.leading or stop > at:
                continue
            if tokens <= left and not sums.images.number(start, stop):
                steps.append((start, stop))
                left -= tokens
            else:
                unfit.append((start, stop))
        return sorted(steps), sorted(unfit)

    def _find_user_budget(self, at: int, *, keeps_least: bool) -> int:
        """What the client's own words from before the cut may cost.

        Nothing if the summary is in the newest user message (`last`) and what stays begins with such words: what stays
        is not read again, but words in the newest message would be.
        """
        is_moved = self.policy.summary_role is SummaryRole.LAST and self._sums.begins_turn(at)
        return 0 if keeps_least or is_moved else self._user_budget

    def _weigh_users(self, at: int, *, keeps_least: bool) -> tuple[int, int]:
        """The user message that keeps its images, -1 for none, and what the client's own words cost that stay."""
        sums, budget = self._sums, self._find_user_budget(at, keeps_least=keeps_least)
        kept = sums.newest_users(at, budget)
        words = sums.user_tokens(kept) if kept else 0
        spared = sums.last_words if kept and sums.last_words < at else -1
        saved = sums.images.saved(spared, spared + 1) if sums.images.places else 0
        if words + saved > budget:
            spared, saved = -1, 0
        opening = 0 if keeps_least or sums.opening < 0 else self._count_opening(at, kept)
        return spared, words + saved + opening

    def _count_opening(self, at: int, ranks: range) -> int:
        """What the client's own summary costs if it stays before `at` and is not among the kept user messages."""
        opening, users = self.opening, self._sums.users
        rank = bisect_left(users, opening)
        if not 0 <= opening < at or (rank in ranks and users[rank] == opening):
            return 0
        return self._sums.between(opening, opening + 1)
