"""What a URL says: its host, the provider that the host belongs to, the passwords in it, and the servers of a store.

Law: of a provider, the host decides, whatever the scheme and the port: an upstream may be reached by plain HTTP through
something that adds TLS. Passwords are values to hide, never values to use. A URL that cannot be read has none.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

Provider = Literal["anthropic", "azure"]

_HOSTS: dict[Provider, tuple[str, ...]] = {
    "anthropic": ("anthropic.com", "claude.com"),
    "azure": ("openai.azure.com", "cognitiveservices.azure.com", "services.ai.azure.com"),
}
"""Each name stands for itself and for every host below it. Source: both providers' documentation."""

OPENAI_HOST = "api.openai.com"
"""It has no /v1/messages, and answers no question without a key. Source: its reference."""


@lru_cache(maxsize=64)
def read_host(url: str) -> str:
    """The host of a URL, in small letters and without the dot of the root; empty if it names none."""
    return (urlsplit(url).hostname or "").removesuffix(".")


@lru_cache(maxsize=64)
def find_provider(url: str) -> Provider | None:
    name = f".{read_host(url)}"
    for provider, hosts in _HOSTS.items():
        if name.endswith(tuple(f".{known}" for known in hosts)):
            return provider
    return None


PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy")
"""Their URLs may hold a password. Names in upper case count, too. Source: curl."""
HEADER_VARIABLES = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")
"""Headers for the collector of traces, `name=value,name=value`, percent-encoded. Source: OpenTelemetry's specification
of the OTLP exporter."""


def find_passwords(url: str) -> Iterator[str]:
    """The passwords in a URL, as written and decoded; the user if it has no password, because it may be a token."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
    except ValueError:
        return
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    written = [password or user, *(value for name, value in parse_qsl(parts.query) if "password" in name)]
    yield from (form for secret in written for form in (secret, unquote(secret)) if form)


def list_passwords(environment: Mapping[str, str]) -> tuple[str, ...]:
    found: list[str] = []
    for name in PROXY_VARIABLES:
        for spelt in (name, name.upper()):
            found += find_passwords(environment.get(spelt, ""))
    for name in HEADER_VARIABLES:
        values = [unquote(pair.partition("=")[2]).strip() for pair in environment.get(name, "").split(",")]
        found += [word for value in values for word in (value, value.rpartition(" ")[2]) if word]  # without the scheme
    return tuple(dict.fromkeys(found))


# The servers of a store's URL: a single one, sentinels, or the nodes of a cluster. `valkey` means the same as `redis`.
#     redis://[USER:PASSWORD@]HOST:PORT/DB
#     redis+sentinel://[USER:PASSWORD@]HOST:PORT,HOST:PORT/SERVICE/DB
#     redis+cluster://[USER:PASSWORD@]HOST:PORT,HOST:PORT
# No message repeats the URL, which may contain a password. Source of the forms with several hosts: the URLs of the
# packages `limits` and `redis-sentinel-url`.
SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss"}
_DEFAULT_PORTS = {"server": 6379, "sentinel": 26379, "cluster": 6379}
_PARTS = re.compile(
    r"(?P<scheme>\w+)\+(?P<kind>sentinel|cluster)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?P<query>.*)"
)
_SENTINEL_OPTIONS = ("sentinel_username", "sentinel_password")

Kind = Literal["server", "sentinel", "cluster"]


@dataclass(frozen=True, slots=True)
class StoreServers:
    """The parts of a store's URL. `url` is that of one server; its credentials, database and options apply to all.

    `hosts` are those to ask first: the sentinels, or nodes of the cluster. `sentinel_options` are the sentinels' own
    credentials. `service` is the sentinels' name for the servers that they watch.
    """

    kind: Kind
    url: str = field(repr=False)
    hosts: tuple[tuple[str, int], ...] = ()
    service: str = ""
    sentinel_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)


def has_several(store: str) -> bool:
    return "+" in store.partition("://")[0]


def read_servers(store: str) -> StoreServers:
    """The servers of a URL. Raises ValueError with what the URL must be, if it names several servers and is wrong.

    A URL of one server is not checked here.
    """
    if not has_several(store):
        scheme, separator, rest = store.partition("://")
        return StoreServers("server", SCHEMES.get(scheme, scheme) + separator + rest)
    found = _PARTS.fullmatch(store)
    _require(found, "must begin with redis+sentinel:// or redis+cluster:// if it names several servers")
    assert found is not None  # noqa: S101 - for the type checker
    scheme, is_sentinel = found["scheme"], found["kind"] == "sentinel"
    _require(scheme in SCHEMES, "must begin with redis, rediss, valkey or valkeys before its +")
    credential, at, listed = found["authority"].rpartition("@")
    _require(not credential.endswith(":"), "must not have an empty password; is its variable set to an empty text?")
    kind: Kind = "sentinel" if is_sentinel else "cluster"
    hosts = tuple(_read_host(host, _DEFAULT_PORTS[kind]) for host in listed.split(","))
    service, database = _read_path(found["path"], is_sentinel=is_sentinel)
    query, own = _split_query(found["query"].partition("#")[0].removeprefix("?"), is_sentinel=is_sentinel)
    host, port = hosts[0]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    url = f"{SCHEMES[scheme]}://{credential}{at}{address}/{database}{query}"
    return StoreServers(kind, url, hosts, service, own)


def _read_host(text: str, default_port: int) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    _require(
        host and port != 0 and not text.endswith(":"),
        "must name each server as HOST or HOST:PORT, with commas between them",
    )
    return host or "", port or default_port


def _read_path(path: str, *, is_sentinel: bool) -> tuple[str, int]:
    if not is_sentinel:
        _require(path in {"", "/", "/0"}, "must name no database but 0: a Redis Cluster has no other")
        return "", 0
    service, _, database = path.removeprefix("/").partition("/")
    words = "must end with the sentinels' service name, and a database if any: redis+sentinel://host:port,host:port/SERVICE/DB"
    _require(service and (not database or (database.isdecimal() and database.isascii())), words)
    return unquote(service), int(database or 0)


def _split_query(query: str, *, is_sentinel: bool) -> tuple[str, tuple[tuple[str, str], ...]]:
    options = parse_qsl(query, keep_blank_values=True)
    own = tuple((name.removeprefix("sentinel_"), value) for name, value in options if name in _SENTINEL_OPTIONS)
    _require(is_sentinel or not own, "must have no sentinel_username or sentinel_password: a cluster has no sentinels")
    _require(
        all(value for _, value in own),
        "must not have an empty sentinel_password; is its variable set to an empty text?",
    )
    others = [(name, value) for name, value in options if name not in _SENTINEL_OPTIONS]
    return (f"?{urlencode(others, quote_via=quote)}" if others else ""), own


def _require(is_so: object, words: str) -> None:
    if not is_so:
        raise ValueError(words)
