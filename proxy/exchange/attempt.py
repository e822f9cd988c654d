"""The values between the stages of compaction: the call, what was chosen for it, and what is sent.

Law: an attempt is one of three cases. What only some of them have is None in the others, as far as all are asked for
it. The key of a session for its provider's prompt cache reveals nothing of session or client, and differs between
clients. The values are Structs, because a frozen dataclass costs a call for each field.
"""

import hmac
from collections.abc import Collection, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import ClassVar

import msgspec
from msgspec import structs
from yarl import URL

from trimtab.proxy.compaction.compactor import Compacted, Compactor, Planned
from trimtab.proxy.compaction.offload import Lane
from trimtab.proxy.exchange.arrival import Arrival
from trimtab.proxy.exchange.route import Route, Target
from trimtab.proxy.exchange.trace import Trace
from trimtab.proxy.http.errors import ProxyError
from trimtab.proxy.http.relay import Reply
from trimtab.proxy.http.request_body import ReceivedBody
from trimtab.proxy.models.lessons import Lesson
from trimtab.proxy.models.model_policy import ModelView
from trimtab.proxy.summaries.summariser import Summariser
from trimtab.proxy.telemetry.ledger import Ledger, UsedSummary
from trimtab.proxy.wire.cache_help import Addition
from trimtab.proxy.wire.codec import Codec, Request
from trimtab.rules.pipeline.appended import RECALL
from trimtab.rules.prefix import hash_head
from trimtab.rules.summary.request import Summary, SummaryRequest
from trimtab.rules.window.state import ColdCut

CHANGED = frozenset({"compacted", RECALL})
"""The outcomes of requests that cost another number of tokens than the client's own."""
MAX_ATTEMPTS = 2  # chosen: a second refusal goes to the client, so that no request loops
KEY_CHARS = 32
"""Source: OpenAI and OpenRouter refuse more than 64 and 256. Chosen: 128 bits, so sessions never share a key."""
_PURPOSE = b"trimtab prompt_cache_key\0"


class Call(msgspec.Struct, frozen=True):
    """A request to be compacted, with everything that this needs.

    request: without what must not be sent.
    lane: the queue in which the request's work waits for a thread.
    session: its name, for people; empty until the request is planned.
    cold: the cuts at a cold cache that are known, by prefix; entries of other sessions have no effect.
    tells_compaction: whether the client says that it asks for a summary of its own; None if it says nothing of that.
    words: what the summary of a cut that was asked for now is to heed.
    keeps: the hashes of prefixes whose last messages the client wants kept; those of other sessions have no effect.
    """

    arrival: Arrival
    route: Route
    request: Request
    compactor: Compactor
    view: ModelView
    lane: Lane
    ledger: Ledger = msgspec.field(default_factory=Ledger)
    attempt: int = 1
    cold: Mapping[bytes, ColdCut] = msgspec.field(default_factory=dict)
    idle_seconds: float | None = None
    session: str = ""
    tells_compaction: bool | None = None
    words: str = ""
    keeps: Collection[bytes] = ()


class Chosen(msgspec.Struct, frozen=True):
    """The plan to carry out, and its summary.

    text: None for the digest, or if the plan needs no summary.
    later: a summary for a later request, to be written once this request was sent; None for none.
    instead: why `text` is a digest although a model's summary was wanted; else empty.
    """

    planned: Planned
    text: Summary | None = None
    later: SummaryRequest | None = None
    summariser: Summariser | None = None
    instead: str = ""


class Passed(msgspec.Struct, frozen=True):
    """A request sent as the client wrote it. seconds: of each phase, in order. fault: what is wrong in its body."""

    outcome: str
    seconds: tuple[tuple[str, float], ...] = ()
    fault: str = ""
    call: ClassVar[None] = None
    compacted: ClassVar[None] = None
    body: ClassVar[None] = None
    refusal: ClassVar[None] = None


class Refused(msgspec.Struct, frozen=True):
    """A request that cannot be compacted as its policy wants, or for which no thread was free: it has no call then.

    refusal: our own error; None if the request goes out as it is. compacted: of a request that cannot fit; else None.
    """

    outcome: str
    refusal: ProxyError | None
    call: Call | None = None
    compacted: Compacted | None = None
    seconds: tuple[tuple[str, float], ...] = ()
    body: ClassVar[None] = None


class Prepared(msgspec.Struct, frozen=True):
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
NO_ATTEMPT = Passed("aborted")
"""Of a request that was not planned yet."""


class Ready(msgspec.Struct, frozen=True):
    """A request that is about to be sent.

    received: its body. request: that body, split; None if it was not decoded.
    target: of the route, or of its session if that is only observed.
    attempt: the first one. sent_at: the time of the first attempt on the monotonic clock.
    """

    arrival: Arrival
    reply: Reply
    codec: Codec
    received: ReceivedBody
    request: Request | None
    route: Route
    url: URL
    target: Target
    trace: Trace | None
    attempt: Attempt
    sent_at: float


def add_key(call: Call, planned: Planned) -> Request:
    """The request with the key of its session, the same over cuts, if it takes one and its beginning is known."""
    request, transcript = call.request, planned.original
    if "cache_key" not in request.cache.adds or transcript.continues or not transcript.messages:
        return request
    head = hash_head(transcript.messages)
    key = hmac.new(call.arrival.tenant.secret, _PURPOSE + head, sha256).hexdigest()[:KEY_CHARS]
    return replace(request, cache=structs.replace(request.cache, key=key))
