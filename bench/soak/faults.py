"""The faults of the soak's upstream, and what the client must see of each."""

import random
from dataclasses import dataclass

ID_HEADER = "X-Soak-Id"
LEAVE_HEADER = "X-Soak-Leave"
"""The client will not wait for the end of the answer: it leaves `before` its first byte, or in `mid` of it."""
LEFT, BROKEN = "left", "broken"
NARROW_BYTES = 28_000
"""The true window of the models `narrow-*`, in bytes: longer requests are refused."""


@dataclass(frozen=True, slots=True)
class Fault:
    """About `share` of a hundred requests get it; the outcome at the client is one of `seen`."""

    share: float
    seen: tuple[str, ...]


FAULTS = {
    "answer": Fault(78.0, ("answered 200",)),
    "drip": Fault(2.0, ("answered 200",)),
    "odd": Fault(2.0, ("answered 200",)),
    "reset": Fault(2.0, ("refused 502",)),
    "early reset": Fault(2.0, ("refused 502",)),
    "garbage": Fault(2.0, ("refused 502",)),
    "silent": Fault(0.7, ("refused 504",)),
    "stall": Fault(0.7, (BROKEN,)),
    "cut": Fault(2.0, (BROKEN,)),
    "bad chunks": Fault(1.0, (BROKEN, "refused 502")),
    "wrong length": Fault(1.0, (BROKEN,)),
    "rate limit": Fault(2.6, ("answered 429",)),
    "server error": Fault(2.0, ("answered 500",)),
    "overloaded": Fault(1.0, ("answered 503",)),
    "gateway": Fault(1.0, ("answered 502",)),
}
TOO_LONG = "too long"
SEEN = {
    **{name: fault.seen for name, fault in FAULTS.items()},
    TOO_LONG: ("answered 400",),
    "hold": (LEFT,),
    "socket": ("answered 101",),
}
"""The outcomes that are right, by the last thing that was done to a request."""


def draw(rng: random.Random) -> str:
    """Draw a fault by its share."""
    return rng.choices([*FAULTS], [fault.share for fault in FAULTS.values()])[0]
