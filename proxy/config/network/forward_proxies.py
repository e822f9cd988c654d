"""Which HTTP proxy, if any, is between trimtab and an upstream.

Law: a pure function of the upstream's URL, its configuration and the environment. Only the proxy itself gets its
password; no message contains it.
"""

import base64
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

DIRECT = "direct"
"""The setting for no proxy, whatever the environment says."""
SETTING = "upstream.proxy"
_SCHEMES = frozenset({"http", "https"})
_DEFAULT_PORTS = {"http": 80, "https": 443}
_ENCODE = "must end with the port; in a password, write / ? # @ as %2F %3F %23 %40"


class UnusableProxyError(ValueError):
    """A proxy's URL cannot be used. The message says why, and never repeats the URL."""


@dataclass(frozen=True, slots=True)
class ForwardProxy:
    """A proxy. Its `url` has no password; `told_by` is the variable or key that names it.

    `authorization` is the value of `Proxy-Authorization`; None if the URL has no user name.
    """

    url: str
    told_by: str
    authorization: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """For messages: its host and port, and what named it."""
        return f"the proxy {urlsplit(self.url).netloc} ({self.told_by})"


@dataclass(frozen=True, slots=True)
class Route:
    """How an upstream is reached: through `proxy`, or directly if that is None.

    `told_by` is the reason for the direct way; None if nothing names a proxy.
    """

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
    host, port = parts.hostname or "", parts.port or _DEFAULT_PORTS[parts.scheme]
    found = next((one for name in (parts.scheme, "all") if (one := _read(environment, f"{name}_proxy"))), None)
    if found is None:
        return Route()
    if is_loopback(host):
        return Route(told_by="it is on this machine")
    exempt = _read(environment, "no_proxy")
    if exempt is not None and is_exempt(host, port, exempt[1]):
        return Route(told_by=exempt[0])
    name, address = found
    try:
        return Route(read_proxy(address if "://" in address else f"http://{address}", name))
    except UnusableProxyError as error:
        message = f"{name}: {error}"
        raise UnusableProxyError(message) from None


def _read(environment: Mapping[str, str], name: str) -> tuple[str, str] | None:
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
        message = "must be http://HOST:PORT, with a port from 1 to 65535"
        raise UnusableProxyError(message) from None
    if parts.scheme.startswith("socks"):
        message = "SOCKS proxies are not supported; use an http:// or https:// proxy, or upstream.proxy: direct"
        raise UnusableProxyError(message)
    if parts.username is not None and not parts.netloc.rpartition("@")[0].isascii():
        message = "must be plain ASCII; percent-encode characters like é in a password: %C3%A9"
        raise UnusableProxyError(message)
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
    return any(_names(entry, host.rstrip("."), port) for entry in no_proxy.lower().replace(",", " ").split())


def _names(entry: str, host: str, port: int) -> bool:
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
