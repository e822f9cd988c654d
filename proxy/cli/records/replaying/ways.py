"""The ways in which requests are compacted: as it was recorded, or as a configuration says.

Law: what was learned of a model, its window and its token ratio, stays, unless the configuration sets a window.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from proxy.account.recordings.format import Circumstances, Recording
from proxy.cli.records.replaying.arms import Paid
from proxy.cli.records.replaying.carry_out import Carried, Text, Way, carry_out, read
from proxy.compaction.compactor import Compactor
from proxy.compaction.pool import Compactors
from proxy.config.policies.policy import PolicyConfig
from proxy.config.schema import Config, UpstreamConfig
from proxy.lru import BytesLRU
from proxy.state.catalogue.lifetimes import find_lifetime_seconds
from proxy.state.models.facts import Facts
from proxy.state.models.model_policy import ModelView, name_model
from proxy.telemetry.metrics import OTHER
from proxy.wire.codec import Request, Unsent
from proxy.wire.content.cache_help import FIELDS, CacheHelp, find_key
from rules.pipeline.plan import Plan
from rules.policy import Policy
from rules.summary.request import Summary
from rules.window.state import ColdCut

MAX_TEXTS_BYTES = 64 * 1024 * 1024
"""Of recorded summaries that are remembered. Chosen: some ten thousand."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A way, how its tokens are paid for, and the label under which a request counts."""

    way: Way
    paid: Paid
    label: str


class Texts:
    """The recorded summaries of models, by session and by the prefix that they cover."""

    def __init__(self) -> None:
        self._known: BytesLRU[tuple[str, str], Summary] = BytesLRU(MAX_TEXTS_BYTES, lambda _, text: len(text.text) * 2)

    def keep(self, session: str, key: str, summary: Summary) -> None:
        """Remember the summary of a cut."""
        self._known[session, key] = summary

    def find(self, session: str, plan: Plan, compactor: Compactor) -> Summary | None:
        """The recorded summary of the very cut of a plan, if it has room there; else None."""
        wanted = plan.request
        found = None if wanted is None or not wanted.asks_model else self._known.get((session, wanted.key))
        if wanted is None or found is None or compactor.count(found.text) > wanted.max_tokens:
            return None
        return found


@dataclass(frozen=True, slots=True)
class RecordedWays:
    """Requests are compacted as they were when they were recorded."""

    compactors: Compactors
    texts: Texts = field(default_factory=Texts)
    _policies: dict[Policy, Policy] = field(default_factory=dict)

    def read(self, recording: Recording) -> tuple[Request, Circumstances] | None:
        """The client's request; None if it was not planned, or if its body is not recorded. Raises UndecodableError."""
        told, circumstances, body = recording.request, recording.circumstances, recording.received_body
        if told is None or told.is_count or circumstances is None or body is None:
            return None
        return replace(read(self.compactors, body, told.dialect), model=told.model), circumstances

    def carry_out(self, recording: Recording, request: Request, circumstances: Circumstances) -> tuple[Chosen, Carried]:
        """Compact a request as it was compacted. Raises UndecodableError."""
        chosen = self.choose(recording, circumstances, request.model)
        choose_text = self.choose_text(recording, circumstances)
        return chosen, carry_out(self.compactors, request, chosen.way, choose_text)

    def choose(self, recording: Recording, circumstances: Circumstances, model: str) -> Chosen:
        """The way of a recorded request."""
        told, settings = circumstances, PolicyConfig.model_validate({"count": circumstances.vocabulary or "auto"})
        adds = frozenset(name for name in FIELDS if name in told.cache_adds)
        key = find_key(recording.sent_body or b"") if "cache_key" in adds else ""
        way = Way(
            self.compactors.choose(settings, model),
            self._policies.setdefault(told.policy, told.policy),  # equal policies are one object, which is faster
            Unsent(told.local_items, told.drop_tools, nonces=told.strips_nonces),
            {bytes.fromhex(prefix): ColdCut(kind) for prefix, kind in told.cold.items()},
            CacheHelp(adds, key),
            recording.event.mode or "enforce",
        )
        paid = Paid(told.prices, find_lifetime_seconds(told.upstream_url, model))
        return Chosen(way, paid, recording.event.label)

    def choose_text(self, recording: Recording, circumstances: Circumstances) -> Callable[[Plan], Text]:
        """Takes back the cuts that were taken back, and gives the last one its recorded text."""

        def choose(plan: Plan) -> Text:
            while circumstances.put_off and len(plan.window.cuts) > circumstances.cuts:
                earlier = plan.put_off()
                if earlier is None:
                    break
                plan = earlier
            told = recording.summary
            if told is None or plan.request is None:
                return Text(plan)
            summary = Summary(told.text, told.by_model)
            if summary.by_model:
                self.texts.keep(recording.event.session, plan.request.key, summary)
            return Text(plan, summary)

        return choose


@dataclass(frozen=True, slots=True)
class ConfiguredWays:
    """Requests are compacted as a configuration says."""

    compactors: Compactors
    config: Config
    _views: dict[object, tuple[ModelView, Paid]] = field(default_factory=dict)

    def choose(self, request: Request, recording: Recording | None = None) -> Chosen:
        """The way of a request. Of a recorded one, what was learned about its model stays."""
        config, model = self.config, request.model
        matched = config.match_for(model)
        settings = config.policy_for(model)
        upstream = config.upstream_for(settings.upstream)
        circumstances = None if recording is None else recording.circumstances
        view, paid = self._view(settings, upstream, model, circumstances)
        policy, cold = view.policy, {}
        if circumstances is not None:
            cold = {bytes.fromhex(prefix): ColdCut(kind) for prefix, kind in circumstances.cold.items()}
        mode = config.mode_of(settings)
        way = Way(
            self.compactors.choose(settings, model),
            policy,
            Unsent(settings.local_items, settings.drop_tools, nonces=upstream.strips_nonces),
            cold,
            mode="observe" if mode == "enforce" and settings.observe_share == 1 else mode,
            refuses_unpaired=settings.pairing == "refuse",
        )
        label = (matched.match if matched else model or OTHER) if recording is None else recording.event.label
        return Chosen(way, paid, label)

    def _view(
        self, settings: PolicyConfig, upstream: UpstreamConfig, model: str, circumstances: Circumstances | None
    ) -> tuple[ModelView, Paid]:
        """The view of a model, made once for what is known of it: equal policies are the same object."""
        learned = circumstances and (circumstances.policy, circumstances.prices, circumstances.upstream_url)
        key = model, learned
        known = self._views.get(key)
        if known is None:
            made = self._make_view(settings, upstream, model, circumstances)
            known = self._views[key] = made
        return known

    def _make_view(
        self, settings: PolicyConfig, upstream: UpstreamConfig, model: str, circumstances: Circumstances | None
    ) -> tuple[ModelView, Paid]:
        if circumstances is None:
            view = ModelView.of_unmet(self.config, model)
            return view, Paid(view.price_list, find_lifetime_seconds(upstream.base_url, model))
        was = circumstances.policy
        facts = Facts(was.token_ratio, was.context_window, added_tokens=was.added_tokens, has_ratio=True)
        view = ModelView.of(self.config, settings, name_model(self.config, settings, model), facts)
        if settings.context_window == "auto" and was.ceiling_tokens is not None:
            view = replace(view, policy=replace(view.policy, ceiling_tokens=was.ceiling_tokens))
        if not self._names_prices(settings, upstream):
            policy = replace(view.policy, prices=was.prices)
            view = replace(view, policy=policy, price_list=circumstances.prices)
            return view, Paid(circumstances.prices, find_lifetime_seconds(circumstances.upstream_url, model))
        return view, Paid(view.price_list, find_lifetime_seconds(upstream.base_url, model))

    def _names_prices(self, settings: PolicyConfig, upstream: UpstreamConfig) -> bool:
        """Whether the configuration says what tokens cost, or where requests go; else it is as recorded."""
        is_set = "base_url" in upstream.model_fields_set or settings.upstream is not None
        return is_set or self.config.prices_for(settings, upstream) != "auto"
