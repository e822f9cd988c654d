"""Sums of each minute of the last day.

Law: bounded, and independent of the events: they stay when events are dropped or erased.
"""

from dataclasses import dataclass, field

from proxy.state.history.event import Event

STEP_SECONDS = 60
"""Chosen: fine enough to see one request of an agent."""
KEPT_STEPS = 24 * 60
"""Source: the promise of a day."""
MAX_NAMES = 8
"""Models, and clients, that one minute tells apart. Chosen: bounds the memory to some 5 MB; the rest is `other`."""
OTHER = "other"


@dataclass(slots=True)
class Share:
    """Sums of one model or client."""

    requests: int = 0
    original_tokens: int = 0
    sent_tokens: int = 0


@dataclass(slots=True)
class Bucket:
    """The sums of one step. `saved`, `cost`: in nanodollars, summaries included, where prices are known."""

    requests: int = 0
    original_tokens: int = 0
    sent_tokens: int = 0
    cached_tokens: int = 0
    saved: int = 0
    cost: int = 0
    fail_opens: int = 0
    models: dict[str, Share] = field(default_factory=dict)
    clients: dict[str, Share] = field(default_factory=dict)


class Timeline:
    """The buckets of this process by the number of their step since 1970, oldest first."""

    def __init__(self) -> None:
        self.buckets: dict[int, Bucket] = {}

    def add(self, event: Event) -> None:
        """Count a request in the minute in which it ended."""
        bucket = self._open(event.at)
        bucket.requests += 1
        bucket.original_tokens += event.original_tokens
        bucket.sent_tokens += event.sent_tokens
        bucket.cached_tokens += event.cached_tokens or 0
        bucket.fail_opens += event.outcome == "failed_open"
        if event.cost is not None and event.without_cost is not None:
            bucket.cost += event.cost
            bucket.saved += event.without_cost - event.cost
        _share(bucket.models, event.label, event)
        if event.client:
            _share(bucket.clients, event.client, event)

    def add_summary(self, at: float, cost: int) -> None:
        """Count what a summary cost, in nanodollars."""
        bucket = self._open(at)
        bucket.cost += cost
        bucket.saved -= cost

    def _open(self, at: float) -> Bucket:
        step = int(at // STEP_SECONDS)
        bucket = self.buckets.get(step)
        if bucket is None:
            bucket = self.buckets[step] = Bucket()
            while len(self.buckets) > KEPT_STEPS:
                del self.buckets[min(self.buckets)]
        return bucket


def _share(shares: dict[str, Share], name: str, event: Event) -> None:
    if name not in shares and len(shares) >= MAX_NAMES:
        name = OTHER
    share = shares.setdefault(name, Share())
    share.requests += 1
    share.original_tokens += event.original_tokens
    share.sent_tokens += event.sent_tokens
