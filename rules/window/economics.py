"""Decides whether a cut pays, by comparing its cost with what waiting for it has cost so far.

Law: a running sum and prices. The position of a cut is decided elsewhere.
"""

from dataclasses import replace

from rules.policy import OverflowStrategy, Policy, Prices
from rules.window.cut_candidates import Cuts
from rules.window.state import ColdCut, CutKind, Window

PATIENCE = 0.25
"""A cut is put off until waiting has cost this share of the cut's own cost. Waiting is counted over the whole session,
so only the first cut is put off for long: a session that is still running by then will probably go on.

Source: the break-even rule of the ski rental problem, by which waiting costs at most twice the best choice in
hindsight. Fitted by bench.sessions.run: of 0, 0.1, 0.2, 0.25, 0.33 and 0.4, the value 0.25 had the cheapest worst case
of all recorded sessions, at windows of 32k and 64k.
"""

COLD_SHARE = 0.25
"""The mark of cold cuts lies at low water and this share of the way to high water. Chosen: below it, a cut would free
less than `least_gain`, which is the same share and what any cut must free."""


class Economics:
    """The cost of putting cuts off so far. The unit is the price of one uncached input token."""

    __slots__ = ("_prices", "_waited")

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._waited = 0.0

    def wait(self, gain_tokens: int) -> None:
        """Note that one more request carries `gain_tokens` that a cut would have removed."""
        self._waited += gain_tokens * self._prices.cached_input

    def pays(self, cuts: Cuts, window: Window, chosen: Window) -> bool:
        """Whether waiting has cost enough to change from `window` to `chosen`."""
        return self._waited >= self._price(cuts, window, chosen) * PATIENCE

    def _price(self, cuts: Cuts, window: Window, chosen: Window) -> float:
        """The cost of a change: the upstream writes what stays into its cache, and a summary is written.

        The open step is left out, since the upstream reads it for the first time anyway. The summary's own request
        reads the cache.
        """
        prices = self._prices
        price = max(cuts.size(chosen) - cuts.open_tokens, 0) * (prices.cache_write - prices.cached_input)
        if len(chosen.cuts) > len(window.cuts) and chosen.cuts[-1].kind is CutKind.SUMMARISE:
            price += chosen.cuts[-1].reserved_tokens * prices.output + cuts.size(window) * prices.cached_input
        return price


def note_marks(cuts: Cuts, window: Window, forwarded_tokens: int) -> Window:
    """The window with a note that high water or the mark of cold cuts was reached."""
    is_long = window.is_long or (cuts.is_roomy and forwarded_tokens >= _find_cold_mark(cuts))
    is_high = window.is_high or forwarded_tokens >= cuts.marks.high
    is_same = (is_high, is_long) == (window.is_high, window.is_long)
    return window if is_same else replace(window, is_high=is_high, is_long=is_long)


def choose_cold(cuts: Cuts, window: Window, kind: ColdCut, policy: Policy) -> Window | None:
    """The window to change to if the upstream holds nothing of the prompt in its cache; None to leave it.

    The upstream then writes all that is forwarded into its cache. So each token that is removed saves its price now,
    and the cut breaks no cache later. That pays unless reading the cache costs as much as writing it.
    """
    size, prices = cuts.size(window), policy.prices
    if policy.overflow_strategy is OverflowStrategy.ERROR or prices.cache_write <= prices.cached_input:
        return None
    if size < _find_cold_mark(cuts) or not cuts.is_roomy:
        return None
    at = cuts.find_cut(window, 0, spares=True) if window.next_cut is None else window.next_cut
    fixed = replace(window, next_cut=at)
    if kind is ColdCut.CUT:
        chosen = cuts.choose(fixed, over=False)
    else:
        chosen = cuts.prune(cuts.without_memory(fixed)) or cuts.remove_images(window, 0) or cuts.drop_memory(window, 0)
    return chosen if chosen is not None and size - cuts.size(chosen) >= cuts.marks.least_gain else None


def _find_cold_mark(cuts: Cuts) -> int:
    """The tokens after the head from which on a cold cache is used for a cut."""
    return cuts.marks.low + int((cuts.marks.high - cuts.marks.low) * COLD_SHARE)
