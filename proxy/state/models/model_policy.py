"""A model as its requests are served: what is configured for it, what is known of it, and the policy of both.

Law: everyone who needs the policy of a model takes it from here.
"""

from dataclasses import dataclass, replace
from typing import Self

from proxy.config.policies.policy import PolicyConfig
from proxy.config.schema import Config, PricesConfig
from proxy.state.models.facts import Facts, complete
from proxy.state.models.records import ModelName, name_for
from proxy.state.tenancy import Tenant
from rules.policy import Policy
from rules.tokens.families import find_family

MAX_POLICIES = 1024


_POLICIES: dict[tuple[int, int, Facts], tuple[PolicyConfig, PricesConfig, Policy, int]] = {}


@dataclass(frozen=True, slots=True)
class ModelView:
    """One model.

    `policy` is corrected by what refusals have taught; `believed_tokens` is the window, in the model's own tokens, that
    is configured, else found, else assumed, before that correction.
    """

    name: ModelName
    settings: PolicyConfig
    facts: Facts
    policy: Policy
    believed_tokens: int

    @classmethod
    def of(cls, config: Config, settings: PolicyConfig, name: ModelName, facts: Facts) -> Self:
        """The view of a model whose requests are served by `settings`: the configuration's for it, or a profile's."""
        policy, believed_tokens = _derive_policy(settings, config.prices, facts)
        return cls(name, settings, facts, policy, believed_tokens)

    @classmethod
    def of_unmet(cls, config: Config, model: str) -> Self:
        """The view of a model by its name alone: no upstream and no store is asked. May load the catalogue (0.1 s)."""
        settings = config.policy_for(model)
        name, facts = name_model(config, settings, model), Facts(find_family(model).ratio)
        return cls.of(config, settings, name, complete(name, facts) if settings.context_window == "auto" else facts)

    @property
    def has_learned(self) -> bool:
        """Whether anything that was learned goes into the policy."""
        return self.has_learned_window or self.facts.has_ratio

    @property
    def is_doubtful(self) -> bool:
        """Whether something learned is to be tested: all but a ratio that the client's own answers confirm."""
        return self.has_learned_window or (self.facts.has_ratio and not self.facts.is_calibrated)

    @property
    def has_learned_window(self) -> bool:
        """Whether a learned window, or a learned addition to prompts, makes the room smaller."""
        return self.policy.context_window < self.believed_tokens or self.policy.added_tokens is not None

    def forget(self, config: Config) -> Self:
        """The view without anything that `has_learned` tells of."""
        facts = self.facts.forget(find_family(self.name.model).ratio)
        return self.of(config, self.settings, self.name, facts)

    def doubt(self, config: Config) -> Self:
        """The view without anything that `is_doubtful` tells of."""
        facts = self.facts.doubt(find_family(self.name.model).ratio)
        return self.of(config, self.settings, self.name, facts)

    @property
    def window_from(self) -> str:
        """Where the policy's window comes from: configured, discovered, catalogue, default, or learned."""
        if self.policy.context_window != self.believed_tokens:
            return "learned"
        if self.settings.context_window != "auto":
            return "configured"
        if self.facts.window_tokens is None:
            return "default"
        return "catalogue" if self.facts.from_catalogue else "discovered"


def name_model(config: Config, settings: PolicyConfig, model: str, tenant: Tenant | None = None) -> ModelName:
    """The name under which facts about a model are kept, for a tenant's requests that are served by `settings`.

    Without a tenant it is what counts for all.
    """
    base_url = config.upstream_for(settings.upstream).base_url
    if tenant is None:
        return name_for(base_url, model, settings.count)
    return name_for(base_url, model, settings.count, tenant.id, tenant.key_id)


def _derive_policy(settings: PolicyConfig, prices: PricesConfig, facts: Facts) -> tuple[Policy, int]:
    """The corrected policy, and the window before the correction; the same objects each time, for a while."""
    # By identity: sections that are equal may still set different keys, and their equality is slow.
    key = id(settings), id(prices), facts
    known = _POLICIES.get(key)
    if known is None or known[0] is not settings or known[1] is not prices:
        believed_tokens = settings.find_window(facts.window_tokens)
        window_tokens = facts.correct(believed_tokens, is_configured=settings.context_window != "auto")
        policy = settings.to_policy(prices.to_prices(), token_ratio=facts.ratio, window_tokens=window_tokens)
        corrected = replace(policy, added_tokens=facts.added_tokens)
        if len(_POLICIES) >= MAX_POLICIES:
            _POLICIES.clear()
        known = _POLICIES[key] = settings, prices, corrected, believed_tokens
    return known[2], known[3]
