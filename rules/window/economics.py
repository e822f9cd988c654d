"""Decides whether a cut pays: compares its cost with what waiting has cost, and with the cost of the session so far.

Law: running sums and prices. The position of a cut is decided elsewhere.
"""

from msgspec.structs import replace

from trimtab.rules.policy import PREFETCH_GAP, OverflowStrategy, Prices
from trimtab.rules.window.cut_candidates import Cuts
from trimtab.rules.window.state import Change, ColdCut, ColdSummary, Cut, Window

PATIENCE = 0.5
"""A cut is put off until waiting since the last one has cost this share of the cut's own cost.

Source: the break-even rule of the ski rental problem: with a share of 1, waiting and cutting together cost at most
twice the best choice in hindsight. A session that has come so far goes on about as long again, so half of it is the
better bet: of 0.3, 0.5 and 1, measured with bench.retention.needed, 0.5 costs least at equal recall.
"""
AHEAD_SHARE = 0.02
"""All summaries together that are written for a cold cache cost at most this share of what the session has cost so far.

Chosen: by issue 21, a session that fits its window may cost at most 2 % more than without trimtab. Such a session may
never need the summary. The same share bounds a summary that is asked for at a cold cache: with 6 %, sessions that fit
cost 0.900 of doing nothing in bench.sessions, with 2 % 0.887 (opus, published gaps, 32,000).
"""
NOTE_SHARE = 0.6
"""A summary is expected to have this share of the tokens reserved for it. Chosen: in bench.sessions it has about 920 of
1,500 at a window of 32k."""

COLD_SHARE = 0.25
"""The mark of cold cuts lies at low water and this share of the way to high water. Chosen: below it, a cut would free
less than `least_gain`, which is the same share and what any cut must free."""
SILENCE_SECONDS = 300.0
SILENCE_SHARE = 0.37
"""The share of answers without tool calls after which a session is silent for longer than that. After tool calls it is
0.007. Source: context-guru's published log of 19,805 requests."""
SILENCE_POWER = 0.5
"""A silence is longer than t seconds with probability SILENCE_SHARE * (SILENCE_SECONDS / t) ** SILENCE_POWER. Chosen:
the log says nothing of longer silences; bench.sessions.lists.gaps assumes the same."""


class Economics:
    """The cost of the session, and of putting cuts off. The unit is the price of one uncached input token."""

    __slots__ = (
        "_bet",
        "_bet_at",
        "_plain",
        "_plain_tokens",
        "_prices",
        "_requests",
        "_risk_share",
        "_sent_tokens",
        "_spent",
        "_waited",
    )

    def __init__(self, prices: Prices, risk_share: float) -> None:
        self._prices = prices
        self._risk_share = risk_share
        self._waited = 0.0
        self._spent = 0.0
        self._plain = 0.0  # what the session would have cost without any cut
        self._plain_tokens = 0
        self._requests = 0
        self._sent_tokens = 0
        self._bet = 0.0  # the price of summaries that were written for a cold cache
        self._bet_at = -1  # where the last of them ends

    def send(self, tokens: int, plain_tokens: int) -> None:
        """Note a request of `tokens`, which would have `plain_tokens` without any cut.

        The cache has what the request before it had, and the rest is written.
        """
        known_tokens = min(plain_tokens, self._plain_tokens)
        self._plain += known_tokens * self._prices.cached_input
        self._plain += (plain_tokens - known_tokens) * self._prices.cache_write
        self._plain_tokens = plain_tokens
        self._requests += 1
        cached_tokens = min(tokens, self._sent_tokens)
        self._spent += cached_tokens * self._prices.cached_input
        self._spent += (tokens - cached_tokens) * self._prices.cache_write
        self._sent_tokens = tokens

    @property
    def growth_tokens(self) -> int:
        """How much a request had on average more than the one before it."""
        return self._plain_tokens // max(self._requests, 1)

    def wait(self, gain_tokens: int) -> None:
        self._waited += gain_tokens * self._prices.cached_input

    def pays(self, price: float, more_tokens: int = 0) -> bool:
        """Whether to make a change of this price, once further requests have carried `more_tokens` of its gain.

        Waiting must have cost enough, and the session must bear the cut.
        """
        return self._waited + more_tokens * self._prices.cached_input >= price * PATIENCE and self._bears(price)

    def is_heavy(self, change: Change, price: float) -> bool:
        """Whether the change, of this price, has a summary that is not there yet and that the session cannot bear."""
        return not self._bears(price) and not change.before.prefetch_tokens and change.asks

    def _bears(self, price: float) -> bool:
        """Whether the session, with such a cut, costs at most `risk_share` more than it would have cost without any.

        So a session that ends here loses no more than that.
        """
        return self._spent + price <= (1 + self._risk_share) * self._plain

    def cut(self, change: Change) -> None:
        self._spent += self.price(change)
        self._waited = 0.0

    def bears_cold(self, change: Change) -> bool:
        """Whether a cut at a cold cache pays although its summary must be written first.

        The upstream reads what is cut one last time, for the summary. Without the cut it would read it, too. So only
        the note is extra. It may cost at most what it costs to write once what is cut, which the next cold cache would
        cost, and AHEAD_SHARE of the session's cost so far: a short session may have no further request.
        """
        note = change.after.cuts[-1].reserved_tokens * NOTE_SHARE * self._prices.output
        saved = (change.tokens_before - change.tokens_after) * self._prices.cache_write
        return note <= min(saved, self._spent * AHEAD_SHARE)

    def note_turn(self, window: Window) -> None:
        """Note that the user has the turn: the summary for a cold cache was written, if there is one."""
        cold = window.cold_summary
        if cold is not None and cold.at != self._bet_at:
            self._bet_at = cold.at
            self._bet += cold.price

    def plan_cold_summary(self, cuts: Cuts, window: Window, size: int) -> Window:
        """The window, of this size, with the summary that a cut at a cold cache would need at the next request.

        Only if what is forwarded is at least half of the mark from which on cuts are prepared, if the summary can be
        expected to pay where caches live shortest, and if the session can bear its price. One summary serves until
        another one would free `least_gain` more: so a session of many turns does not pay for one in each of them.
        """
        before = window.cold_summary
        if window.prefetch_tokens:
            return window if before is None else replace(window, cold_summary=None)
        if not window.is_long or 2 * size < min(cuts.marks.high, cuts.share(1 - PREFETCH_GAP)):
            return window
        budget = self._spent * AHEAD_SHARE - self._bet
        if size * self._prices.cached_input > budget:
            return window
        least_freed = 0 if before is None else before.freed_tokens + cuts.marks.least_gain
        cold = self._weigh_cold(cuts, window, size, budget, least_freed)
        return window if cold is None or not pays_cold(cold, SILENCE_SECONDS) else replace(window, cold_summary=cold)

    def _weigh_cold(self, cuts: Cuts, window: Window, size: int, budget: float, least_freed: int) -> ColdSummary | None:
        """The summary that a cut at a cold cache needs now; None if it needs none, costs more, or frees less.

        It saves what is then not written into the cache, compared with a cold cache at which no summary is there. And
        the next cut, which would break a warm cache and need a summary too, comes later by that share of the way
        between the waters.
        """
        change = choose_cold(cuts, window, size, ColdCut.CUT, self, heeds_written=False)
        if change is None or not change.asks:
            return None
        cut, left = change.after.cuts[-1], change.tokens_after
        price, freed_tokens = self._price_note(size, cut), size - left
        if price > budget or freed_tokens < least_freed:
            return None
        without = choose_cold(cuts, window, size, ColdCut.PRUNE, self)
        more_tokens = (size if without is None else without.tokens_after) - left
        share = min(more_tokens / max(cuts.marks.high - cuts.marks.low, 1), 1.0)
        saving = more_tokens * self._prices.cache_write + max(share, 0.0) * self.price(change)
        return ColdSummary(cut.at, cut.reserved_tokens, freed_tokens, price, saving)

    def price(self, change: Change) -> float:
        """The cost of a change: the upstream writes what stays into its cache, and a summary is written.

        The open step is left out if the change takes effect at once, since the upstream reads it for the first time
        anyway. A cut whose summary is not there yet takes effect one request later.
        """
        tokens, asks = change.tokens_after, change.asks
        if not asks or change.before.prefetch_tokens:
            tokens = max(tokens - change.open_tokens, 0)
        price = tokens * (self._prices.cache_write - self._prices.cached_input)
        return price + (self._price_note(change.tokens_before, change.after.cuts[-1]) if asks else 0.0)

    def _price_note(self, size: int, cut: Cut) -> float:
        return cut.reserved_tokens * NOTE_SHARE * self._prices.output + size * self._prices.cached_input


def pays_cold(cold: ColdSummary, lifetime_seconds: float) -> bool:
    """Whether it pays to write a summary ahead, after an answer without tool calls, for a cache that may get cold.

    That is if it saves more than it costs, weighed with the probability that the session is silent for longer than the
    cache lives.
    """
    likely: float = SILENCE_SHARE * (SILENCE_SECONDS / max(lifetime_seconds, SILENCE_SECONDS)) ** SILENCE_POWER
    return cold.saving * likely > cold.price


def note_marks(cuts: Cuts, window: Window, forwarded_tokens: int) -> Window:
    is_long = window.is_long or (cuts.is_roomy and forwarded_tokens >= _find_cold_mark(cuts))
    is_high = window.is_high or forwarded_tokens >= cuts.marks.high
    is_same = (is_high, is_long) == (window.is_high, window.is_long)
    return window if is_same else replace(window, is_high=is_high, is_long=is_long)


def choose_cold(
    cuts: Cuts, window: Window, size: int, kind: ColdCut, economics: Economics, *, heeds_written: bool = True
) -> Change | None:
    """The change to make, in a window of this size, if the upstream's cache holds nothing of it; None to leave it.

    The upstream then writes all that is forwarded into its cache. So each token that is removed saves its price now,
    and the cut breaks no cache later. That pays unless reading the cache costs as much as writing it.

    heeds_written: a cut takes the summary that was written ahead.
    """
    policy, prices = cuts.policy, cuts.policy.prices
    pays = prices.cache_write > prices.cached_input or kind is ColdCut.NOW
    if policy.overflow_strategy is OverflowStrategy.ERROR or not pays:
        return None
    if size < _find_cold_mark(cuts) or not cuts.is_roomy:
        return None
    choice = cuts.propose(window)
    chosen, left = choice.window, choice.tokens
    if kind in {ColdCut.PRUNE, ColdCut.NOW}:
        chosen = _cut_now(cuts, window) if kind is ColdCut.NOW else _remove_cheaply(cuts, window)
        left = 0 if chosen is None else cuts.size(chosen)
    if chosen is None:
        return None
    change = Change(window, chosen, size, left, cuts.open_tokens)
    cold = window.cold_summary if heeds_written and kind is ColdCut.CUT and window.next_cut is None else None
    if cold is not None and change.asks:
        # The summary that was written ahead ends here. What came since then stays.
        choice = cuts.choose(replace(window, next_cut=cold.at), over=False)
        chosen, left = choice.window, choice.tokens
        if chosen is None:
            return None
        change = replace(change, after=chosen, tokens_after=left)
    if size - left < cuts.marks.least_gain:
        return None
    is_asked = kind is ColdCut.ASK and len(chosen.cuts) > len(window.cuts)
    return None if is_asked and not economics.bears_cold(change) else change


def _remove_cheaply(cuts: Cuts, window: Window) -> Window | None:
    """The window without what can go without a summary."""
    return cuts.propose(window).pruned or cuts.remove_images(window, 0) or cuts.drop_memory(window, 0)


def _cut_now(cuts: Cuts, window: Window) -> Window | None:
    """The window cut to low water, also if pruning alone would do: who asks for a cut has something to tell it."""
    at = cuts.find_cut(window, 0, spares=True) if window.next_cut is None else window.next_cut
    return None if at is None else cuts.cut_at(window, at)


def _find_cold_mark(cuts: Cuts) -> int:
    return cuts.marks.low + int((cuts.marks.high - cuts.marks.low) * COLD_SHARE)
