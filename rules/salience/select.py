"""Which units are kept within a budget, and the markers for the gaps between them.

Law: exact to the budget. What is kept is kept as it stands; a marker says what is missing, and how to get it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest

from rules.conversation import CountTokens
from rules.salience.units import Units

GAP_TOKENS = 14
"""What a marker costs, about. A gap that is shorter is filled."""
COST_SCALE_TOKENS = 60
"""A unit of so many tokens has to matter twice as much as a very short one."""
ROUNDS = 8
SORTED_AT_ONCE = 8192
USED_SHARE = 0.97
"""A selection that takes so much of the budget is not made any larger."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Of the budget: what the first and the last lines get, whatever stands in them."""

    head: float
    tail: float


class Selection:
    """The units of one text in the order in which they are wanted."""

    def __init__(self, units: Units, total_tokens: int, scores: Mapping[int, float]) -> None:
        self._units = units
        self._rate = total_tokens / max(units.offsets[-1], 1)
        self._scores = scores

    def write(self, limit: int, shares: Shares, count: CountTokens) -> str | None:
        """The text of at most `limit` tokens; None where not even its ends and a marker fit."""
        fixed = self._take_ends(limit, shares)
        wanted = [(self._want(index), -index) for index in self._scores if index not in fixed]
        # Each costs a token at least. Sorting a million would hold the interpreter.
        most = sorted(wanted, reverse=True) if len(wanted) <= SORTED_AT_ONCE else nlargest(limit, wanted)
        return self._fit(limit, fixed, [-place for _, place in most], count)

    def _want(self, index: int) -> float:
        return self._scores[index] / (1 + self._cost(index) / COST_SCALE_TOKENS)

    def _fit(self, limit: int, fixed: set[int], wanted: Sequence[int], count: CountTokens) -> str | None:
        """The largest selection found that keeps the limit, nearing it by proportion."""
        room, best, best_tokens = float(limit), None, 0
        low, high = 0.0, float("inf")
        for _ in range(ROUNDS):
            text = self._join(self._choose(room, fixed, wanted))
            tokens = count(text)
            if tokens <= limit:
                low = max(low, room)
                if best is None or tokens > best_tokens:
                    best, best_tokens = text, tokens
                if tokens >= limit * USED_SHARE:
                    break
            else:
                high = min(high, room)
            guess = room + (limit * (1 + USED_SHARE) / 2 - tokens)
            room = guess if low < guess < high else (low + min(high, 2 * limit)) / 2
        return best

    def _choose(self, room: float, fixed: set[int], wanted: Sequence[int]) -> set[int]:
        """What fits `room` by estimate: the ends, then the units that are wanted most."""
        kept = set(fixed)
        left = room - sum(map(self._cost, fixed)) - 2 * GAP_TOKENS
        for index in wanted:
            cost = self._cost(index)
            if index - 1 not in kept and index + 1 not in kept:
                cost += GAP_TOKENS
            if cost <= left:
                kept.add(index)
                left -= cost
            elif left < GAP_TOKENS:
                break
        return kept

    def _take_ends(self, limit: int, shares: Shares) -> set[int]:
        last = len(self._units.texts)
        return {
            *self._take(range(last), limit * shares.head),
            *self._take(range(last - 1, -1, -1), limit * shares.tail),
        }

    def _take(self, indexes: range, room: float) -> list[int]:
        taken = []
        for index in indexes:
            room -= self._cost(index)
            if room < 0:
                break
            taken.append(index)
        return taken

    def _cost(self, index: int) -> float:
        return len(self._units.texts[index]) * self._rate + 1

    def _join(self, kept: set[int]) -> str:
        """The units kept, and a marker for each gap that is longer than one."""
        texts, offsets = self._units.texts, self._units.offsets
        pieces: list[str] = []
        previous, is_first = -1, True
        for index in [*sorted(kept), len(texts)]:
            gap = texts[previous + 1 : index]
            tokens = round((offsets[index] - offsets[previous + 1]) * self._rate)
            if gap and tokens <= GAP_TOKENS:
                pieces += gap
            elif gap:
                if pieces and not pieces[-1].endswith("\n"):
                    pieces.append("\n")
                pieces.append(self._mark(previous + 1, index, tokens, is_first=is_first))
                is_first = False
            pieces += texts[index : index + 1]
            previous = index
        return "".join(pieces)

    def _mark(self, start: int, stop: int, tokens: int, *, is_first: bool) -> str:
        """The marker for units [start, stop); the first of a text says what is to be done about it."""
        first, last = self._units.lines[start], self._units.last_line(stop - 1)
        where = f"lines {first}-{last}" if first != last else f"line {first}"
        if not is_first:
            part = " in part" if first == last and self._units.continues(start) else ""
            return f"[trimtab: {where}{part}, ~{tokens} tokens]\n"
        if first == last:
            chars = self._units.offsets[stop] - self._units.offsets[start]
            return f"[trimtab: {chars} characters (~{tokens} tokens) omitted here, of {where}: narrow the command]\n"
        lines = last - first + 1
        return f"[trimtab: {lines} lines (~{tokens} tokens) omitted here: narrow the command, or read {where}]\n"
