"""What is sent for a request, and what is known about it.

Law: values, and three cases. What only some of them have is None in the others, as far as all are asked for it.
"""

from dataclasses import dataclass
from typing import ClassVar

from proxy.compaction.compactor import Compacted
from proxy.exchange.attempts.call import Call
from proxy.exchange.attempts.choose_summary import Chosen
from proxy.http.errors import ProxyError
from proxy.state.models.lessons import Lesson
from proxy.telemetry.ledger import UsedSummary
from proxy.wire.content.cache_help import Addition


@dataclass(frozen=True, slots=True)
class Passed:
    """A request that goes out as the client wrote it. Nothing is known about its transcript.

    outcome: as in each case, the value of the metrics' label. seconds: name and duration of each phase, in order.
    """

    outcome: str
    seconds: tuple[tuple[str, float], ...] = ()
    call: ClassVar[None] = None
    compacted: ClassVar[None] = None
    body: ClassVar[None] = None
    refusal: ClassVar[None] = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that cannot be compacted as its policy wants, or for which no thread was free.

    refusal: our own error; None if the request goes out as the client wrote it.
    call: None if no thread was free. compacted: the figures of a request that cannot fit; else None.
    """

    outcome: str
    refusal: ProxyError | None
    call: Call | None = None
    compacted: Compacted | None = None
    seconds: tuple[tuple[str, float], ...] = ()
    body: ClassVar[None] = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request whose plan was carried out.

    body: what goes out, in pieces; None for the client's own bytes.
    summary: the stored summary in what is sent; None if there is none.
    lesson: what to learn if this second attempt succeeds.
    is_test: the request goes out as if nothing had been learned.
    plain: the same attempt without what was added for the provider's prompt cache; None if nothing was added.
    dropped: what was added to an earlier form of this attempt, and refused.
    is_own: it is sent as the client wrote it, because what trimtab had changed was refused.
    """

    outcome: str
    call: Call
    chosen: Chosen
    compacted: Compacted
    body: tuple[bytes, ...] | None = None
    summary: UsedSummary | None = None
    lesson: Lesson | None = None
    is_test: bool = False
    seconds: tuple[tuple[str, float], ...] = ()
    plain: "Prepared | None" = None
    dropped: frozenset[Addition] = frozenset()
    is_own: bool = False
    refusal: ClassVar[None] = None


Attempt = Passed | Refused | Prepared
