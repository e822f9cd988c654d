"""Whether a cut pays: what it costs, and what having waited for it has cost so far.

Law: a running sum and prices. It decides nothing about where a cut is.
"""

from rules.policy import Prices
from rules.window.cut_candidates import Cuts
from rules.window.state import CutKind, Window

PATIENCE = 0.25
"""A cut is put off until waiting has cost this share of what the cut costs, counted over the whole session: one that
has outlasted its first wait is taken to go on.

Source: the break-even rule of renting and buying, by which waiting costs at most twice what foresight would have; of
0, 0.1, 0.2, 0.25, 0.33 and 0.4 a quarter cost the recorded sessions least at the worst, at windows of 32k and 64k.
"""


class Economics:
    """What putting cuts off has cost so far, in the price of an input token."""

    __slots__ = ("_prices", "_waited")

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._waited = 0.0

    def wait(self, gain_tokens: int) -> None:
        """One more request goes out with tokens that a cut would have freed."""
        self._waited += gain_tokens * self._prices.cached_input

    def pays(self, cuts: Cuts, window: Window, chosen: Window) -> bool:
        """Whether waiting has cost enough to move from a window to the chosen one."""
        return self._waited >= self._price(cuts, window, chosen) * PATIENCE

    def _price(self, cuts: Cuts, window: Window, chosen: Window) -> float:
        """What stays is read anew, and a summary must be written.

        What is new in the open step is read for the first time anyway; the summary's call reads the cache.
        """
        prices = self._prices
        price = max(cuts.size(chosen) - cuts.open_tokens, 0) * (prices.input - prices.cached_input)
        if len(chosen.cuts) > len(window.cuts) and chosen.cuts[-1].kind is CutKind.SUMMARISE:
            price += chosen.cuts[-1].reserved_tokens * prices.output + cuts.size(window) * prices.cached_input
        return price
