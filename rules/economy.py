"""The default budgets of a cut, fitted for each window and economy.

A cut that comes early and leaves little is cheap, but loses more of the conversation. `Economy` chooses the trade-off.

Law: a function of only the economy and the window.
"""

from enum import StrEnum
from itertools import pairwise
from math import log2

import msgspec


class Economy(StrEnum):
    """The trade-off between cost and memory. `CAREFUL` remembers most, `FRUGAL` costs least."""

    CAREFUL = "careful"
    BALANCED = "balanced"
    FRUGAL = "frugal"


class Budgets(msgspec.Struct, frozen=True):
    """The sizes that a cut works with, and when it is made.

    `high_water` and `low_water` are shares of the room. `summary_tokens` is the most that a summary may have.
    `anchor_share` bounds what code carries over a cut (task list, exact names), as a share of low water.
    `risk_share` bounds what a cut may add to the cost of the session, as a share of its cost without trimtab.
    """

    high_water: float
    low_water: float
    summary_tokens: int
    anchor_share: float
    risk_share: float


_WINDOWS = (8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 1_000_000)
"""Context windows, in tokens, for which the tables below have values. Values between two windows are interpolated
linearly over the logarithm of the window."""
_SUMMARIES = (1_500, 1_500, 1_500, 2_500, 4_000, 5_500, 8_000)
"""Maximum number of tokens of a summary, for each of the windows. Chosen: issue 16 asks for 1,500 at 32k, 4,000 at 128k
and 8,000 at 1M; the other values lie between these. For comparison, Claude Code allows 20,000."""
_SMALL_WINDOWS = (4_096, 8_000)
_SUMMARY_SHARES = (3 / 32, 7 / 64)
"""The most that a summary may have of a small window: of the first and smaller ones, of the second and larger ones,
linear between them. The server must read what a cut writes: behind llama.cpp at 4,096, in a chat of 40 turns, a quarter
of all that it read was digests of an eighth of the window. At 8,000, a digest of 3/32 keeps less than half of a chat's
facts.
"""
_CURVE = {
    Economy.CAREFUL: (
        (0.80, 0.45, 0.31),
        (0.66, 0.37, 0.38),
        (0.54, 0.29, 0.65),
        (0.45, 0.245, 0.44),
        (0.43, 0.215, 0.25),
        (0.40, 0.185, 0.13),
        (0.36, 0.172, 0.08),
    ),
    Economy.BALANCED: (
        (0.66, 0.36, 0.34),
        (0.55, 0.195, 0.51),
        (0.37, 0.165, 0.57),
        (0.37, 0.155, 0.53),
        (0.34, 0.13, 0.36),
        (0.28, 0.105, 0.20),
        (0.18, 0.072, 0.10),
    ),
    Economy.FRUGAL: (
        (0.45, 0.24, 0.36),
        (0.34, 0.13, 0.54),
        (0.20, 0.105, 0.56),
        (0.20, 0.105, 0.56),
        (0.20, 0.087, 0.37),
        (0.16, 0.063, 0.22),
        (0.09, 0.041, 0.12),
    ),
}
"""(high water, low water, anchor share) for each of the windows.

Source: windows of 16k to 128k are fitted on 105 recorded sessions, with `python -m bench.retention.needed` (see
bench/README.md), for cost and for how many of the names that are needed later are kept. `careful` at 32k has a larger
index, in place of talk: more names are kept at the same cost. The values for larger windows
are chosen, as few recorded sessions reach the waters there: in tokens, the waters grow more slowly than the window.
"""


_RISKS = {Economy.CAREFUL: 0.04, Economy.BALANCED: 0.07, Economy.FRUGAL: 0.115}
"""The risk share of each economy: what it promises about a session that ends inside its window.

`careful` promises 0.02, which holds for the recorded sessions. As a bound, 0.02 would have its cuts wait until the
window is full. `frugal` promises 0.12: with that as its bound, one of 67 recorded sessions costs 1.128 at one of ten
price lists, as its cache reads nothing of the shorter prompt. Source: bench/README.md.
"""


def find_budgets(economy: Economy, window_tokens: int) -> Budgets:
    """The budgets for a context window of `window_tokens`. All tokens are the model's own."""
    place = _find_place(window_tokens)
    high_water, low_water, anchor_share = (
        round(_interpolate([point[index] for point in _CURVE[economy]], place), 3) for index in range(3)
    )
    summary_tokens = round(min(_interpolate(_SUMMARIES, place), window_tokens * _find_summary_share(window_tokens)))
    return Budgets(high_water, low_water, summary_tokens, anchor_share, _RISKS[economy])


def _find_summary_share(window_tokens: int) -> float:
    (small, large), (least, most) = _SMALL_WINDOWS, _SUMMARY_SHARES
    return least + (most - least) * min(max(window_tokens - small, 0) / (large - small), 1)


def _find_place(window_tokens: int) -> float:
    """The window's position in `_WINDOWS`: 1.5 is half-way between the second and the third, on a logarithmic scale."""
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
