"""Compacts one request from beginning to end, at once: clean, drop tools, plan, choose a text, apply, help the cache.

Law: as the proxy does (proxy/exchange/compact.py), without a clock and without a model. The caller chooses the
summary; else a digest stands in.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace

import msgspec
from msgspec import structs

from trimtab.proxy.compaction.compactor import (
    Compacted,
    Compactor,
    FindMatch,
    Planned,
    RefusedError,
    describe_refused,
    help_cache,
)
from trimtab.proxy.lru import BytesLRU
from trimtab.proxy.recall import add_answers, declare, name_outcome
from trimtab.proxy.wire.cache_help import NO_HELP, CacheHelp
from trimtab.proxy.wire.codec import Request
from trimtab.proxy.wire.transcript.body import Unsent
from trimtab.rules.conversation import Conversation
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.pipeline.story import Story
from trimtab.rules.pipeline.transcript_state import NO_COLD
from trimtab.rules.policy import Policy
from trimtab.rules.results.pairing import find_unpaired
from trimtab.rules.summary.request import Summary, make_digest
from trimtab.rules.tokens.sections import Sections
from trimtab.rules.window.state import ColdCut

NOTHING_UNSENT = Unsent()
MAX_DIGESTS_BYTES = 16 * 1024 * 1024
"""Chosen: the digests of some thousand sessions."""
_DIGESTS: BytesLRU[Hashable, Summary] = BytesLRU(MAX_DIGESTS_BYTES, lambda _, digest: 2 * len(digest.text))


class Variant(msgspec.Struct, frozen=True):
    """How a request is compacted.

    unsent: what is taken out before the request is planned.
    cold: the cuts at a cold cache that are known, by prefix.
    mode: enforce, observe or off.
    refuses_unpaired: a request whose calls and results are not paired is refused.
    declares: it gets the tool of recall; `declares_alone`: also without other tools.
    found: what that has found, each with the message behind which it stands.
    """

    compactor: Compactor
    policy: Policy
    unsent: Unsent = NOTHING_UNSENT
    cold: Mapping[bytes, ColdCut] = msgspec.field(default_factory=lambda: NO_COLD)
    cache: CacheHelp = NO_HELP
    mode: str = "enforce"
    refuses_unpaired: bool = False
    declares: bool = False
    declares_alone: bool = False
    found: tuple[tuple[int, str], ...] = ()


class Text(msgspec.Struct, frozen=True):
    """The plan to carry out, and the text of its cut; None for a digest that is made here."""

    plan: Plan
    summary: Summary | None = None


class Compaction(msgspec.Struct, frozen=True):
    """A request that was compacted, in any mode.

    planned: with the plan that was carried out. original_plan: before cuts were taken back.
    text: what was chosen for the cut.
    refusal: the policy cannot make it fit. is_unpaired: its calls and results are not paired, and must be.
    """

    variant: Variant
    planned: Planned
    original_plan: Plan
    compacted: Compacted
    text: Text
    refusal: RefusedError | None = None
    is_unpaired: bool = False

    @property
    def request(self) -> Request:
        return self.planned.request

    @property
    def is_enforced(self) -> bool:
        return self.variant.mode == "enforce"

    @property
    def is_refused(self) -> bool:
        return self.is_enforced and (self.is_unpaired or self.refusal is not None)

    @property
    def body(self) -> bytes | None:
        """What goes out; None for the client's own bytes."""
        return self.compacted.body if self.is_enforced and not self.is_refused else None

    @property
    def sent(self) -> Conversation:
        return self.compacted.forwarded if self.is_enforced else self.planned.original

    @property
    def sent_sections(self) -> Sections:
        return self.compacted.sent_sections if self.is_enforced else self.compacted.original_sections

    @property
    def outcome(self) -> str:
        """The value of the metrics' label, as far as compaction decides it."""
        if self.is_refused or not self.is_enforced:
            return "refused" if self.is_refused else self.variant.mode
        return name_outcome(self.compacted.decisions)

    def tell(self) -> Story:
        return self.planned.tell(self.compacted)


def compact(
    request: Request,
    variant: Variant,
    choose: Callable[[Plan], Text] = Text,
    find_match: FindMatch = lambda _, __: None,
) -> Compaction:
    """Compact a request. Raises UndecodableError.

    choose: takes cuts back, and gives the last one its text. find_match: as for `Compactor.clean`.
    """
    compactor, is_enforced = variant.compactor, variant.mode == "enforce"
    request = replace(request, cache=variant.cache)
    if variant.declares:
        request = declare(request, compactor.counting, find_match, without_tools=variant.declares_alone)
    request = compactor.clean(request, variant.unsent, find_match)
    planned = compactor.plan(request, variant.policy, cold=variant.cold)
    if variant.found:
        planned = structs.replace(planned, plan=add_answers(planned.plan, variant.found[::-1], compactor.count))
    plan, original = planned.plan, planned.original
    if variant.refuses_unpaired and not original.continues and find_unpaired(original.messages) is not None:
        refused = structs.replace(compactor.leave_alone(planned), sent_tokens=0)
        return Compaction(variant, planned, plan, refused, Text(plan), is_unpaired=True)
    text = choose(plan)
    planned = structs.replace(planned, plan=text.plan)
    try:
        compacted = compactor.apply(planned, text.summary or _recall_digest(text.plan, variant))
    except RefusedError as error:
        return Compaction(variant, planned, plan, describe_refused(request, error), text, error)
    return Compaction(variant, planned, plan, help_cache(request, compacted) if is_enforced else compacted, text)


def _recall_digest(plan: Plan, variant: Variant) -> Summary | None:
    """The digest of a cut, which is written once, because each later request of the session needs it again."""
    wanted, count = plan.request, variant.compactor.count
    if wanted is None:
        return None
    covered = (wanted.key, wanted.base, wanted.at, len(wanted.earlier), len(wanted.span), wanted.said_elsewhere)
    key = (count, variant.policy, covered, wanted.max_tokens, wanted.kept, wanted.base_kept)
    digest = _DIGESTS.get(key)
    if digest is None:
        digest = _DIGESTS[key] = Summary(make_digest(wanted, count=count), by_model=False)
    return digest
