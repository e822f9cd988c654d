"""The configuration's keys: what each may be, what it is by default, and which policy a request gets.

Law: frozen, and every key has a default. What a file says is read by config/load.py.
"""

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Annotated, Generic, Literal, Self, TypeVar

from pydantic import Field, field_validator

from proxy.config.network.forward_proxies import is_loopback
from proxy.config.tool_schema import Section, TidyConfig, ToolConfig, allow_a_switch
from proxy.config.upstream_schema import NamedUpstreams
from proxy.config.upstream_schema import UpstreamConfig as UpstreamConfig  # noqa: PLC0414 - the shell takes it from here
from proxy.config.values import (
    Address,
    ContextWindow,
    NameGlob,
    OptionalName,
    OwnKey,
    Store,
    Tenant,
    require,
    split_address,
)
from proxy.config.words import Wanted
from rules.policy import OnExceeded, OverflowStrategy, Policy, Prices, SummaryRole
from rules.treatment import Budget, Truncation

MAX_MODEL_CHARS = 256
"""A longer name is no model's, and matches nothing: a request may hold megabytes of it."""
DEFAULT_CONTEXT_WINDOW = 128_000
"""The window of a model that nothing is known about."""

S = TypeVar("S")


class Same(Generic[S]):
    """A cache key for one object, by identity: sections that are equal may still set different keys."""

    __slots__ = ("value",)

    def __init__(self, value: S) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class SummaryConfig(Section):
    """How summaries are asked for."""

    model: OptionalName = Field(None, description="null: the request's own model")
    upstream: OptionalName = Field(None, description="null: the request's own; else one of upstreams")
    request: Literal["auto", "inline", "transcript"] = Field(
        "auto", description="auto | inline (behind what was forwarded, in the prompt cache) | transcript (on its own)"
    )
    max_tokens: int = Field(1500, ge=64, description="of one summary")
    min_steps: int = Field(6, ge=1, description="fewer than this are never worth a summary")
    role: SummaryRole = Field(
        SummaryRole.AUTO,
        description="who speaks it: auto (with the task, valid everywhere) | user | system | assistant | pair",
    )
    timeout_seconds: float = Field(60.0, gt=0, description="of one summary, its retries included")
    temperature: float = Field(0.2, ge=0, le=2, description="of the summariser")


class PolicyConfig(Section):
    """What a model's requests are compacted by."""

    upstream: OptionalName = Field(None, description="null: upstream; else one of upstreams")
    context_window: ContextWindow = Field(
        "auto",
        description="tokens of prompt and completion; auto: asked of the upstream, else the catalogue, else 128000",
    )
    completion_reserve: int = Field(
        8192, ge=0, description="tokens kept free for the completion, at most a quarter of the window"
    )
    high_water: float = Field(0.80, gt=0, le=1, description="share of the room at which a cut is made")
    low_water: float = Field(
        0.40, gt=0, lt=1, description="share of the room that a cut leaves at most, the summary included"
    )
    overflow_strategy: OverflowStrategy = Field(
        OverflowStrategy.AUTO_COMPACT, description="auto_compact | prune | summarize | error"
    )
    on_exceeded: OnExceeded = Field(
        OnExceeded.TRUNCATE,
        description="when nothing fits: truncate (the newest results, then the last message) | error | forward",
    )
    tidy: TidyConfig = Field(
        TidyConfig(),
        description="what tool results lose that says nothing; true: all of it, false: none",
        json_schema_extra=allow_a_switch,
    )
    dedupe: bool = Field(default=True, description="a result like an earlier one becomes a pointer to it, or a diff")
    max_tool_result_tokens: int = Field(
        4000,
        ge=64,
        description="a longer tool result is truncated; errors have twice as much; counted by our vocabulary",
    )
    max_tool_result_bytes: int | None = Field(None, ge=256, description="the same by bytes, where set")
    truncation: Truncation = Field(
        Truncation.SALIENT, description="what a long result keeps: salient (the lines that matter, too) | head_tail"
    )
    tools: dict[NameGlob, ToolConfig] = Field({}, description="by a glob on the tool's name, the first match wins")
    protect_turns: int = Field(2, ge=0, description="results of the newest user turns are not pruned")
    keep_user_tokens: int = Field(
        20_000,
        ge=0,
        description="user messages kept verbatim behind a summary, at most a quarter of what low water leaves",
    )
    summary: SummaryConfig = SummaryConfig()
    count: Literal["auto", "o200k_base", "cl100k_base", "heuristic"] = Field(
        "auto", description="how tokens are counted: auto (as the model does) | o200k_base | cl100k_base | heuristic"
    )

    def to_policy(self, prices: Prices, *, token_ratio: float = 1.0, window_tokens: int | None = None) -> Policy:
        """The numbers that the rules need, for a model of which `token_ratio` tokens make one of ours.

        `window_tokens` is its window where the configuration leaves that open, None where it is not known.
        """
        window = self.context_window
        found = window_tokens or DEFAULT_CONTEXT_WINDOW
        policy = Policy(
            context_window=found if window == "auto" else window,
            completion_reserve=self.completion_reserve,
            high_water=self.high_water,
            low_water=self.low_water,
            overflow_strategy=self.overflow_strategy,
            on_exceeded=self.on_exceeded,
            # Not divided by the ratio: one that is learned later would cut results anew that were forwarded before.
            result_budget=Budget(self.max_tool_result_tokens, self.max_tool_result_bytes),
            protect_turns=self.protect_turns,
            keep_user_tokens=round(self.keep_user_tokens / token_ratio),
            summary_max_tokens=max(round(self.summary.max_tokens / token_ratio), 1),
            summary_min_steps=self.summary.min_steps,
            summary_role=self.summary.role,
            prices=prices,
            token_ratio=token_ratio,
            truncation=self.truncation,
            tidying=self.tidy.to_tidying(),
            dedupe=self.dedupe,
        )
        rules = (tool.to_rule(glob, policy.treatment, self.tidy) for glob, tool in self.tools.items())
        return replace(policy, tools=tuple(rules))


class ModelConfig(PolicyConfig):
    """Any key of defaults, for the models that match."""

    match: NameGlob = Field(description="a glob on the request's model")


class LimitsConfig(Section):
    """What the proxy takes on."""

    max_body_bytes: int = Field(33_554_432, ge=1024, description="a larger body streams through uncompacted")
    max_concurrent_requests: int = Field(1024, ge=1, description="more than this are answered 503")
    max_memory_bytes: int = Field(
        2_147_483_648, ge=536_870_912, description="of the process; requests for which it has no room are answered 503"
    )
    max_held_bytes: int | None = Field(
        None, ge=1024, description="of request bodies read at once; null: what max_memory_bytes leaves room for"
    )
    max_plan_seconds: float = Field(
        2.0, gt=0, description="what a request waits for a thread; then it goes out unplanned if that is safe, else 503"
    )
    client_silence_seconds: float = Field(
        60.0, gt=0, description="a client that sends none of its body for so long is answered 408"
    )
    shutdown_delay_seconds: float = Field(
        0.0, ge=0, description="after SIGTERM /trimtab/ready says no, and requests are still taken, for so long"
    )
    drain_seconds: float = Field(20.0, ge=0, description="what requests in flight have to finish after that")


class PricesConfig(Section):
    """What tokens cost, as ratios: they decide whether a cut is worth its cache break."""

    input: float = Field(1.0, gt=0, description="a prompt token")
    cached_input: float = Field(0.1, ge=0, description="one that the upstream's prompt cache holds")
    output: float = Field(4.0, ge=0, description="a completion token")

    def to_prices(self) -> Prices:
        """The ratios that the rules need."""
        return Prices(self.input, self.cached_input, self.output)


class Config(Section):
    """All of it. Every key has a default."""

    listen: Address = Field("127.0.0.1:8790", description="HOST:PORT; port 0 picks a free one")
    client_keys: tuple[OwnKey, ...] | None = Field(
        None, min_length=1, repr=False, description="a list: then every client must show one of these"
    )
    admin_token: OwnKey | None = Field(
        None, repr=False, description="then /metrics and /trimtab/ want it, but for health and ready"
    )
    allowed_hosts: tuple[NameGlob, ...] = Field((), description="globs; names of this machine, if no key is asked for")
    allowed_origins: tuple[NameGlob, ...] = Field((), description="globs; sites whose pages may send requests, too")
    metrics_listen: Address | None = Field(
        None, description="null: /metrics on the same port; else its own HOST:PORT, for our own pages alone"
    )
    metrics_path: Annotated[str, Wanted("a path that begins with /")] = Field(
        "/metrics", pattern="^/", description="where Prometheus scrapes"
    )
    mode: Literal["enforce", "observe", "off"] = Field(
        "enforce", description="enforce | observe (decide and count, forward the original) | off"
    )
    allow_header_override: bool = Field(
        default=True, description="may a request send x-trimtab-mode and x-trimtab-profile?"
    )
    upstream: UpstreamConfig = UpstreamConfig()
    upstreams: NamedUpstreams = Field({}, description="more of them, by name, for models and summaries")
    tenant: Tenant = Field(
        "authorization", description="whose summaries are whose: authorization | header:NAME (for rotating tokens)"
    )
    store: Store = Field(
        "sqlite",
        repr=False,
        description="where summaries are kept: memory | sqlite | sqlite:///path | redis://host:port/db",
    )
    store_ttl_seconds: float = Field(604_800, gt=0, description="how long a summary is kept that nobody uses")
    prices: PricesConfig = PricesConfig()
    limits: LimitsConfig = LimitsConfig()
    defaults: PolicyConfig = PolicyConfig()
    models: tuple[ModelConfig, ...] = Field((), description="first match wins")
    profiles: dict[str, PolicyConfig] = Field({}, description="named policies, picked with x-trimtab-profile")

    @field_validator("metrics_path")
    @classmethod
    def _keep_off_the_api(cls, path: str) -> str:
        is_theirs = path.startswith(("/v1", "/trimtab", "/chat/completions"))
        require(not is_theirs, "must not begin with /v1, /trimtab or /chat/completions")
        is_plain = path.isascii() and path.isprintable() and not set(path) & set(" %?#")
        require(is_plain, "must be plain ASCII, without a space and any of % ? #")
        return path

    def over_defaults(self, patch: PolicyConfig | None) -> PolicyConfig:
        """The defaults with what the patch sets, if there is one; the same object each time."""
        return self.defaults if patch is None else _overlay(Same(self.defaults), Same(patch))

    def policy_for(self, model: str) -> PolicyConfig:
        """The policy of a model whose request names no profile: the first match's, else the defaults."""
        return self.over_defaults(self.match_for(model))

    def match_for(self, model: str) -> ModelConfig | None:
        """The first entry of `models` whose glob matches; none does for a name beyond MAX_MODEL_CHARS."""
        if not self.models or len(model) > MAX_MODEL_CHARS:
            return None
        index = _match_first(tuple(entry.match for entry in self.models), model)
        return None if index is None else self.models[index]

    def upstream_for(self, name: str | None) -> UpstreamConfig:
        """The upstream by its name in `upstreams`; None is the main one."""
        return self.upstream if name is None else self.upstreams[name]

    def discovered_upstreams(self) -> tuple[UpstreamConfig, ...]:
        """The upstreams that are to be asked for windows: of those policies that leave theirs open."""
        policies = (self.defaults, *map(self.over_defaults, (*self.models, *self.profiles.values())))
        names = {policy.upstream for policy in policies if policy.context_window == "auto"}
        return tuple(self.upstream_for(name) for name in sorted(names, key=str))

    def routed_by(self, environment: Mapping[str, str]) -> Self:
        """The same with the proxies that the environment names. Raises UnusableProxyError."""
        upstreams = {name: upstream.routed_by(environment) for name, upstream in self.upstreams.items()}
        return self.model_copy(update={"upstream": self.upstream.routed_by(environment), "upstreams": upstreams})

    def open_addresses(self) -> dict[str, str]:
        """Addresses beyond this machine where no key is asked for, and what that means."""
        found = {}
        if self.client_keys is None and not is_loopback(split_address(self.listen)[0]):
            found[self.listen] = "anyone who reaches this port can use the proxy; see client_keys"
        pages = self.metrics_listen
        if pages and self.admin_token is None and not is_loopback(split_address(pages)[0]):
            found[pages] = "anyone who reaches this port can read the metrics; see admin_token"
        return found


@lru_cache(256)
def _overlay(under: Same[PolicyConfig], over: Same[PolicyConfig]) -> PolicyConfig:
    defaults, patch = under.value, over.value
    changes = {key: getattr(patch, key) for key in patch.model_fields_set - {"match", "summary"}}
    summary = {key: getattr(patch.summary, key) for key in patch.summary.model_fields_set}
    changes["summary"] = defaults.summary.model_copy(update=summary)
    changes["tidy"] = patch.tidy.over(defaults.tidy)
    return defaults.model_copy(update=changes)


@lru_cache(1024)
def _match_first(globs: tuple[str, ...], model: str) -> int | None:
    return next((index for index, glob in enumerate(globs) if fnmatchcase(model, glob)), None)
