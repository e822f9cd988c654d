"""Plans a request again, and carries the plan out.

Law: as the proxy does (proxy/exchange/compact.py), without a clock and without a model. What the caller says
about the summary is used; else a digest stands in, as in `trimtab compact`.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace

from proxy.compaction.compactor import Compacted, Compactor, Planned, RefusedError, describe_refused, help_cache
from proxy.compaction.pool import Compactors
from proxy.lru import BytesLRU
from proxy.wire.codec import Request, Unsent
from proxy.wire.content.cache_help import NO_HELP, CacheHelp
from proxy.wire.dialects import guess_dialect, name_codec
from rules.pipeline.plan import Plan
from rules.pipeline.transcript_state import NO_COLD
from rules.policy import Policy
from rules.results.pairing import find_unpaired
from rules.summary.request import Summary, make_digest
from rules.window.state import ColdCut

NOTHING_UNSENT = Unsent()
MAX_DIGESTS_BYTES = 16 * 1024 * 1024
"""Chosen: the digests of some thousand sessions."""
_DIGESTS: BytesLRU[Hashable, Summary] = BytesLRU(MAX_DIGESTS_BYTES, lambda _, digest: 2 * len(digest.text))


@dataclass(frozen=True, slots=True)
class Way:
    """How a request is compacted.

    unsent: what is taken out before the request is planned.
    cold: the cuts at a cold cache that are known, by prefix.
    mode: enforce, observe or off.
    refuses_unpaired: a request whose calls and results are not paired is refused.
    """

    compactor: Compactor
    policy: Policy
    unsent: Unsent = NOTHING_UNSENT
    cold: Mapping[bytes, ColdCut] = field(default_factory=lambda: NO_COLD)
    cache: CacheHelp = NO_HELP
    mode: str = "enforce"
    refuses_unpaired: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """The plan to carry out, and the text of its cut; None for a digest that is made here."""

    plan: Plan
    summary: Summary | None = None


@dataclass(frozen=True, slots=True)
class Carried:
    """A request that was planned again.

    planned: with the plan that was carried out. original_plan: before cuts were taken back.
    text: what was chosen for its cut.
    is_refused: trimtab refuses it.
    """

    way: Way
    planned: Planned
    original_plan: Plan
    compacted: Compacted
    text: Text
    is_refused: bool = False

    @property
    def request(self) -> Request:
        """The request without what must not be sent."""
        return self.planned.request

    @property
    def body(self) -> bytes | None:
        """What goes out; None for the client's own bytes."""
        return self.compacted.body if self.way.mode == "enforce" and not self.is_refused else None

    @property
    def outcome(self) -> str:
        """The value of the metrics' label, as far as compaction decides it."""
        if self.is_refused:
            return "refused"
        if self.way.mode != "enforce":
            return self.way.mode
        return "compacted" if self.compacted.decisions else "unchanged"


ChooseText = Callable[[Plan], Text]


def read(compactors: Compactors, body: bytes, dialect: str | None = None) -> Request:
    """Read a body. What it has in common with an earlier one is not read again. Raises UndecodableError."""
    codec = name_codec(dialect or guess_dialect(body))
    beginnings = compactors.find_beginnings("")
    return codec.read(body, beginnings.find(codec.name, body))


def remember(compactors: Compactors, request: Request) -> None:
    """Keep a body for the next request of its session, which will begin with it."""
    beginning = request.beginning
    if beginning is not None and beginning.decoded:
        beginnings = compactors.find_beginnings("")
        beginnings.keep(request.codec.name, beginning, beginnings.find(request.codec.name, request.body))


def carry_out(compactors: Compactors, request: Request, way: Way, choose: ChooseText = Text) -> Carried:
    """Compact a request. Raises UndecodableError."""
    compactor, is_enforced = way.compactor, way.mode == "enforce"
    request = compactor.clean(replace(request, cache=way.cache), way.unsent, compactors.find_beginnings("").find)
    planned = compactor.plan(request, way.policy, cold=way.cold)
    plan, original = planned.plan, planned.original
    if way.refuses_unpaired and not original.continues and find_unpaired(original.messages) is not None:
        refused = replace(compactor.leave_alone(planned), sent_tokens=0)
        return Carried(way, planned, plan, refused, Text(plan), is_refused=is_enforced)
    text = choose(plan)
    planned = replace(planned, plan=text.plan)
    try:
        compacted = compactor.apply(planned, text.summary or _recall_digest(text.plan, way))
    except RefusedError as error:
        return Carried(way, planned, plan, describe_refused(request, error), text, is_refused=is_enforced)
    return Carried(way, planned, plan, help_cache(request, compacted) if is_enforced else compacted, text)


def _recall_digest(plan: Plan, way: Way) -> Summary | None:
    """The digest of a cut, which is written once, because each later request of the session needs it again."""
    wanted, count = plan.request, way.compactor.count
    if wanted is None:
        return None
    covered = (wanted.key, wanted.base, wanted.at, len(wanted.earlier), len(wanted.span), wanted.said_elsewhere)
    key = (count, way.policy, covered, wanted.max_tokens, wanted.kept, wanted.base_kept)
    digest = _DIGESTS.get(key)
    if digest is None:
        digest = _DIGESTS[key] = Summary(make_digest(wanted, count=count), by_model=False)
    return digest
