"""Makes a cut: what stays verbatim of the part that it removes, and what all of that costs.

Law: a function of a transcript's sums, the room and the policy.
"""

from bisect import bisect_left
from dataclasses import replace

from rules.policy import Policy
from rules.window.room import Marks, Room
from rules.window.state import Cut, CutKind
from rules.window.sums import Sums

SUMMARY_FRAME_TOKENS = 160
"""Reserved for the lines around a summary: introduction, headings, end, acknowledgement. Chosen: about their sum, with
some room for long numbers."""
REMINDED_TURNS = 3
"""Number of newest user turns that a cut spares if they hold reminders. Chosen: reminders cost more than what is said,
and the model must still see what was said last."""
LOOP_TOKENS = 80
"""Reserved for the line about a repeated call whose result is too long to keep. Chosen: the line costs about 45 tokens,
and a tool's name up to 30 more; a line that costs more is left out."""
OPENING_SHARE = 0.25
"""Share of the limit. A client's own summary of an earlier session stays verbatim if it is not longer. Chosen: the same
share that is left to a conversation after its task statement was shortened."""


class CutMaker:
    """Makes the cuts of one fold, after the messages that `sums` has seen."""

    __slots__ = ("_early", "_late", "_policy", "_room", "_sums")

    def __init__(self, room: Room, policy: Policy, sums: Sums) -> None:
        self._room = room
        self._early = Marks.measure(room.early, None, policy)
        self._late = Marks.measure(room.tokens, room.soft, policy)
        self._policy = policy
        self._sums = sums

    @property
    def marks(self) -> Marks:
        """The marks after the messages so far; they are higher while the task statement has not come yet."""
        return self._early if self._sums.task is None else self._late

    @property
    def reserve(self) -> int:
        """The most that a summary may cost, in tokens."""
        shares = self._policy.sections
        most = self._policy.summary_max_tokens if shares is None else int(self._room.limit * shares.summary)
        return min(self._policy.summary_max_tokens, most, self.marks.low // 2)

    @property
    def anchor_tokens(self) -> int:
        """The most that the names carried over a cut may cost, in tokens."""
        return int(self.marks.low * self._policy.anchor_share)

    @property
    def opening(self) -> int:
        """Index of the client's own summary of an earlier session; -1 without one, or if it is too long to stay."""
        at = self._sums.opening
        return at if at >= 0 and self._sums.between(at, at + 1) <= self._room.limit * OPENING_SHARE else -1

    def find_reminded_turns(self) -> int:
        """Start of the newest user turns that reminders must not push out; the open step if there are none.

        These are the newest REMINDED_TURNS turns, as far as they fit half of low water.
        """
        sums, most = self._sums, self.marks.low // 2
        turns = (user for user in sums.users[-REMINDED_TURNS:] if sums.between(user, len(sums)) <= most)
        start = next(turns, sums.open_step)
        return start if sums.reminders.newest > start else sums.open_step

    def make(
        self,
        kind: CutKind,
        at: int,
        reserved: int,
        anchor_tokens: int = 0,
        *,
        keeps_least: bool = False,
        loads: bool = True,
    ) -> Cut:
        """A cut and its cost. What it keeps is listed when it is applied (`list_kept`).

        The kept messages lose their images. Only the last user message keeps its own, if the budget allows it.
        With `keeps_least`, only the last user message is kept, system messages that every cut keeps, and searches that
        loaded tools. Without `loads`, these go, too.
        """
        sums, budget = self._sums, 0 if keeps_least else self._user_budget
        kept = sums.newest_users(at, budget)
        words = sums.user_tokens(kept)
        spared = sums.last_words if kept and sums.last_words < at else -1
        saved = sums.images.saved(spared, spared + 1)
        if words + saved > budget:
            spared, saved = -1, 0
        tokens = SUMMARY_FRAME_TOKENS + reserved + anchor_tokens + words + saved
        tokens += sums.systems(min(self._room.leading, at), at)
        unfit = -1 if keeps_least else max((start for start, _ in self.find_unfit(at)), default=-1)
        tokens += LOOP_TOKENS if unfit >= 0 else 0
        if not keeps_least:
            tokens += self._count_opening(at, kept) + sums.reminders.fit(at, self._reminder_budget)[1]
        whole, bare = self._find_steps(at, keeps_least=keeps_least, loads=loads)
        tokens += sum(sums.between(*step) for step in whole)
        tokens += sum(sums.between(*step) - sums.pruned(*step) for step in bare)
        cut = Cut(kind, at, reserved, (), tokens, anchor_tokens=anchor_tokens, spared=spared, unfit=unfit)
        return cut if loads else replace(cut, loads=False)

    def list_kept(self, cut: Cut, *, keeps_least: bool = False) -> Cut:
        """The cut with the messages that it keeps, if it is made now; `keeps_least` as for `make`."""
        sums, at = self._sums, cut.at
        ranks = sums.newest_users(at, 0 if keeps_least else self._user_budget)
        oldest = at if keeps_least else sums.reminders.fit(at, self._reminder_budget)[0]
        systems = sorted([*sums.fixed[: bisect_left(sums.fixed, at)], *sums.reminders.list(oldest, at)])
        opening = -1 if keeps_least or self.opening >= at else self.opening
        kept = tuple(sums.users[rank] for rank in ranks if sums.users[rank] != opening)
        whole, bare = self._find_steps(at, keeps_least=keeps_least, loads=cut.loads)
        cut = replace(cut, kept=kept, kept_systems=tuple(systems), kept_steps=tuple(sorted((*whole, *bare))))
        cut = replace(cut, bare_steps=tuple(bare))
        return replace(cut, opening=opening, made_at=len(sums))

    def _find_steps(
        self, at: int, *, keeps_least: bool, loads: bool
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """The steps before `at` that stay, oldest first: those that stay whole, and those whose results are pruned."""
        whole = [] if keeps_least else self.find_loops(at)
        bare = self._find_loaded(at) if loads else []
        return whole, [step for step in bare if step not in whole]

    def _find_loaded(self, at: int) -> list[tuple[int, int]]:
        """The steps before `at` that loaded tools, as far as they may stay.

        They get a quarter of the size at which a cut must be made, and those of tools that were called up to half of
        it, the newest calls first. Low water is no measure: without them, later calls are refused.
        """
        sums, steps, spent = self._sums, list[tuple[int, int]](), 0
        for start, is_called in sums.loaded.list():
            stop = sums.find_stop(start)
            tokens = sums.between(start, stop) - sums.pruned(start, stop)
            most = self.marks.due // (2 if is_called else 4)
            if self._room.leading <= start and stop <= at and spent + tokens <= most:
                steps.append((start, stop))
                spent += tokens
        return sorted(steps)

    def find_loops(self, at: int) -> list[tuple[int, int]]:
        """The steps before `at` whose calls the agent makes again and again, oldest first, as far as they may stay.

        They get half of the gap between the waters, the newest first: so a cut still leaves less than high water. Steps
        with images do not stay.
        """
        return self._divide_loops(at)[0]

    def find_unfit(self, at: int) -> list[tuple[int, int]]:
        """The steps before `at` whose calls the agent makes again and again, and which may not stay."""
        return self._divide_loops(at)[1]

    def _divide_loops(self, at: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """The looping steps that may stay, and the others, oldest first."""
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

    @property
    def _user_budget(self) -> int:
        """The most that the user messages kept verbatim after a cut may cost, in tokens."""
        return min(self._policy.keep_user_tokens, self.marks.low // 4)

    @property
    def _reminder_budget(self) -> int:
        """The most that the reminders kept after a cut may cost, in tokens."""
        return self.marks.low // 4

    def _count_opening(self, at: int, ranks: range) -> int:
        """What the client's own summary costs if it stays before `at` and is not among the kept user messages."""
        opening, users = self.opening, self._sums.users
        rank = bisect_left(users, opening)
        if not 0 <= opening < at or (rank in ranks and users[rank] == opening):
            return 0
        return self._sums.between(opening, opening + 1)
