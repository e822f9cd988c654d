"""What a cut leaves, and what may stand in its place: the points of the curve between cost and memory, by window.

Law: a function of the economy and the window alone. The figures are fitted with bench/fit.py; see bench/README.md.
"""

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise


class Economy(StrEnum):
    """How much is paid for how much memory."""

    CAREFUL = "careful"
    BALANCED = "balanced"
    FRUGAL = "frugal"


@dataclass(frozen=True, slots=True)
class Budgets:
    """Waters, as shares of the room; the tokens of a summary; the index of exact names, as a share of low water."""

    high_water: float
    low_water: float
    summary_tokens: int
    anchor_share: float


_SUMMARIES = ((32_000, 1_500), (128_000, 4_000), (1_000_000, 8_000))
"""Windows and what a summary has there. Source: models that were trained to summarise write longer ones as the window
grows; of 500k tokens Hermes keeps 41 to 62 thousand, Claude Code allows a summary 20 thousand."""
_WATERS = {Economy.CAREFUL: (0.80, 0.40), Economy.BALANCED: (0.80, 0.40), Economy.FRUGAL: (0.80, 0.40)}


def find_budgets(economy: Economy, window_tokens: int) -> Budgets:
    """The budgets for a window, in the model's own tokens."""
    high_water, low_water = _WATERS[economy]
    return Budgets(high_water, low_water, find_summary_tokens(window_tokens), 0.06)


def find_summary_tokens(window_tokens: int) -> int:
    """What a summary may have: it grows with the window, by straight lines between the points below."""
    tokens = _SUMMARIES[0][1]
    for (start, start_tokens), (stop, stop_tokens) in pairwise(_SUMMARIES):
        if window_tokens > start:
            share = min((window_tokens - start) / (stop - start), 1.0)
            tokens = round(start_tokens + share * (stop_tokens - start_tokens))
    return tokens
