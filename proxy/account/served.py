"""A request that is over, as far as recordings and the dashboard's text are written from it.

Law: references only, so that it costs the next request nothing. Whatever takes time is done in a thread.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.account.outcome import Outcome
from proxy.account.recordings.format import Circumstances
from proxy.config.schema import Config
from proxy.http.headers import Headers
from proxy.telemetry.ledger import UsedSummary
from proxy.wire.codec import Request
from rules.conversation import Outcome as Applied
from rules.pipeline.plan import Plan
from rules.summary.request import Summary


@dataclass(frozen=True, slots=True)
class CarriedOut:
    """A plan that was carried out.

    applied: the transcript that was forwarded, and the decisions. ratio: the model's own tokens for one of trimtab's.
    text: the text for the cut part; None if there is none. used: the stored summary in what was sent; None for none.
    """

    plan: Plan
    applied: Applied
    ratio: float
    text: Summary | None = field(repr=False)
    used: UsedSummary | None


@dataclass(frozen=True, slots=True)
class Served:
    """One request.

    find_shown: finds the credentials that it has shown. headers: the client's, without hop-by-hop ones.
    dialect: the name of its codec; empty if none claims it. request: None if it was not decoded.
    body: what was sent; None for the client's own bytes. added_headers: because of changes to the body.
    was_sent: something of it was sent to the upstream.
    carried_out: None if no plan was. describe: tells what the plan depended on; None if the request was not planned.
    """

    outcome: Outcome
    config: Config = field(repr=False)
    find_shown: Callable[[], frozenset[str]] = field(repr=False)
    headers: Headers = field(repr=False)
    dialect: str
    request: Request | None = field(repr=False)
    body: tuple[bytes, ...] | None = field(repr=False)
    added_headers: Headers
    was_sent: bool
    carried_out: CarriedOut | None
    describe: Callable[[], Circumstances] | None
