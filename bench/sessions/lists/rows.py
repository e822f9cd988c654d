"""What a contestant costs by a price list: a row.

Law: a ratio is a cost divided by that of doing nothing in the same sessions, at the same cache, with the same gaps.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from bench.sessions.ledger import Call, Prices, price, price_loss, turns

MOST_FOR_FITTING = 1.02
"""Source: issue 21. A session that fits its window may cost this much of doing nothing."""


@dataclass(frozen=True, slots=True)
class Done:
    """A session's calls, with the contestant and without."""

    session_id: str
    calls: Sequence[Call]
    nothing: Sequence[Call]
    refused: int = 0

    def ratio(self, prices: Prices) -> float:
        """Its cost."""
        return price(self.calls, prices) / price(self.nothing, prices)


@dataclass(frozen=True, slots=True)
class Group:
    """The figures of some sessions.

    `cost` is the ratio of the sums, `mean` that of the sessions' ratios, `lost` the share of the cost that was paid for
    entries that had expired or were evicted, `read` the share of prompt tokens that were read from the cache.
    """

    sessions: int
    cost: float | None = None
    mean: float | None = None
    worst: float | None = None
    worst_session: str = ""
    dearer_sessions: int = 0
    dollars: float = 0.0
    lost_dollars: float = 0.0
    nothing_dollars: float = 0.0
    nothing_lost_dollars: float = 0.0
    read: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A contestant at a window, by a price list: sessions that are larger than the window, and those that fit it."""

    contestant: str
    window_tokens: int
    reserve_tokens: int
    prices: str
    cache: str
    gaps: str
    requests: int
    long_gaps: int
    summaries: int
    refused: int
    seconds: float
    larger: Group
    fitting: Group


def make_group(done: Sequence[Done], prices: Prices) -> Group:
    """The figures of some sessions; prices are dollars for a million tokens."""
    if not done:
        return Group(0)
    ratios = [(one.ratio(prices), one.session_id) for one in done]
    worst, worst_session = max(ratios)
    cost, nothing = _sum(price(one.calls, prices) for one in done), _sum(price(one.nothing, prices) for one in done)
    return Group(
        sessions=len(done),
        cost=cost / nothing,
        mean=fmean(ratio for ratio, _ in ratios),
        worst=worst,
        worst_session=worst_session,
        dearer_sessions=sum(ratio > MOST_FOR_FITTING for ratio, _ in ratios),
        dollars=cost,
        lost_dollars=_sum(price_loss(one.calls, prices) for one in done),
        nothing_dollars=nothing,
        nothing_lost_dollars=_sum(price_loss(one.nothing, prices) for one in done),
        read=_share_read(done),
    )


def split_by_size(done: Iterable[Done], limit_tokens: int) -> tuple[list[Done], list[Done]]:
    """The sessions that are larger than the limit, and those that fit it."""
    larger: list[Done] = []
    fitting: list[Done] = []
    for one in done:
        is_larger = max(call.prompt_tokens for call in one.nothing) > limit_tokens
        (larger if is_larger else fitting).append(one)
    return larger, fitting


def _share_read(done: Sequence[Done]) -> float | None:
    calls = [call for one in done for call in turns(one.calls)]
    tokens = sum(call.prompt_tokens for call in calls)
    return sum(call.cached_tokens for call in calls) / tokens if tokens else None


def _sum(costs: Iterable[float]) -> float:
    return sum(costs) / 1e6
