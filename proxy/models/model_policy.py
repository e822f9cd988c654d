"""Combines the configuration of a model with what is known of it, into the policy of its requests.

Law: all code that needs the policy of a model takes it from here.
"""

from dataclasses import replace
from typing import Self

import msgspec

from trimtab.proxy.catalogue.prices import PriceList, find_price_list
from trimtab.proxy.config.policy import PolicyConfig
from trimtab.proxy.config.schema import Config, UpstreamConfig
from trimtab.proxy.http.tenancy import Tenant
from trimtab.proxy.models.records import Facts, ModelName, complete, expect_scale, find_scale, name_for
from trimtab.rules.policy import Policy, SummaryRole
from trimtab.rules.tokens.families import SILENT
from trimtab.rules.tokens.scripts import USUAL

MAX_POLICIES = 1024  # Then all are dropped. Chosen: more than the models of one process.

_POLICIES: dict[tuple[int, int, Facts], tuple[PolicyConfig, PriceList, Policy, int]] = {}


class ModelView(msgspec.Struct, frozen=True):
    """One model, as its requests are planned.

    policy: the settings, corrected by what was learned.
    believed_tokens: the context window before that correction, in the model's own tokens: configured, else reported by
        the upstream, else the catalogue's, else the default. A refusal refutes this window.
    has_learned_window: a learned window, or the completion budget that the upstream adds, makes the room smaller.
    is_doubtful: the policy contains a lesson to test: any except a ratio that the client's own answers confirm.
    """

    name: ModelName
    settings: PolicyConfig
    facts: Facts
    policy: Policy
    believed_tokens: int
    price_list: PriceList
    has_learned_window: bool
    is_doubtful: bool

    @classmethod
    def of(
        cls,
        config: Config,
        settings: PolicyConfig,
        name: ModelName,
        facts: Facts,
        upstream: UpstreamConfig | None = None,
    ) -> Self:
        """Build the view of a model from settings and facts. `upstream`: None for that of the settings."""
        price_list = find_price_list(config, settings, name.model, upstream)
        policy, believed_tokens = _derive_policy(settings, price_list, facts)
        has_window = policy.context_window < believed_tokens or policy.added_tokens is not None
        is_doubtful = has_window or (facts.has_ratio and not facts.is_calibrated)
        return cls(name, settings, facts, policy, believed_tokens, price_list, has_window, is_doubtful)

    @classmethod
    def of_unmet(cls, config: Config, model: str) -> Self:
        """The view of a model from its name alone. May load the catalogue, which takes 0.1 to 0.4 s once."""
        settings = config.policy_for(model)
        name = name_model(config, settings, model)
        facts = Facts(expect_scale(name, SILENT).ratio)
        return cls.of(config, settings, name, complete(name, facts) if settings.context_window == "auto" else facts)

    @property
    def has_learned(self) -> bool:
        return self.has_learned_window or self.facts.has_ratio

    def forget(self, config: Config) -> Self:
        return self.of(config, self.settings, self.name, self.facts.forget(self._expected_ratio))

    def doubt(self, config: Config) -> Self:
        """The view for a test: without anything learned, except a ratio that the client's own answers confirm."""
        return self.of(config, self.settings, self.name, self.facts.doubt(self._expected_ratio))

    def trust_family(self, config: Config) -> Self:
        facts = replace(self.facts, ratio=self._expected_ratio, weights=None)
        return self.of(config, self.settings, self.name, facts)

    def count_for_each(self, other: Self) -> float:
        """The most that this view counts for each token that another view of the model counts, of any kind of text."""
        mine, others = (find_scale(view.name, view.facts) for view in (self, other))
        return max(mine.predict(1, chars) / others.predict(1, chars) for chars in USUAL)

    @property
    def _expected_ratio(self) -> float:
        return expect_scale(self.name, self.facts.reading).ratio

    @property
    def window_from(self) -> str:
        if self.policy.context_window != self.believed_tokens:
            return "learned"
        if self.settings.context_window != "auto":
            return "configured"
        if self.facts.window_tokens is None:
            return "default"
        return "catalogue" if self.facts.from_catalogue else "discovered"


def name_model(config: Config, settings: PolicyConfig, model: str, tenant: Tenant | None = None) -> ModelName:
    """The name under which a model's facts are kept for a tenant, or for all. settings: upstream and vocabulary."""
    base_url = config.upstream_for(settings.upstream).base_url
    if tenant is None:
        return name_for(base_url, model, settings.count)
    return name_for(base_url, model, settings.count, tenant.id, tenant.key_id)


def _derive_policy(settings: PolicyConfig, prices: PriceList, facts: Facts) -> tuple[Policy, int]:
    """The corrected policy, and the window before the correction. The same input mostly returns the same objects."""
    # The key uses identity: equal sections may still set different keys, and comparing them is slow.
    key = id(settings), id(prices), facts
    known = _POLICIES.get(key)
    if known is None or known[0] is not settings or known[1] is not prices:
        believed_tokens = settings.find_window(facts.window_tokens)
        window_tokens = facts.correct(believed_tokens, is_configured=settings.context_window != "auto")
        policy = settings.to_policy(prices.to_ratios(), token_ratio=facts.ratio, window_tokens=window_tokens)
        role = SummaryRole.LAST if facts.reading.shifts and policy.summary_role is SummaryRole.AUTO else None
        corrected = replace(policy, added_tokens=facts.added_tokens, summary_role=role or policy.summary_role)
        # What a cut costs is decided for long prompts: the tier of the longest that are sent.
        longest_tokens = min(corrected.model_limit_tokens(), corrected.compact_at_tokens or window_tokens)
        corrected = replace(corrected, prices=prices.to_ratios(longest_tokens))
        if len(_POLICIES) >= MAX_POLICIES:
            _POLICIES.clear()
        known = _POLICIES[key] = settings, prices, corrected, believed_tokens
    return known[2], known[3]
