"""The variants in which requests are compacted: as it was recorded, or as a configuration says.

Law: what was learned of a model, its window and its token ratio, stays, unless the configuration sets a window. No
model is asked: the text that was recorded for a cut is used for the same cut; else a digest stands in, and then it
stays. As in the proxy, a cut whose summary was not asked for before is put off if the request fits without it; the
summary is taken to be there at the next request.
"""

from collections.abc import Callable
from dataclasses import replace

import msgspec
from msgspec import structs

from trimtab.proxy.account.recordings.format import Circumstances, RecordedCall, Recording
from trimtab.proxy.catalogue.prompt_caches import find_lifetime_seconds
from trimtab.proxy.cli.records.sums import Pricing
from trimtab.proxy.compaction.compactor import Compactor
from trimtab.proxy.compaction.engine import Compaction, Text, Variant, compact
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.policy import PolicyConfig
from trimtab.proxy.config.schema import Config, UpstreamConfig
from trimtab.proxy.lru import BytesLRU
from trimtab.proxy.models.model_policy import ModelView, name_model
from trimtab.proxy.models.records import Facts
from trimtab.proxy.recall import RECALL_TOOL
from trimtab.proxy.telemetry.metrics import OTHER
from trimtab.proxy.wire.cache_help import FIELDS, CacheHelp, find_key
from trimtab.proxy.wire.codec import Request
from trimtab.proxy.wire.dialects import guess_dialect, name_codec
from trimtab.proxy.wire.transcript.body import Unsent
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.policy import Policy
from trimtab.rules.summary.prompts import PROMPT_TOKENS
from trimtab.rules.summary.request import Summary, SummaryRequest
from trimtab.rules.window.state import ColdCut

MAX_TEXTS_BYTES = 64 * 1024 * 1024  # Of recorded summaries that are remembered. Chosen: some ten thousand.
NOTE_BYTES_PER_TOKEN = 4
"""Of a provider's own note, at least. Source: BYTES_PER_TOKEN of encrypted reasoning in wire/responses/results.py."""


def read(compactors: Compactors, body: bytes, dialect: str | None = None) -> Request:
    """Read a body. What it has in common with an earlier one is not read again. Raises UndecodableError."""
    codec = name_codec(dialect or guess_dialect(body))
    return codec.read(body, compactors.find_kept_bodies("").find(codec.name, body))


def remember(compactors: Compactors, request: Request) -> None:
    kept_body = request.kept_body
    if kept_body is not None and kept_body.decoded:
        kept_bodies = compactors.find_kept_bodies("")
        kept_bodies.keep(request.codec.name, kept_body, kept_bodies.find(request.codec.name, request.body))


def compact_again(
    compactors: Compactors, request: Request, variant: Variant, choose: Callable[[Plan], Text] = Text
) -> Compaction:
    return compact(request, variant, choose, compactors.find_kept_bodies("").find)


class PricedVariant(msgspec.Struct, frozen=True):
    variant: Variant
    pricing: Pricing
    label: str


class Texts:
    def __init__(self) -> None:
        self._known: BytesLRU[tuple[str, str], Summary] = BytesLRU(
            MAX_TEXTS_BYTES, lambda _, text: len(text.text) * 2 + len(text.note)
        )

    def keep(self, session: str, key: str, summary: Summary) -> None:
        self._known[session, key] = summary

    def find(self, session: str, plan: Plan, compactor: Compactor) -> Summary | None:
        """The recorded summary of the very cut of a plan, if it has room there; else None."""
        wanted = plan.request
        found = None if wanted is None or not wanted.asks_model else self._known.get((session, wanted.key))
        if wanted is None or found is None:
            return None
        if found.note:  # its messages are in its dialect, and mostly encrypted
            return found if len(found.note) <= wanted.room_tokens * NOTE_BYTES_PER_TOKEN else None
        return found if compactor.count(found.text) <= wanted.max_tokens else None


class RecordedVariants(msgspec.Struct, frozen=True):
    compactors: Compactors
    texts: Texts = msgspec.field(default_factory=Texts)
    _policies: dict[Policy, Policy] = {}

    def read(self, recording: Recording) -> tuple[Request, Circumstances] | None:
        recorded, circumstances, body = recording.request, recording.circumstances, recording.received_body
        if recorded is None or recorded.is_count or circumstances is None or body is None:
            return None
        return replace(read(self.compactors, body, recorded.dialect), model=recorded.model), circumstances

    def compact(
        self, recording: Recording, request: Request, circumstances: Circumstances
    ) -> tuple[PricedVariant, Compaction]:
        chosen = self.choose(recording, circumstances, request.model)
        choose_text = self.choose_text(recording, circumstances)
        return chosen, compact_again(self.compactors, request, chosen.variant, choose_text)

    def choose(self, recording: Recording, circumstances: Circumstances, model: str) -> PricedVariant:
        settings = PolicyConfig.model_validate({"count": circumstances.vocabulary or "auto"})
        policy, facts = circumstances.policy, circumstances.facts
        adds = frozenset(name for name in FIELDS if name in circumstances.cache_adds)
        key = find_key(recording.sent_body or b"") if "cache_key" in adds else ""
        variant = Variant(
            self.compactors.choose(settings, model, reading=facts.reading, weights=facts.weights),
            self._policies.setdefault(policy, policy),  # equal policies are one object, which is faster
            Unsent(circumstances.local_items, circumstances.drop_tools, nonces=circumstances.strips_nonces),
            _read_cold(circumstances),
            CacheHelp(adds, key),
            recording.event.mode or "enforce",
            declares=any(decision.rule == RECALL_TOOL for decision in circumstances.cleaned),
            declares_alone=True,  # as it was declared
            found=circumstances.found,
        )
        pricing = Pricing(circumstances.prices, find_lifetime_seconds(circumstances.upstream_url, model))
        return PricedVariant(variant, pricing, recording.event.label)

    def choose_text(self, recording: Recording, circumstances: Circumstances) -> Callable[[Plan], Text]:
        """Takes back the cuts that were taken back, and gives the last one its recorded text."""

        def choose(plan: Plan) -> Text:
            while circumstances.put_off and len(plan.window.cuts) > circumstances.cuts:
                earlier = plan.put_off()
                if earlier is None:
                    break
                plan = earlier
            recorded = recording.summary
            if recorded is None or plan.request is None:
                return Text(plan)
            summary = Summary(recorded.text, recorded.by_model, note=recorded.note.encode())
            if summary.by_model:
                self.texts.keep(recording.event.session, plan.request.key, summary)
            return Text(plan, summary)

        return choose


def _read_cold(circumstances: Circumstances) -> dict[bytes, ColdCut]:
    return {bytes.fromhex(prefix): ColdCut(kind) for prefix, kind in circumstances.cold.items()}


class ConfiguredVariants(msgspec.Struct, frozen=True):
    compactors: Compactors
    config: Config
    _views: dict[object, tuple[ModelView, Pricing]] = {}

    def choose(self, request: Request, recording: Recording | None = None) -> PricedVariant:
        config, model = self.config, request.model
        matched, settings = config.match_for(model), config.policy_for(model)
        upstream = config.upstream_for(settings.upstream)
        circumstances = None if recording is None else recording.circumstances
        # The view of a model is made once for what is known of it: equal policies are the same object.
        learned = circumstances and (circumstances.policy, circumstances.prices, circumstances.upstream_url)
        known = self._views.get((model, learned))
        if known is None:
            known = self._views[model, learned] = self._make_view(settings, upstream, model, circumstances)
        mode = config.mode_of(settings)
        variant = Variant(
            self.compactors.choose(settings, model),
            known[0].policy,
            Unsent(settings.local_items, settings.drop_tools, nonces=upstream.strips_nonces),
            {} if circumstances is None else _read_cold(circumstances),
            mode="observe" if mode == "enforce" and settings.observe_share == 1 else mode,
            refuses_unpaired=settings.pairing == "refuse",
            declares=settings.recall == "tool" and mode == "enforce",
            declares_alone=settings.recall_without_tools,
        )
        label = (matched.match if matched else model or OTHER) if recording is None else recording.event.label
        return PricedVariant(variant, known[1], label)

    def _make_view(
        self, settings: PolicyConfig, upstream: UpstreamConfig, model: str, circumstances: Circumstances | None
    ) -> tuple[ModelView, Pricing]:
        if circumstances is None:
            view = ModelView.of_unmet(self.config, model)
            return view, Pricing(view.price_list, find_lifetime_seconds(upstream.base_url, model))
        was = circumstances.policy
        facts = Facts(was.token_ratio, was.context_window, added_tokens=was.added_tokens, has_ratio=True)
        view = ModelView.of(self.config, settings, name_model(self.config, settings, model), facts)
        if settings.context_window == "auto" and was.ceiling_tokens is not None:
            view = structs.replace(view, policy=replace(view.policy, ceiling_tokens=was.ceiling_tokens))
        names_server = "base_url" in upstream.model_fields_set or settings.upstream is not None
        if not names_server and self.config.prices_for(settings, upstream) == "auto":  # then it is as recorded
            policy = replace(view.policy, prices=was.prices)
            view = structs.replace(view, policy=policy, price_list=circumstances.prices)
            return view, Pricing(circumstances.prices, find_lifetime_seconds(circumstances.upstream_url, model))
        return view, Pricing(view.price_list, find_lifetime_seconds(upstream.base_url, model))


class ExpectedSummaries(msgspec.Struct):
    texts: Texts
    _asked: set[tuple[str, str]] = msgspec.field(default_factory=set)
    _stood_in: set[tuple[str, str]] = msgspec.field(default_factory=set)

    def choose_text(self, variant: Variant, session: str) -> Callable[[Plan], Text]:
        def choose(plan: Plan) -> Text:
            text = self._find(plan, variant, session)
            if text.summary is not None or not self._is_new(plan.request, session):
                return text
            earlier = plan.put_off()
            while earlier is not None and self._is_new(earlier.request, session):
                earlier = earlier.put_off()
            if earlier is None or earlier.reserved_tokens > plan.fitting:
                return text
            return self._find(earlier, variant, session)

        return choose

    def ask(self, chosen: PricedVariant, plan: Plan, session: str) -> list[RecordedCall]:
        """The calls that a request causes: for the cut that it needs, and for the next one. Each is made once."""
        calls = []
        for wanted in (plan.prefetch, plan.request):
            if wanted is not None and self._is_new(wanted, session):
                self._asked.add((session, wanted.key))
                calls.append(_expect(wanted, plan, chosen))
        return calls

    def stands_in(self, plan: Plan, text: Text, session: str) -> bool:
        """Whether a digest stands in for a model's summary for the first time. text: what was chosen for the plan."""
        wanted = plan.request
        if wanted is None or not wanted.asks_model or text.summary is not None:
            return False
        is_new = (session, wanted.key) not in self._stood_in
        self._stood_in.add((session, wanted.key))
        return is_new

    def _find(self, plan: Plan, variant: Variant, session: str) -> Text:
        if plan.request is not None and (session, plan.request.key) in self._stood_in:
            return Text(plan)
        return Text(plan, self.texts.find(session, plan, variant.compactor))

    def _is_new(self, wanted: SummaryRequest | None, session: str) -> bool:
        return wanted is not None and wanted.asks_model and (session, wanted.key) not in self._asked


def _expect(wanted: SummaryRequest, plan: Plan, chosen: PricedVariant) -> RecordedCall:
    """The call for a summary: asked behind what was forwarded, which the cache holds, and as long as it may be."""
    ratio = chosen.variant.policy.token_ratio
    before = plan.put_off() if plan.request is wanted else plan
    prompt = round(min((before or plan).reserved_tokens, plan.hard_limit) * ratio)
    completion = round(wanted.max_tokens * ratio)
    tokens = chosen.pricing.imagine(prompt + round(PROMPT_TOKENS * ratio), prompt, completion)
    return RecordedCall(chosen.label, "", "expected", 0.0, tokens.prompt, completion, tokens)
