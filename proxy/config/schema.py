"""The configuration's keys: what each may be, what it is by default, and which policy a request gets.

Law: frozen, and every key has a default. What a file says is read by config/load.py.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from math import ceil
from typing import Annotated, Generic, Literal, Self, TypeVar

from pydantic import Field, field_validator

from proxy.config.network.forward_proxies import is_loopback
from proxy.config.policies.policy import ModelConfig, PolicyConfig
from proxy.config.policies.tools import Section
from proxy.config.upstream_schema import NamedUpstreams
from proxy.config.upstream_schema import UpstreamConfig as UpstreamConfig  # noqa: PLC0414 - the shell takes it from here
from proxy.config.values import (
    Address,
    NameGlob,
    OwnKey,
    Store,
    Tenant,
    WorkerCount,
    require,
    split_address,
)
from proxy.config.words import Wanted
from rules.policy import Prices

MAX_MODEL_CHARS = 256
"""A longer name is no model's, and matches nothing: a request may hold megabytes of it."""

MIN_MEMORY_BYTES = 512 * 1024 * 1024
"""Of one process: what it is when idle, its caches, and some requests."""

MIN_HELD_BYTES = 1024

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


class LimitsConfig(Section):
    """What the proxy takes on."""

    max_body_bytes: int = Field(33_554_432, ge=1024, description="a larger body streams through uncompacted")
    max_concurrent_requests: int = Field(1024, ge=1, description="more than this are answered 503")
    max_memory_bytes: int = Field(
        2_147_483_648,
        ge=MIN_MEMORY_BYTES,
        description="of all workers together; requests for which there is no room are answered 503",
    )
    max_held_bytes: int | None = Field(
        None,
        ge=MIN_HELD_BYTES,
        description="of request bodies read at once; null: what max_memory_bytes leaves room for",
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

    def divide(self, workers: int) -> Self:
        """What each of so many processes takes on, so that all of them together take on this; never less than works."""
        held_bytes = self.max_held_bytes
        return self.model_copy(
            update={
                "max_concurrent_requests": ceil(self.max_concurrent_requests / workers),
                "max_memory_bytes": max(self.max_memory_bytes // workers, MIN_MEMORY_BYTES),
                "max_held_bytes": None if held_bytes is None else max(held_bytes // workers, MIN_HELD_BYTES),
            }
        )


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
    workers: WorkerCount = Field(
        1, description="processes that share the port and the limits; auto: one for each core, as memory allows"
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
        description="where summaries are kept: memory | sqlite | sqlite:///path | redis[+sentinel|+cluster]://host:port/db",
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

    def as_worker_of(self, workers: int) -> Self:
        """The same for one of so many processes; this very object for one alone."""
        return self if workers == 1 else self.model_copy(update={"limits": self.limits.divide(workers)})

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
