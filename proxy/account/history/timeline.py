"""Sums of each minute of the last day.

Law: bounded, and independent of the events: they stay when events are dropped or erased.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from proxy.account.history.event import Event

STEP_SECONDS = 60
"""Chosen: fine enough to see one request of an agent."""
KEPT_STEPS = 24 * 60
"""Source: the promise of a day."""
MAX_NAMES = 8
"""Models, and clients, that one minute tells apart. Chosen: bounds the memory to some 8 MB; the rest is `other`."""
OTHER = "other"


@dataclass(slots=True)
class Share:
    """Sums of all requests, or of those of one model or client.

    priced: requests and summaries whose price is known. cost, without_cost: theirs, in nanodollars. Without trimtab,
        there would be no summary, so it adds to `cost` alone.
    """

    requests: int = 0
    original_tokens: int = 0
    sent_tokens: int = 0
    priced: int = 0
    cost: int = 0
    without_cost: int = 0


@dataclass(slots=True)
class Bucket(Share):
    """The sums of one step."""

    cached_tokens: int = 0
    fail_opens: int = 0
    models: dict[str, Share] = field(default_factory=dict)
    clients: dict[str, Share] = field(default_factory=dict)

    def find_shares(self, label: str, client: str) -> Iterator[Share]:
        """What a request or a summary adds to: the whole, its model, and its client if that has a name."""
        yield self
        yield _find(self.models, label)
        if client:
            yield _find(self.clients, client)


class Timeline:
    """The buckets of this process by the number of their step since 1970, oldest first."""

    def __init__(self) -> None:
        self.buckets: dict[int, Bucket] = {}

    def add(self, event: Event) -> None:
        """Count a request in the minute in which it ended."""
        bucket = self._open(event.at)
        bucket.cached_tokens += event.cached_tokens or 0
        bucket.fail_opens += event.outcome == "failed_open"
        is_priced = event.cost is not None and event.without_cost is not None
        for share in bucket.find_shares(event.label, event.client):
            share.requests += 1
            share.original_tokens += event.original_tokens
            share.sent_tokens += event.sent_tokens
            if is_priced:
                share.priced += 1
                share.cost += event.cost or 0
                share.without_cost += event.without_cost or 0

    def add_summary(self, at: float, cost: int, label: str, client: str) -> None:
        """Count what a summary cost, in nanodollars, for the model and the client that it was written for."""
        for share in self._open(at).find_shares(label, client):
            share.priced += 1
            share.cost += cost

    def _open(self, at: float) -> Bucket:
        step = int(at // STEP_SECONDS)
        bucket = self.buckets.get(step)
        if bucket is None:
            bucket = self.buckets[step] = Bucket()
            while len(self.buckets) > KEPT_STEPS:
                del self.buckets[min(self.buckets)]
        return bucket


def _find(shares: dict[str, Share], name: str) -> Share:
    if name not in shares and len(shares) >= MAX_NAMES:
        name = OTHER
    return shares.setdefault(name, Share())
