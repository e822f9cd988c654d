"""Plans a request again, and carries the plan out.

Law: as the proxy does (proxy/exchange/attempts/compact.py), without a clock and without a model. What the caller says
about the summary is used; else a digest stands in, as in `trimtab compact`.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace

from proxy.compaction.compactor import Compacted, Compactor, Planned, describe_refused
from proxy.compaction.pool import Compactors
from proxy.compaction.refusal import RefusedError, add_cleaned, scale_cleaned
from proxy.lru import BytesLRU
from proxy.wire.codec import Request, Unsent
from proxy.wire.content.cache_help import NO_HELP, CacheHelp
from proxy.wire.dialects import guess_dialect, name_codec
from rules.conversation import Decision
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

    unsent, drop_tools: what is taken out before the request is planned.
    cold: the cuts at a cold cache that are known, by prefix.
    mode: enforce, observe or off.
    refuses_unpaired: a request whose calls and results are not paired is refused.
    """

    compactor: Compactor
    policy: Policy
    unsent: Unsent = NOTHING_UNSENT
    drop_tools: tuple[str, ...] = ()
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

    request: without what must not be sent.
    planned: with the plan that was carried out. original_plan: before cuts were taken back.
    text: what was chosen for its cut.
    is_refused: trimtab refuses it. body: what goes out; None for the client's own bytes.
    """

    way: Way
    request: Request
    planned: Planned
    original_plan: Plan
    compacted: Compacted
    text: Text
    is_refused: bool = False
    body: tuple[bytes, ...] | None = None

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
    request, cleaned = _clean(compactors, replace(request, cache=way.cache), way)
    compactor = way.compactor
    planned = compactor.plan(request, way.policy, cold=way.cold)
    plan = planned.plan
    scaled = scale_cleaned(cleaned, planned.original.tokens, way.policy.token_ratio)
    conversation = planned.original
    if way.refuses_unpaired and not conversation.continues and find_unpaired(conversation.messages) is not None:
        compacted = compactor.leave_alone(planned).add_cleaned(scaled)
        return Carried(
            way, request, planned, plan, replace(compacted, sent_tokens=0), Text(plan), is_refused=way.mode == "enforce"
        )
    text = choose(plan)
    planned = replace(planned, plan=text.plan)
    try:
        compacted = _apply(compactor, planned, text, way).add_cleaned(scaled)
    except RefusedError as error:
        compacted = describe_refused(request, add_cleaned(error, scaled))
        return Carried(way, request, planned, plan, compacted, text, is_refused=way.mode == "enforce")
    if way.mode != "enforce":
        return Carried(way, request, planned, plan, compacted, text)
    body, compacted = _help_cache(request, compacted)
    return Carried(way, request, planned, plan, compacted, text, body=body)


def _apply(compactor: Compactor, planned: Planned, text: Text, way: Way) -> Compacted:
    if planned.plan.is_empty and not planned.plan.was_otherwise and way.mode == "enforce":
        return compactor.leave_alone(planned)
    return compactor.apply(planned, text.summary or _recall_digest(planned.plan, way))


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


def _clean(compactors: Compactors, request: Request, way: Way) -> tuple[Request, tuple[Decision, ...]]:
    """The request without what must not be sent, and the decisions about that, in trimtab's own tokens."""
    codec, beginnings = request.codec, compactors.find_beginnings("")
    body, decisions = codec.clean(request, way.unsent)
    if decisions:
        request = replace(codec.read(body, beginnings.find(codec.name, body)), model=request.model, cache=request.cache)
    request, dropped = way.compactor.drop_tools(request, way.drop_tools, lambda left: beginnings.find(codec.name, left))
    return request, (*decisions, *dropped)


def _help_cache(request: Request, compacted: Compacted) -> tuple[tuple[bytes, ...], Compacted]:
    """The body with what its provider takes for its prompt cache, and the decisions about that."""
    if not request.cache.adds:
        return compacted.pieces, compacted
    helped = request.codec.help_cache(request, compacted.forwarded, compacted.pieces)
    tokens = compacted.sent_tokens
    added = tuple(Decision(name, "", tokens, tokens, 0, 0) for name in helped.added)
    return helped.pieces, replace(compacted, decisions=(*compacted.decisions, *added))
