"""What a cut leaves, and what may stand in its place: points of the curve between cost and memory, by window.

Law: a function of the economy and the window alone.
"""

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import log2


class Economy(StrEnum):
    """How much is paid for how much memory."""

    CAREFUL = "careful"
    BALANCED = "balanced"
    FRUGAL = "frugal"


@dataclass(frozen=True, slots=True)
class Budgets:
    """Waters, as shares of the room; the tokens of a summary; what is carried over by code, as a share of low water."""

    high_water: float
    low_water: float
    summary_tokens: int
    anchor_share: float


_WINDOWS = (8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 1_000_000)
"""Windows of the points below. Between two of them the figures follow the logarithm of the window."""
_SUMMARIES = (1_500, 1_500, 1_500, 2_500, 4_000, 5_500, 8_000)
"""What a summary may have, in tokens. Source: 1,500 at 32k, 4,000 at 128k and 8,000 at 1M are what issue 16 asks for.
Models that were trained to summarise write longer notes as the window grows; Claude Code allows 20 thousand."""
_CURVE = {
    Economy.CAREFUL: (
        (0.88, 0.50, 0.25),
        (0.85, 0.40, 0.25),
        (0.80, 0.35, 0.25),
        (0.75, 0.35, 0.15),
        (0.70, 0.30, 0.08),
        (0.60, 0.30, 0.05),
        (0.50, 0.25, 0.03),
    ),
    Economy.BALANCED: (
        (0.85, 0.45, 0.25),
        (0.80, 0.27, 0.35),
        (0.60, 0.22, 0.35),
        (0.50, 0.20, 0.22),
        (0.45, 0.18, 0.14),
        (0.35, 0.14, 0.08),
        (0.25, 0.08, 0.05),
    ),
    Economy.FRUGAL: (
        (0.70, 0.30, 0.25),
        (0.60, 0.20, 0.30),
        (0.40, 0.15, 0.40),
        (0.33, 0.13, 0.25),
        (0.28, 0.10, 0.18),
        (0.20, 0.08, 0.10),
        (0.10, 0.04, 0.05),
    ),
}
"""High water, low water and the share of low water for what is carried over, for each of the windows.

Source: fitted on 105 recorded sessions at windows of 16k to 128k, for what they cost and for the names that are needed
later (bench/README.md, "What stays behind a cut"). Beyond 128k few sessions reach the waters: the tokens that they
stand for grow with the root of the window there, or less.
"""


def find_budgets(economy: Economy, window_tokens: int) -> Budgets:
    """The budgets for a window, in the model's own tokens."""
    place = _find_place(window_tokens)
    high_water, low_water, anchor_share = (
        round(_interpolate([point[index] for point in _CURVE[economy]], place), 3) for index in range(3)
    )
    return Budgets(high_water, low_water, round(_interpolate(_SUMMARIES, place)), anchor_share)


def _find_place(window_tokens: int) -> float:
    """Between which of the windows this one is: 1.5 is half way, by the logarithm, from the second to the third."""
    if window_tokens <= _WINDOWS[0]:
        return 0.0
    for index, (start, stop) in enumerate(pairwise(_WINDOWS)):
        if window_tokens <= stop:
            return index + log2(window_tokens / start) / log2(stop / start)
    return float(len(_WINDOWS) - 1)


def _interpolate(values: "tuple[int, ...] | list[float]", place: float) -> float:
    index = min(int(place), len(values) - 2)
    share = place - index
    return values[index] * (1 - share) + values[index + 1] * share
