"""The keys of the configuration, which policy a request gets, and every credential in it.

Law: frozen, and every key has a default. config/load.py reads the file. A limit holds for all workers together; each
worker gets its part. No text of a message is kept or sent anywhere unless a key here says so. Certificate files are
read once, with the configuration; a request keeps the certificates that it began with. The list of credentials is for
hiding them, never for using them.
"""

import ssl
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from math import ceil
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from trimtab.proxy.config.clients import ClientKeys, Clients, divide_clients
from trimtab.proxy.config.network import (
    OPENAI_HOST,
    Provider,
    Route,
    check_key,
    find_passwords,
    find_provider,
    find_route,
    find_trust_fault,
    is_loopback,
    list_passwords,
    make_context,
    read_host,
    require,
)
from trimtab.proxy.config.policy import (
    AutoPrices,
    ModelConfig,
    PolicyConfig,
    Same,
    Section,
    describe_model,
    inner,
    overlay,
)
from trimtab.proxy.config.policy import PricesConfig as PricesConfig  # noqa: PLC0414 - for the shell
from trimtab.proxy.config.values import (
    ENDPOINTS,
    Address,
    AuthoritiesFile,
    CertificateFile,
    NameGlob,
    OptionalKey,
    OptionalName,
    OptionalProxy,
    OwnKey,
    RootedPath,
    Store,
    Tenant,
    Url,
    Wanted,
    WorkerCount,
    split_address,
)

CacheSeconds = Annotated[
    Literal["auto"] | Annotated[float, Field(ge=0)], Wanted("auto, or a number of seconds, 0 or more")
]


class UpstreamConfig(Section):
    """A server that requests go to."""

    base_url: Url = "https://api.openai.com/v1"
    api_key: OptionalKey = Field(None, repr=False)
    credential: Literal["auto", "client", "key", "none"] = "auto"
    allowed_paths: tuple[RootedPath, ...] = ()
    strip_nonces: Literal["auto", "off"] = "auto"
    prices: AutoPrices | None = None
    cache: Literal["auto", "off"] = "auto"
    cache_seconds: CacheSeconds = "auto"
    connect_timeout_seconds: float = Field(10.0, gt=0)
    read_timeout_seconds: float = Field(600.0, gt=0)
    proxy: OptionalProxy = Field(None, repr=False)
    ca_file: AuthoritiesFile = None
    client_cert_file: CertificateFile = None
    client_key_file: OptionalName = None
    _is_named: bool = PrivateAttr(default=False)
    _route: Route = PrivateAttr(Route())
    _passwords: tuple[str, ...] = PrivateAttr(())
    _tls: ssl.SSLContext | None = PrivateAttr(None)
    _trust_fault: str | None = PrivateAttr(None)

    @property
    def shown(self) -> Literal["client", "key", "none"]:
        """The credential that the upstream gets: the client's own, the operator's `api_key`, or none."""
        if self.credential != "auto":
            return self.credential
        if self.api_key is not None:
            return "key"
        return "none" if self._is_named else "client"

    @property
    def provider(self) -> Provider | None:
        return find_provider(self.base_url)

    @property
    def needs_clients_key(self) -> bool:
        """Whether the server is known to list its models only to a key, and only clients have one."""
        is_known = self.provider == "anthropic" or read_host(self.base_url) == OPENAI_HOST
        return is_known and self.shown == "client"

    @property
    def strips_nonces(self) -> bool:
        """Whether what only makes each request different is removed for this server."""
        return self.strip_nonces == "auto" and self.provider != "anthropic"

    @property
    def bares_credential(self) -> bool:
        """Whether a credential goes to another machine without TLS, so that the network can read it."""
        parts = urlsplit(self.base_url)
        return self.shown != "none" and parts.scheme == "http" and not is_loopback(parts.hostname or "")

    @property
    def route(self) -> Route:
        """The proxy or direct way to the upstream; the environment counts only after `routed_by`."""
        return self._route

    @property
    def passwords(self) -> tuple[str, ...]:
        """The credentials in the environment's variables for proxies and traces; empty before `routed_by`."""
        return self._passwords

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The TLS settings, from the files as they were at the reading of the configuration; None: the system's own."""
        return self._tls

    @property
    def trust_fault(self) -> str | None:
        """What is wrong with the file of SSL_CERT_FILE; None if nothing is, or the variable is not set."""
        return self._trust_fault

    @field_validator("client_key_file")
    @classmethod
    def _check_client_key(cls, key_file: str | None, info: ValidationInfo) -> str | None:
        certificate_file = info.data.get("client_cert_file")
        if certificate_file is not None:
            check_key(certificate_file, key_file)
        elif key_file is not None and "client_cert_file" in info.data:
            raise ValueError("needs client_cert_file too")
        return key_file

    @model_validator(mode="after")
    def _prepare(self) -> Self:
        self._route = find_route(self.base_url, self.proxy, {})
        if self.ca_file is not None or self.client_cert_file is not None:
            self._tls = make_context(self.ca_file, self.client_cert_file, self.client_key_file)
        return self

    def named(self) -> Self:
        """The upstream as one of `upstreams`, for which `credential: auto` has another meaning."""
        named = self.model_copy()
        named._is_named = True  # noqa: SLF001 - of this class
        return named

    def routed_by(self, environment: Mapping[str, str]) -> Self:
        """The upstream with the environment's proxy, unless `proxy` is set. Raises UnusableProxyError."""
        routed = self.model_copy()
        routed._route = find_route(self.base_url, self.proxy, environment)  # noqa: SLF001 - of this class
        routed._passwords = list_passwords(environment)  # noqa: SLF001 - of this class
        proxy = routed._route.proxy  # noqa: SLF001 - of this class
        if "https" in {urlsplit(url).scheme for url in (self.base_url, proxy.url if proxy else "")}:
            routed._trust_fault = find_trust_fault(environment)  # noqa: SLF001 - of this class
        return routed


NamedUpstreams = dict[str, Annotated[UpstreamConfig, AfterValidator(UpstreamConfig.named)]]  # the type of `upstreams`

HeaderName = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$"),
    AfterValidator(str.lower),
    Wanted("the name of a header"),
]
FieldPath = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,60}(\.[A-Za-z0-9_-]{1,60})?$"), Wanted("NAME or NAME.NAME")]
MIN_RECORD_BYTES = 1024 * 1024  # chosen: less could not hold one request of a long session


class DashboardConfig(Section):
    """The page at /trimtab/ and its data."""

    enabled: bool = True
    keep_text: bool = False


class RecordConfig(Section):
    """Recordings of requests, for trimtab inspect and trimtab replay."""

    dir: Annotated[str, Field(min_length=1), Wanted("the path of a folder")]
    keep: Annotated[int, Field(ge=1)] | None = 10_000
    max_bytes: int = Field(1_073_741_824, ge=MIN_RECORD_BYTES)


class LogConfig(Section):
    """The log on standard error."""

    format: Literal["auto", "json", "text"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"


class SessionsConfig(Section):
    """Where clients say to which session a request belongs, for the dashboard, recordings and what sessions cost."""

    headers: tuple[HeaderName, ...] = (
        "x-claude-code-session-id",
        "x-claude-code-agent-id",
        "x-claude-code-parent-agent-id",
        "session-id",
        "session_id",
        "x-session-id",
        "x-session-affinity",
    )
    fields: tuple[FieldPath, ...] = ("prompt_cache_key", "metadata.user_id", "conversation")


class TracingConfig(Section):
    """Traces by OpenTelemetry; they need the extra otel."""

    otlp_endpoint: Url | None = None
    service_name: str = Field("trimtab", min_length=1, max_length=100)


MIN_MEMORY_BYTES = 512 * 1024 * 1024  # Of one process. Chosen: it holds an idle process, its caches and some requests.

MIN_HELD_BYTES = 1024  # chosen: the same as the least `max_body_bytes`


class LimitsConfig(Section):
    """How much work trimtab accepts, and how long it waits."""

    max_body_bytes: int = Field(33_554_432, ge=1024)
    max_concurrent_requests: int = Field(1024, ge=1)
    max_memory_bytes: int = Field(2_147_483_648, ge=MIN_MEMORY_BYTES)
    max_held_bytes: int | None = Field(None, ge=MIN_HELD_BYTES)
    max_plan_seconds: float = Field(2.0, gt=0)
    client_silence_seconds: float = Field(60.0, gt=0)
    shutdown_delay_seconds: float = Field(0.0, ge=0)
    drain_seconds: float = Field(20.0, ge=0)

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
    """Which further requests are compacted, which prompts are counted, and how people ask for a cut."""

    paths: dict[Annotated[RootedPath, AfterValidator(_check_odd_path)], Dialect] = Field({})
    count_tokens: Literal["forwarded", "passed"] = "forwarded"
    command: bool = False
    compress: bool = False


MAX_MODEL_CHARS = 256
"""Chosen: no model has a longer name. A longer one matches nothing, because globs over megabytes would take seconds."""


class Config(Section):
    """The whole configuration. Every key has a default."""

    listen: Address = "127.0.0.1:8790"
    client_keys: ClientKeys | None = Field(None, repr=False)
    admin_token: OwnKey | None = Field(None, repr=False)
    allowed_hosts: tuple[NameGlob, ...] = ()
    allowed_origins: tuple[NameGlob, ...] = ()
    metrics_listen: Address | None = None
    metrics_path: Annotated[str, Wanted("a path that begins with /")] = Field("/metrics", pattern="^/")
    workers: WorkerCount = 1
    mode: Literal["enforce", "observe", "off"] = "enforce"
    allow_header_override: bool = True
    upstream: UpstreamConfig = inner()
    upstreams: NamedUpstreams = Field({})
    models_list: Literal["main", "merged"] = "main"
    compaction: CompactionConfig = inner()
    tenant: Tenant = "authorization"
    store: Store = Field("sqlite", repr=False)
    store_ttl_seconds: float = Field(604_800, gt=0)
    prices: AutoPrices = "auto"
    dashboard: DashboardConfig = inner()
    record: RecordConfig | None = None
    sessions: SessionsConfig = inner()
    log: LogConfig = inner()
    tracing: TracingConfig = inner()
    limits: LimitsConfig = inner()
    defaults: PolicyConfig = inner()
    models: tuple[ModelConfig, ...] = ()
    profiles: dict[str, PolicyConfig] = Field({})

    @field_validator("metrics_path")
    @classmethod
    def _keep_off_the_api(cls, path: str) -> str:
        is_theirs = path.startswith(("/v1", "/trimtab")) or path.endswith(ENDPOINTS)
        require(not is_theirs, "must not begin with /v1 or /trimtab, nor end like /chat/completions")
        is_plain = path.isascii() and path.isprintable() and not set(path) & set(" %?#")
        require(is_plain, "must be plain ASCII without a space or any of % ? #")
        return path

    def over_defaults(self, patch: PolicyConfig | None) -> PolicyConfig:
        return self.defaults if patch is None else overlay(self.defaults, patch)

    def policy_of(self, entry: PolicyConfig | None, profile: PolicyConfig | None) -> PolicyConfig:
        """The policy of a request: that of its profile, if it names one, for the model that the entry describes."""
        if profile is None or entry is None:
            return self.over_defaults(profile or entry)
        return describe_model(Same(self.over_defaults(profile)), Same(profile), Same(entry))

    def change_policies(self, find_keys: Callable[[PolicyConfig], dict[str, Any]]) -> Self:
        def change(policy: PolicyConfig) -> PolicyConfig:
            return policy.model_copy(update=find_keys(policy))

        profiles = {name: change(profile) for name, profile in self.profiles.items()}
        models = tuple(map(change, self.models))
        return self.model_copy(update={"defaults": change(self.defaults), "models": models, "profiles": profiles})

    def policy_for(self, model: str) -> PolicyConfig:
        return self.over_defaults(self.match_for(model))

    def match_for(self, model: str) -> ModelConfig | None:
        if not self.models or len(model) > MAX_MODEL_CHARS:
            return None
        index = _match_first(tuple(entry.match for entry in self.models), model)
        return None if index is None else self.models[index]

    def mode_of(self, policy: PolicyConfig) -> str:
        return policy.mode or self.mode

    def tell_mode(self, policy: PolicyConfig) -> str:
        """The mode of requests with this policy, and the share of them that is only observed, for people."""
        mode, share = self.mode_of(policy), policy.observe_share
        if mode != "enforce" or share == 0:
            return mode
        return "observe" if share == 1 else f"enforce, {share:g} of sessions observed"

    def tell_modes(self) -> str:
        patches = {entry.match: entry for entry in self.models} | {
            f"profile {name}": profile for name, profile in self.profiles.items()
        }
        told = {name: self.tell_mode(self.over_defaults(patch)) for name, patch in patches.items()}
        general = self.tell_mode(self.defaults)
        return "; ".join([general, *(f"{name}: {mode}" for name, mode in told.items() if mode != general)])

    def upstream_for(self, name: str | None) -> UpstreamConfig:
        return self.upstream if name is None else self.upstreams[name]

    def discovered_upstreams(self) -> tuple[UpstreamConfig, ...]:
        """Those to ask before any request (`context_window: auto`); one that needs a client's key waits for it."""
        policies = (self.defaults, *map(self.over_defaults, (*self.models, *self.profiles.values())))
        names = {policy.upstream for policy in policies if policy.context_window == "auto"}
        upstreams = (self.upstream_for(name) for name in sorted(names, key=str))
        return tuple(upstream for upstream in upstreams if not upstream.needs_clients_key)

    def list_base_urls(self) -> tuple[str, ...]:
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
        profiles = self.profiles.values() if self.allow_header_override else ()
        policies = (self.defaults, *map(self.over_defaults, (*self.models, *profiles)))
        return tuple(dict.fromkeys((None, *(policy.upstream for policy in policies))))

    def routed_by(self, environment: Mapping[str, str]) -> Self:
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


MIN_NAMED_CHARS = 12  # chosen: as for the credentials of requests (proxy/exchange/arrival.py)
MAX_CACHED_CHARS = 256  # What is found in a longer name is not kept. Chosen: longer than names of models.


def list_secrets(config: Config) -> tuple[str, ...]:
    """The operator's credentials, also those in the environment, then the clients' keys; the same object each time."""
    return _list_secrets(Same(config))


def find_in_name(config: Config, name: str) -> tuple[str, ...]:
    """The credentials in a client's name for something, but for short ones, which may be a part by chance."""
    return (_find_in if len(name) <= MAX_CACHED_CHARS else _find_in.__wrapped__)(Same(config), name)


@lru_cache(1024)
def _find_in(config: Same[Config], name: str) -> tuple[str, ...]:
    return tuple(secret for secret in _list_secrets(config) if len(secret) >= MIN_NAMED_CHARS and secret in name)


@lru_cache(4)
def _list_secrets(config: Same[Config]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(secret for secret in _find_secrets(config.value) if secret))


def _find_secrets(config: Config) -> Iterator[str]:
    for upstream in (config.upstream, *config.upstreams.values()):
        yield upstream.api_key or ""
        yield from find_passwords(upstream.proxy or "")
    yield config.admin_token or ""
    yield from find_passwords(config.store)
    yield from config.upstream.passwords
    yield from config.clients.keys


Config.model_rebuild()  # now, because no garbage is searched while the command's modules are imported
