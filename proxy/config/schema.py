"""The keys of the configuration: type, default and description of each; and which policy a request gets.

Law: frozen, and every key has a default. config/load.py reads the file. A limit holds for all workers together; each
worker gets its part.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from math import ceil
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator

from trimtab.proxy.config.network.forward_proxies import is_loopback
from trimtab.proxy.config.policies.policy import ModelConfig, PolicyConfig, Same, overlay
from trimtab.proxy.config.policies.sections import AutoPrices, Section
from trimtab.proxy.config.policies.sections import PricesConfig as PricesConfig  # noqa: PLC0414 - for the shell
from trimtab.proxy.config.sections.clients import ClientKeys, Clients, divide_clients
from trimtab.proxy.config.sections.observability import (
    DashboardConfig,
    LogConfig,
    RecordConfig,
    SessionsConfig,
    TracingConfig,
)
from trimtab.proxy.config.sections.upstream import NamedUpstreams
from trimtab.proxy.config.sections.upstream import UpstreamConfig as UpstreamConfig  # noqa: PLC0414 - for the shell
from trimtab.proxy.config.values import (
    ENDPOINTS,
    Address,
    NameGlob,
    OwnKey,
    RootedPath,
    Store,
    Tenant,
    WorkerCount,
    require,
    split_address,
)
from trimtab.proxy.config.words import Wanted

MIN_MEMORY_BYTES = 512 * 1024 * 1024
"""The least memory of one process.

Chosen: it has space for an idle process, its caches and some requests; proxy/memory.py divides it.
"""

MIN_HELD_BYTES = 1024
"""Chosen: the same as the least `max_body_bytes`."""


class LimitsConfig(Section):
    """How much work trimtab accepts, and how long it waits."""

    max_body_bytes: int = Field(
        33_554_432,
        ge=1024,
        description="The largest request body, in bytes, that trimtab compacts. A larger body streams to the upstream "
        "unchanged.",
    )
    max_concurrent_requests: int = Field(
        1024,
        ge=1,
        description="The number of requests that may be in flight at once. Further requests get 503. Of several "
        "workers, each admits an equal part, rounded up, so one may refuse requests while another one is idle.",
    )
    max_memory_bytes: int = Field(
        2_147_483_648,
        ge=MIN_MEMORY_BYTES,
        description="The memory budget in bytes of all workers together: the processes, their caches and the requests "
        "in flight. A request for which no memory is left waits or gets 503. Each worker needs at least 536870912 "
        "bytes (512 MiB). Give a container this much and a little more.",
    )
    max_held_bytes: int | None = Field(
        None,
        ge=MIN_HELD_BYTES,
        description="The number of bytes of request bodies that trimtab holds at once, in all workers together. "
        "Further requests get 503. null: max_memory_bytes alone decides.",
    )
    max_plan_seconds: float = Field(
        2.0,
        gt=0,
        description="The time in seconds that a request waits for a free thread to compact it. After that, trimtab "
        "forwards the request unchanged if it certainly fits the context window, and answers 503 otherwise.",
    )
    client_silence_seconds: float = Field(
        60.0,
        gt=0,
        description="The time in seconds that a client may pause while it sends a request body. A longer pause gets "
        "408.",
    )
    shutdown_delay_seconds: float = Field(
        0.0,
        ge=0,
        description="The time in seconds after SIGTERM in which /trimtab/ready already reports 503 but new requests "
        "are still accepted. It lets a load balancer take this instance out of service first.",
    )
    drain_seconds: float = Field(
        20.0,
        ge=0,
        description="The time in seconds that requests in flight have to finish after shutdown_delay_seconds. "
        "After that, the connections of unfinished requests are reset.",
    )

    def divide(self, workers: int) -> Self:
        """The part of one of several workers. It is never less than a worker needs, so the sum may exceed the whole."""
        held_bytes = self.max_held_bytes
        return self.model_copy(
            update={
                "max_concurrent_requests": ceil(self.max_concurrent_requests / workers),
                "max_memory_bytes": max(self.max_memory_bytes // workers, MIN_MEMORY_BYTES),
                "max_held_bytes": None if held_bytes is None else max(held_bytes // workers, MIN_HELD_BYTES),
            }
        )


Dialect = Literal["chat", "responses", "messages"]


def _check_odd_path(path: str) -> str:
    require("*" not in path and path != "/", "must be the whole path of requests, without *")
    return path.removesuffix("/")


class CompactionConfig(Section):
    """Which further requests are compacted, and which prompts are counted."""

    paths: dict[Annotated[RootedPath, AfterValidator(_check_odd_path)], Dialect] = Field(
        {},
        examples=[{"/llm/generate": "chat"}],
        description="The dialect of POST requests at other paths: chat, responses or messages. Paths that end in "
        "/chat/completions, /responses or /messages need no entry, whatever precedes that.",
    )
    count_tokens: Literal["forwarded", "passed"] = Field(
        "forwarded",
        description="The prompt that POST .../messages/count_tokens counts. forwarded: what trimtab would forward. "
        "passed: the client's own; the request passes unchanged.",
    )


MAX_MODEL_CHARS = 256
"""Chosen: no model has a longer name. A longer one matches nothing, because globs over megabytes would take seconds."""


class Config(Section):
    """The whole configuration. Every key has a default."""

    listen: Address = Field(
        "127.0.0.1:8790",
        examples=["0.0.0.0:8790"],
        description="The address that clients connect to, HOST:PORT. Port 0 picks a free port. An address other than "
        "loopback lets other machines use the proxy; set client_keys then.",
    )
    client_keys: ClientKeys | None = Field(
        None,
        repr=False,
        examples=[
            {"alice": "${ALICE_KEY}", "ci": {"key": "${CI_KEY}", "max_concurrent_requests": 8}},
            ["${ALICE_KEY}", "${CI_KEY}"],
        ],
        description="The keys that clients may use for trimtab itself: a list of keys, or a mapping of names, each to "
        "a key or to a mapping of its own. Log lines and metrics then go by these names, of at most 30 "
        "characters. A request without one of the keys gets 401. null: no key is needed.",
    )
    admin_token: OwnKey | None = Field(
        None,
        repr=False,
        examples=["${ADMIN_TOKEN}"],
        description="The bearer token for /metrics and the pages below /trimtab/, except /trimtab/health and "
        "/trimtab/ready. null: these pages need one of client_keys, unless there are none or metrics_listen is set.",
    )
    allowed_hosts: tuple[NameGlob, ...] = Field(
        (),
        examples=[["trimtab.internal.example.com"]],
        description="Globs on values of the Host header that are accepted in addition to localhost and IP addresses. "
        "Other values get 403, as a protection against DNS rebinding. The key has an effect only if listen is a "
        "loopback address and there are no client_keys.",
    )
    allowed_origins: tuple[NameGlob, ...] = Field(
        (),
        examples=[["http://localhost:3000", "chrome-extension://*"]],
        description="Globs on values of the Origin header: the web sites whose pages may send requests. Other web "
        "sites get 403. Programs that send no Origin header are not affected. The key has no effect with client_keys.",
    )
    metrics_listen: Address | None = Field(
        None,
        examples=["127.0.0.1:9790"],
        description="A separate address, HOST:PORT, for metrics_path and the pages below /trimtab/. No client key is "
        "needed there. On listen, metrics_path then is 404. null: listen serves these pages.",
    )
    metrics_path: Annotated[str, Wanted("a path that begins with /")] = Field(
        "/metrics",
        pattern="^/",
        description="The path of the Prometheus metrics. It must not begin with /v1 or /trimtab, nor end like a path "
        "that is compacted, such as /chat/completions.",
    )
    workers: WorkerCount = Field(
        1,
        examples=["auto"],
        description="The number of processes that share the port and the limits. auto: one for each CPU core, but at "
        "most one for each 512 MiB of limits.max_memory_bytes.",
    )
    mode: Literal["enforce", "observe", "off"] = Field(
        "enforce",
        description="What trimtab does to requests. enforce: compact them. observe: decide and count, but forward the "
        "original. off: forward only. The key mode of a policy wins over this one.",
    )
    allow_header_override: bool = Field(
        default=True,
        description="Whether the request headers x-trimtab-mode (only to do less than configured) and "
        "x-trimtab-profile have an effect. false: both are ignored.",
    )
    upstream: UpstreamConfig = Field(
        UpstreamConfig(), description="The server that requests go to, unless a policy names one of upstreams."
    )
    upstreams: NamedUpstreams = Field(
        {},
        examples=[{"local": {"base_url": "http://127.0.0.1:8000/v1"}}],
        description="Further servers by a name of your choice. The key upstream of a policy, or of its summary, "
        "refers to that name.",
    )
    models_list: Literal["main", "merged"] = Field(
        "main",
        description="Which models GET /v1/models lists. main: those of upstream. merged: those of all servers that "
        "requests can reach, each with its server.",
    )
    compaction: CompactionConfig = Field(
        CompactionConfig(), description="Which requests are compacted, besides those whose path tells it."
    )
    tenant: Tenant = Field(
        "authorization",
        examples=["header:x-user-id"],
        description="What tells clients apart, so that no client can read another's summaries. authorization: all "
        "credentials of the request. header:NAME: the value of that header, for clients whose tokens change. Use it "
        "only if you trust everybody who can set that header.",
    )
    store: Store = Field(
        "sqlite",
        repr=False,
        examples=["memory", "sqlite:////var/lib/trimtab/summaries.sqlite3", "redis://redis:6379/0"],
        description="Where summaries are kept. memory: in this process. sqlite: a file in the user's data directory. "
        "sqlite:///PATH: that file. redis://HOST:PORT/DB: a server that several instances share; also rediss://, "
        "valkey://, valkeys://, redis+sentinel:// and redis+cluster://.",
    )
    store_ttl_seconds: float = Field(
        604_800,
        gt=0,
        description="The time in seconds after which an unused summary is deleted. The default is 7 days.",
    )
    prices: AutoPrices = Field(
        "auto",
        examples=[{"input": 1.25, "cached_input": 0.125, "output": 10, "unit": "usd"}],
        description="What tokens cost. The prices decide when a cut pays for the prompt cache that it breaks. Wrong "
        "prices only affect cost, never correctness. auto: the prices of the catalogue for the upstream and the model; "
        "for a server on this machine or in a private network, the time that tokens take.",
    )
    dashboard: DashboardConfig = Field(DashboardConfig(), description="The page at /trimtab/ that shows what is done.")
    record: RecordConfig | None = Field(
        None,
        examples=[{"dir": "/var/lib/trimtab/recordings"}],
        description="Where requests are recorded, for trimtab inspect and trimtab replay. null: nowhere.",
    )
    sessions: SessionsConfig = Field(
        SessionsConfig(), description="Where clients say to which session a request belongs. No decision depends on it."
    )
    log: LogConfig = Field(LogConfig(), description="How the log on standard error is written.")
    tracing: TracingConfig = Field(TracingConfig(), description="Traces by OpenTelemetry.")
    limits: LimitsConfig = Field(
        LimitsConfig(), description="Limits on sizes, on concurrent requests, on memory, and on times."
    )
    defaults: PolicyConfig = Field(
        PolicyConfig(), description="The policy of every model: how its requests are compacted."
    )
    models: tuple[ModelConfig, ...] = Field(
        (),
        examples=[[{"match": "qwen*", "context_window": 32768}]],
        description="Policies for some models. The first entry whose match fits the request's model applies. A key "
        "that it does not set has the value of defaults.",
    )
    profiles: dict[str, PolicyConfig] = Field(
        {},
        examples=[{"small": {"context_window": 16000}}],
        description="Policies by a name of your choice. A request selects one with the header x-trimtab-profile; it "
        "then applies instead of models. A key that it does not set has the value of defaults.",
    )

    @field_validator("metrics_path")
    @classmethod
    def _keep_off_the_api(cls, path: str) -> str:
        is_theirs = path.startswith(("/v1", "/trimtab")) or path.endswith(ENDPOINTS)
        require(not is_theirs, "must not begin with /v1 or /trimtab, nor end like /chat/completions")
        is_plain = path.isascii() and path.isprintable() and not set(path) & set(" %?#")
        require(is_plain, "must be plain ASCII without a space or any of % ? #")
        return path

    def over_defaults(self, patch: PolicyConfig | None) -> PolicyConfig:
        """The defaults, with the keys that the patch sets; the same object each time."""
        return self.defaults if patch is None else overlay(self.defaults, patch)

    def policy_for(self, model: str) -> PolicyConfig:
        """The policy of a model if the request names no profile: that of the first match, else the defaults."""
        return self.over_defaults(self.match_for(model))

    def match_for(self, model: str) -> ModelConfig | None:
        """The first entry of `models` with a glob that matches; None for a name longer than MAX_MODEL_CHARS."""
        if not self.models or len(model) > MAX_MODEL_CHARS:
            return None
        index = _match_first(tuple(entry.match for entry in self.models), model)
        return None if index is None else self.models[index]

    def mode_of(self, policy: PolicyConfig) -> str:
        """The mode of requests with this policy, if neither their client nor `observe_share` makes it less."""
        return policy.mode or self.mode

    def tell_mode(self, policy: PolicyConfig) -> str:
        """The mode of requests with this policy, and the share of them that is only observed, for people."""
        mode, share = self.mode_of(policy), policy.observe_share
        if mode != "enforce" or share == 0:
            return mode
        return "observe" if share == 1 else f"enforce, {share:g} of sessions observed"

    def tell_modes(self) -> str:
        """The mode of the defaults, and that of each entry of `models` and each profile whose mode is another."""
        patches = {entry.match: entry for entry in self.models} | {
            f"profile {name}": profile for name, profile in self.profiles.items()
        }
        told = {name: self.tell_mode(self.over_defaults(patch)) for name, patch in patches.items()}
        general = self.tell_mode(self.defaults)
        return "; ".join([general, *(f"{name}: {mode}" for name, mode in told.items() if mode != general)])

    def upstream_for(self, name: str | None) -> UpstreamConfig:
        """The upstream with this name in `upstreams`; None is the main upstream."""
        return self.upstream if name is None else self.upstreams[name]

    def discovered_upstreams(self) -> tuple[UpstreamConfig, ...]:
        """The upstreams to ask for context windows before any request: those of policies with `context_window: auto`.

        A server that would not answer without a client's key is asked at that client's first request.
        """
        policies = (self.defaults, *map(self.over_defaults, (*self.models, *self.profiles.values())))
        names = {policy.upstream for policy in policies if policy.context_window == "auto"}
        upstreams = (self.upstream_for(name) for name in sorted(names, key=str))
        return tuple(upstream for upstream in upstreams if not upstream.needs_clients_key)

    def list_base_urls(self) -> tuple[str, ...]:
        """The URLs of all upstreams."""
        return self.upstream.base_url, *(upstream.base_url for upstream in self.upstreams.values())

    def prices_for(self, policy: PolicyConfig, upstream: UpstreamConfig) -> Literal["auto"] | PricesConfig:
        """The prices of this policy at this upstream: the policy's own, else the upstream's, else those at the top."""
        own = upstream.prices if policy.prices is None else policy.prices
        return self.prices if own is None else own

    @property
    def routes_by_model(self) -> bool:
        """Whether the model of a request may decide to which upstream it goes."""
        return any(policy.upstream is not None for policy in (self.defaults, *self.models))

    def list_reachable(self) -> tuple[str | None, ...]:
        """The names of the upstreams that requests can reach, the main one (None) first."""
        profiles = self.profiles.values() if self.allow_header_override else ()
        policies = (self.defaults, *map(self.over_defaults, (*self.models, *profiles)))
        return tuple(dict.fromkeys((None, *(policy.upstream for policy in policies))))

    def routed_by(self, environment: Mapping[str, str]) -> Self:
        """The configuration with the proxies of the environment. Raises UnusableProxyError."""
        upstreams = {name: upstream.routed_by(environment) for name, upstream in self.upstreams.items()}
        return self.model_copy(update={"upstream": self.upstream.routed_by(environment), "upstreams": upstreams})

    def as_worker_of(self, workers: int) -> Self:
        """The configuration of one of several workers; this object itself if there is one worker."""
        if workers == 1:
            return self
        parts = {"limits": self.limits.divide(workers), "client_keys": divide_clients(self.client_keys, workers)}
        return self.model_copy(update=parts)

    @property
    def clients(self) -> Clients:
        """The keys, names and limits of `client_keys`; the same object each time."""
        return _read_clients(Same(self.client_keys))

    def open_addresses(self) -> dict[str, str]:
        """The addresses that other machines can reach without a key, each with a warning."""
        found = {}
        if self.client_keys is None and not is_loopback(split_address(self.listen)[0]):
            found[self.listen] = "anyone who reaches this port can use the proxy; see client_keys"
        pages = self.metrics_listen
        if pages and self.admin_token is None and not is_loopback(split_address(pages)[0]):
            found[pages] = "anyone who reaches this port can read the metrics; see admin_token"
        return found


@lru_cache(16)
def _read_clients(client_keys: Same[ClientKeys | None]) -> Clients:
    return Clients.of(client_keys.value)


@lru_cache(1024)
def _match_first(globs: tuple[str, ...], model: str) -> int | None:
    return next((index for index, glob in enumerate(globs) if fnmatchcase(model, glob)), None)
