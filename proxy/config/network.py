"""How an upstream is reached: what its URL says, the HTTP proxy before it, the certificates; and a store's servers.

Law: of a provider, the host decides, whatever the scheme and the port: an upstream may be reached by plain HTTP through
something that adds TLS. A route is a pure function of the upstream's URL, its configuration and the environment.
Certificate files are read with the configuration, so an error is reported then, not at the first request. Only a proxy
itself gets its password; no message contains one, nor any of a private key. A URL that cannot be read has none.
"""

import base64
import ipaddress
import os
import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec

Provider = Literal["anthropic", "azure"]

_HOSTS: dict[Provider, tuple[str, ...]] = {
    "anthropic": ("anthropic.com", "claude.com"),
    "azure": ("openai.azure.com", "cognitiveservices.azure.com", "services.ai.azure.com"),
}
"""Each name stands for itself and for every host below it. Source: both providers' documentation."""

LOCAL_ENDS = (".localhost", ".local", ".internal", ".intranet", ".lan", ".home.arpa")
"""Ends of host names that no public server has. Sources: RFC 6761, RFC 6762, RFC 8375; ICANN reserves .internal."""
OPENAI_HOST = "api.openai.com"  # It has no /v1/messages, and answers no question without a key. Source: its reference.


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
    """The parts of a store's URL. url: that of one server; its credentials, database and options apply to all.

    hosts: those to ask first, sentinels or nodes. sentinel_options: the sentinels' own credentials. service: their name
    for the servers that they watch.
    """

    kind: Kind
    url: str = field(repr=False)
    hosts: tuple[tuple[str, int], ...] = ()
    service: str = ""
    sentinel_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)


def require(is_so: object, words: str) -> None:
    if not is_so:
        raise ValueError(words)


def has_several(store: str) -> bool:
    return "+" in store.partition("://")[0]


def read_servers(store: str) -> StoreServers:
    """The servers of a URL. Raises ValueError with what it must be; a URL of one server is not checked."""
    if not has_several(store):
        scheme, separator, rest = store.partition("://")
        return StoreServers("server", SCHEMES.get(scheme, scheme) + separator + rest)
    found = _PARTS.fullmatch(store)
    require(found, "must begin with redis+sentinel:// or redis+cluster:// if it names several servers")
    assert found is not None  # noqa: S101 - for the type checker
    scheme, is_sentinel = found["scheme"], found["kind"] == "sentinel"
    require(scheme in SCHEMES, "must begin with redis, rediss, valkey or valkeys before its +")
    credential, at, listed = found["authority"].rpartition("@")
    require(not credential.endswith(":"), "must not have an empty password; is its variable set to an empty text?")
    kind: Kind = "sentinel" if is_sentinel else "cluster"
    hosts = tuple(_read_host(host, _DEFAULT_PORTS[kind]) for host in listed.split(","))
    service, database = _read_path(found["path"], is_sentinel=is_sentinel)
    query, own = _split_query(found["query"].partition("#")[0].removeprefix("?"), is_sentinel=is_sentinel)
    host, port = hosts[0]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return StoreServers(kind, f"{SCHEMES[scheme]}://{credential}{at}{address}/{database}{query}", hosts, service, own)


def _read_host(text: str, default_port: int) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    require(
        host and port != 0 and not text.endswith(":"),
        "must name each server as HOST or HOST:PORT, with commas between them",
    )
    return host or "", port or default_port


def _read_path(path: str, *, is_sentinel: bool) -> tuple[str, int]:
    if not is_sentinel:
        require(path in {"", "/", "/0"}, "must name no database but 0: a Redis Cluster has no other")
        return "", 0
    service, _, database = path.removeprefix("/").partition("/")
    words = "must end with the sentinels' service name, and a database if any: redis+sentinel://host:port,host:port/SERVICE/DB"
    require(service and (not database or (database.isdecimal() and database.isascii())), words)
    return unquote(service), int(database or 0)


def _split_query(query: str, *, is_sentinel: bool) -> tuple[str, tuple[tuple[str, str], ...]]:
    options = parse_qsl(query, keep_blank_values=True)
    own = tuple((name.removeprefix("sentinel_"), value) for name, value in options if name in _SENTINEL_OPTIONS)
    require(is_sentinel or not own, "must have no sentinel_username or sentinel_password: a cluster has no sentinels")
    require(
        all(value for _, value in own),
        "must not have an empty sentinel_password; is its variable set to an empty text?",
    )
    others = [(name, value) for name, value in options if name not in _SENTINEL_OPTIONS]
    return (f"?{urlencode(others, quote_via=quote)}" if others else ""), own


DIRECT = "direct"  # the setting for no proxy, whatever the environment says
SETTING = "upstream.proxy"
_SCHEMES = frozenset({"http", "https"})
_PORTS = {"http": 80, "https": 443}
_ENCODE = "must end with the port; in a password, write / ? # @ as %2F %3F %23 %40"


class UnusableProxyError(ValueError):
    """A proxy's URL cannot be used. The message says why, and never repeats the URL."""


@dataclass(frozen=True, slots=True)
class ForwardProxy:
    """A proxy; its `url` has no password. told_by: the variable or key. authorization: None without a user name."""

    url: str
    told_by: str
    authorization: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """For messages: its host and port, and what named it."""
        return f"the proxy {urlsplit(self.url).netloc} ({self.told_by})"


class Route(msgspec.Struct, frozen=True):
    """How an upstream is reached: by `proxy`, else directly. told_by: why so; None if nothing names a proxy."""

    proxy: ForwardProxy | None = None
    told_by: str | None = None

    def __str__(self) -> str:
        """For messages; empty if nothing names a proxy."""
        if self.proxy is not None:
            return f"through {self.proxy}"
        return f"directly ({self.told_by})" if self.told_by is not None else ""


def find_route(base_url: str, setting: str | None, environment: Mapping[str, str]) -> Route:
    """The route to `base_url`: by `setting` (`direct` or a proxy's URL), else by the environment.

    In the environment, HTTPS_PROXY or HTTP_PROXY counts, by the upstream's scheme, else ALL_PROXY. A name in lower case
    counts first. The route is direct if NO_PROXY names the upstream, or if the upstream is on this machine: another
    machine's proxy could not reach it. Raises UnusableProxyError.
    """
    if setting is not None:
        return Route(told_by=SETTING) if setting == DIRECT else Route(read_proxy(setting, SETTING))
    parts = urlsplit(base_url)
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    found = next((one for name in (parts.scheme, "all") if (one := _find_variable(environment, f"{name}_proxy"))), None)
    if found is None:
        return Route()
    if is_loopback(host):
        return Route(told_by="it is on this machine")
    exempt = _find_variable(environment, "no_proxy")
    if exempt is not None and is_exempt(host, port, exempt[1]):
        return Route(told_by=exempt[0])
    name, address = found
    try:
        return Route(read_proxy(address if "://" in address else f"http://{address}", name))
    except UnusableProxyError as error:
        raise UnusableProxyError(f"{name}: {error}") from None


def _find_variable(environment: Mapping[str, str], name: str) -> tuple[str, str] | None:
    for spelt in (name, name.upper()):
        if spelt in environment:
            value = environment[spelt].strip()
            return (spelt, value) if value else None
    return None


def read_proxy(address: str, told_by: str) -> ForwardProxy:
    behind_host = re.split("[/?#]", address.partition("://")[2], maxsplit=1)[1:]
    if "@" in "".join(behind_host):  # what looks like the host is a part of the password
        raise UnusableProxyError(_ENCODE)
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        raise UnusableProxyError("must be http://HOST:PORT, with a port from 1 to 65535") from None
    if parts.scheme.startswith("socks"):
        message = "SOCKS proxies are not supported; use an http:// or https:// proxy, or upstream.proxy: direct"
        raise UnusableProxyError(message)
    if parts.username is not None and not parts.netloc.rpartition("@")[0].isascii():
        raise UnusableProxyError("must be plain ASCII; percent-encode characters like é in a password: %C3%A9")
    is_plain = address.isascii() and address.isprintable() and " " not in address
    if parts.scheme not in _SCHEMES or not parts.hostname or not is_plain or port == 0:
        message = "must be http://HOST:PORT or https://HOST:PORT, with USER:PASSWORD@ before the host if it needs them"
        raise UnusableProxyError(message)
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise UnusableProxyError(_ENCODE)
    where = parts.netloc.rpartition("@")[2]
    authorization = None
    if parts.username is not None:
        key = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        authorization = f"Basic {base64.b64encode(key).decode()}"
    return ForwardProxy(f"{parts.scheme}://{where}", told_by, authorization)


def is_exempt(host: str, port: int, no_proxy: str) -> bool:
    """Whether NO_PROXY names a host (in lower case) at a port.

    Commas or blanks separate its entries. An entry is `*`, a name, an address, or a network as ADDRESS/BITS. A name
    includes all names below it, with or without `.` or `*.` before it. Each entry except `*` may end in `:PORT`. Names
    are not resolved.
    """
    return any(_covers(entry, host.rstrip("."), port) for entry in no_proxy.lower().replace(",", " ").split())


def _covers(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    name, colon, wanted_port = entry.rpartition(":")
    if colon and wanted_port.isascii() and wanted_port.isdigit() and (":" not in name or name.endswith("]")):
        if int(wanted_port) != port:
            return False
        entry = name
    entry = entry.strip("[]")
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        suffix = entry.removeprefix("*").strip(".")
        return bool(suffix) and (host == suffix or host.endswith(f".{suffix}"))


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


@lru_cache(64)
def is_local(base_url: str) -> bool:
    """Whether an upstream is on this machine or in a private network, judged by its host name or IP address."""
    host = read_host(base_url)
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith(LOCAL_ENDS)


_KEY_MARK = "PRIVATE KEY-----"
_CERTIFICATE_MARK = "-----BEGIN CERTIFICATE-----"
_TRUSTED_MARK = "-----BEGIN TRUSTED CERTIFICATE-----"
ALPN = ["http/1.1"]  # the only protocol that trimtab speaks to upstreams


class CertificateFileError(ValueError):
    """A certificate file cannot be used. The message says why."""


class _PassphraseError(Exception):
    pass


def check_authorities(file: str) -> str:
    """Return the file itself. Raises CertificateFileError if it has no readable certificates of authorities."""
    _load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), file)
    return file


def find_trust_fault(environment: Mapping[str, str]) -> str | None:
    """What is wrong with the file of SSL_CERT_FILE, as a sentence. OpenSSL ignores such a file silently."""
    file = environment.get("SSL_CERT_FILE")
    if not file:
        return None
    try:
        check_authorities(file)
    except CertificateFileError as error:
        return f"SSL_CERT_FILE names {file}, which {error}"
    return None


def check_certificate(file: str) -> str:
    if _CERTIFICATE_MARK not in _read_file(file):
        raise CertificateFileError("contains no certificate in PEM form")
    return file


def check_key(certificate_file: str, key_file: str | None) -> None:
    """Raises CertificateFileError if the private key cannot be read. `key_file` None: it is in the same file."""
    if _KEY_MARK not in _read_file(key_file or certificate_file):
        raise CertificateFileError(
            "contains no private key in PEM form"
            if key_file
            else "is not enough: client_cert_file contains no private key"
        )
    _load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate_file, key_file)


def make_context(ca_file: str | None, certificate_file: str | None, key_file: str | None) -> ssl.SSLContext:
    """A TLS context: the system's authorities, `ca_file`'s, a client certificate. Raises CertificateFileError."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(ALPN)
    if ca_file is not None:
        # Trust the operator's certificate even if it is not a root. Python does so by default since 3.13.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        _load_authorities(context, ca_file)
    if certificate_file is not None:
        _load_certificate(context, certificate_file, key_file)
    return context


def _read_file(file: str) -> str:
    try:
        return _expand(file).read_text(encoding="ascii", errors="replace")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise CertificateFileError(f"cannot be read: {(reason or 'no file can have this name').lower()}") from error


def _expand(file: str) -> Path:
    return Path(os.path.expanduser(file))  # noqa: PTH111 - Path.expanduser raises if there is no such user


def _load_authorities(context: ssl.SSLContext, file: str) -> None:
    text = _read_file(file)
    if _CERTIFICATE_MARK not in text and _TRUSTED_MARK not in text:
        raise CertificateFileError("contains no certificate in PEM form")
    try:
        context.load_verify_locations(_expand(file))
    except (ssl.SSLError, OSError, ValueError) as error:
        raise CertificateFileError("contains a certificate that cannot be read") from error


def _load_certificate(context: ssl.SSLContext, file: str, key_file: str | None) -> None:
    def refuse() -> str:
        raise _PassphraseError  # without this function, OpenSSL would ask for the passphrase on the terminal

    key = _expand(key_file) if key_file else None
    try:
        context.load_cert_chain(_expand(file), key, refuse)
    except _PassphraseError as error:
        raise CertificateFileError("contains a private key with a passphrase; store it without one") from error
    except (ssl.SSLError, OSError, ValueError) as error:
        belongs = getattr(error, "reason", "") == "KEY_VALUES_MISMATCH"
        message = "does not belong to client_cert_file" if belongs else "or its certificate is damaged"
        raise CertificateFileError(message) from error
