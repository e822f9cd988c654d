"""Sums over requests, and where they belong: a day, a model and a client.

Law: all figures are whole numbers that only grow, so sums of sums are exact in any order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Self

from proxy.state.catalogue.costs import Bill, Cost, Tokens

KEPT_DAYS = 366
"""Sums of older days are deleted. Source: the promise to keep them for a year."""
MOST = 2**63
"""No figure reaches it. Source: the largest number in SQLite and in Redis."""
NO_CLIENT = "-"
"""The client of requests whose key has no name."""


class Place(NamedTuple):
    """Where sums belong. day: in UTC, as `2026-01-31`. model: the metrics' label. client: the name of its key."""

    day: str
    model: str
    client: str

    @classmethod
    def read(cls, *names: Any) -> Self:
        """The place with these names. Raises ValueError if they are none."""
        if len(names) != len(cls._fields) or not all(isinstance(name, str) for name in names):
            message = "a name in it is not one of trimtab's"
            raise ValueError(message)
        return cls(*names)


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over requests. `_nanodollars` is money, `_tokens` the model's own tokens.

    requests: those that were answered. unpriced_requests: of which no price in dollars is known; their money is missing
        here. estimated_requests: of which the upstream did not report all tokens.
    original_tokens: the prompts as the clients sent them. sent_tokens: as forwarded. cached_tokens and written_tokens
        are parts of these.
    summaries: calls for summaries that were answered. unpriced_summaries: those of which no price is known.
    without_nanodollars: what the requests would have cost without trimtab.
    """

    requests: int = 0
    unpriced_requests: int = 0
    estimated_requests: int = 0
    original_tokens: int = 0
    sent_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0
    completion_tokens: int = 0
    summaries: int = 0
    unpriced_summaries: int = 0
    summary_tokens: int = 0
    fresh_nanodollars: int = 0
    cached_nanodollars: int = 0
    written_nanodollars: int = 0
    completion_nanodollars: int = 0
    summary_nanodollars: int = 0
    without_nanodollars: int = 0

    @classmethod
    def read(cls, figures: Mapping[str, Any]) -> Self:
        """The sums with these figures. Raises ValueError if one of them cannot be a sum of trimtab's."""
        if not all(name in NAMES and type(amount) is int and 0 <= amount < MOST for name, amount in figures.items()):
            message = "a figure in it is not one of trimtab's"
            raise ValueError(message)
        return cls(**figures)

    @classmethod
    def of_bill(cls, bill: Bill) -> Self:
        """The sums of one request."""
        cost, without = bill.cost or Cost(), bill.without_cost or Cost()
        return cls(
            requests=1,
            unpriced_requests=int(bill.cost is None),
            estimated_requests=int(bill.is_estimated),
            original_tokens=bill.without.prompt,
            sent_tokens=bill.tokens.prompt,
            cached_tokens=bill.tokens.cached,
            written_tokens=bill.tokens.written,
            completion_tokens=bill.tokens.completion,
            fresh_nanodollars=cost.fresh,
            cached_nanodollars=cost.cached,
            written_nanodollars=cost.written,
            completion_nanodollars=cost.completion,
            without_nanodollars=without.total,
        )

    @classmethod
    def of_summary(cls, tokens: Tokens, cost: Cost | None) -> Self:
        """The sums of one call for a summary."""
        return cls(
            summaries=1,
            unpriced_summaries=int(cost is None),
            summary_tokens=tokens.prompt + tokens.completion,
            summary_nanodollars=0 if cost is None else cost.total,
        )

    @property
    def cost_nanodollars(self) -> int:
        """What the requests have cost, summaries included."""
        prompts = self.fresh_nanodollars + self.cached_nanodollars + self.written_nanodollars
        return prompts + self.completion_nanodollars + self.summary_nanodollars

    @property
    def is_unpriced(self) -> bool:
        """Whether there were requests, or only summaries, and no price of any is known: their money is not 0."""
        if self.requests:
            return self.unpriced_requests == self.requests
        return 0 < self.summaries == self.unpriced_summaries

    @property
    def saved_nanodollars(self) -> int:
        """What trimtab has saved, net of all that it has cost; negative for a loss."""
        return self.without_nanodollars - self.cost_nanodollars

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(*[getattr(self, name) + getattr(other, name) for name in NAMES])

    def to_dict(self) -> dict[str, int]:
        """The figures by name."""
        return {name: getattr(self, name) for name in NAMES}


NAMES = tuple(each.name for each in fields(Sums))
"""The names of all figures, in order."""

Rows = Mapping[Place, Sums]


def name_day(seconds: float) -> str:
    """The day of a time in seconds since 1970, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def go_back(day: str, days: int) -> str:
    """The day so many days before another one."""
    return (datetime.fromisoformat(day).date() - timedelta(days)).isoformat()
