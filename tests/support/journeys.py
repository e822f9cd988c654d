"""Values of one request, for the tests of its stages."""

from proxy.exchange.arrival import Arrival
from proxy.exchange.record import Target
from rules.conversation import Decision

ARRIVAL = Arrival(
    endpoint="chat",
    method="POST",
    path="/v1/chat/completions",
    target="/v1/chat/completions",
    headers=(),
    end_to_end=(),
    secrets=frozenset(),
    request_id="id",
    started_at=100.0,
)
TARGET = Target("local", "m", "m", match="m*", mode="enforce")
DECISIONS = (
    Decision("truncate", "2 tool results over 4000 tokens", 900, 400, 2, 3),
    Decision("pairing", "1 calls answered", 400, 408, 1, 7),
)
