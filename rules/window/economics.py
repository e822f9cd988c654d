"""Decides whether a cut pays, by comparing its cost with what waiting for it has cost so far.

Law: a running sum and prices. The position of a cut is decided elsewhere.
"""

from rules.policy import Prices
from rules.window.cut_candidates import Cuts
from rules.window.state import CutKind, Window

PATIENCE = 0.25
"""A cut is put off until waiting has cost this share of the cut's own cost. Waiting is counted over the whole session,
so only the first cut is put off for long: a session that is still running by then will probably go on.

Source: the break-even rule of the ski rental problem, by which waiting costs at most twice the best choice in
hindsight. Fitted by bench.sessions.run: of 0, 0.1, 0.2, 0.25, 0.33 and 0.4, the value 0.25 had the cheapest worst case
of all recorded sessions, at windows of 32k and 64k.
"""


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
