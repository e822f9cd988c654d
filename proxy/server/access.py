"""Access: `client_keys` admit clients, `admin_token` admits readers of our own pages; pages of other sites are refused.

Law: the decision uses the request's headers only and is made before the body is read. If no key is required, a page of
another site is refused, unless the configuration names its origin. On a loopback listener, a page that reaches us
through DNS rebinding is refused too.
"""

import re
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from ipaddress import ip_address

from aiohttp import web

from trimtab.proxy.account.books import name_day
from trimtab.proxy.config.network import is_loopback
from trimtab.proxy.config.schema import Config
from trimtab.proxy.config.values import split_address
from trimtab.proxy.http.errors import PagesClosedError, PageUnauthorizedError, SiteNotAllowedError, UnauthorizedError
from trimtab.proxy.http.headers import KEY_HEADER, Headers, find_key


def admit_client(config: Config, headers: Headers) -> str | None:
    """The client's key, as it is configured; None if no `client_keys` are set. Raises UnauthorizedError."""
    if config.client_keys is None:
        return None
    key = _find_client_key(config, headers, takes_basic=False)
    if key is None:
        raise UnauthorizedError(
            "this proxy requires a key of its own: send one of its client_keys as Authorization: Bearer KEY, as"
            f" api-key, x-api-key or x-goog-api-key; or as {KEY_HEADER}, if Authorization is for the upstream"
        )
    return key


def _find_client_key(config: Config, headers: Headers, *, takes_basic: bool) -> str | None:
    """The client's key that a request holds; None for none. Raises UnauthorizedError if it has ended."""
    clients = config.clients
    key = find_key(clients.keys, headers, takes_basic=takes_basic)
    end = clients.ends.get(key or "", "") if clients.ends else ""
    if end and end <= name_day(time.time()):
        message = f"this client's key ended on {end} (UTC); ask whoever runs this proxy for another one"
        raise (PageUnauthorizedError if takes_basic else UnauthorizedError)(message)
    return key


def admit_reader(config: Config, headers: Headers) -> str | None:
    """Admit a reader of our pages: with `admin_token`, or anybody if there are neither a token nor `client_keys`.

    Return the name of the client if it is a client's key, which opens that client's own sessions only; else None. A
    token or key may be the password of basic authentication, so that browsers can send it. Raises UnauthorizedError,
    PagesClosedError.
    """
    if config.admin_token is not None and find_key((config.admin_token,), headers, takes_basic=True) is not None:
        return None
    name = config.clients.names.get(_find_client_key(config, headers, takes_basic=True) or "")
    if name is not None:
        return name
    if config.admin_token is not None:
        message = "this page requires admin_token: send it as Authorization: Bearer TOKEN, or as a browser's password"
        raise PageUnauthorizedError(message)
    if config.client_keys is not None:
        message = "this page shows what all clients did, so no client's key opens it: set admin_token and send it"
        raise PagesClosedError(message + "; or set metrics_listen to an address that only you can reach")
    return None


CONTAINER_HOSTS = frozenset({"host.docker.internal", "host.containers.internal"})
"""Names by which containers reach a listener on their host's loopback, forwarded by Docker Desktop and Podman.

Safe for DNS rebinding: no public name can exist under `.internal`. Source: ICANN, board resolution of 2024-07-29.
"""
APP_SCHEMES = frozenset({"app", "tauri", "vscode-file", "vscode-webview"})
"""Origin schemes of pages that belong to installed programs; no web page can have such an origin.

Source: the list that Ollama allows, without `file`, which a downloaded page may have. Cursor sends `vscode-file`.
"""
MAX_HOST_CHARS = 300  # Longest `Host`. Source: names have at most 253 characters (RFC 1035); a port is added.
_OWN_SITES = frozenset({"same-origin", "none"})
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:/@?#%\s]*)(?::[0-9]*)?")
_PLAIN_ORIGIN = re.compile(r"[A-Za-z0-9:/.\[\]-]{1,100}")


def admit_site(config: Config, request: web.BaseRequest, *, of_pages: bool, is_page: bool = False) -> None:
    """Refuse a request that a web page of another site has sent, as far as its head shows that.

    of_pages: the request came in at `metrics_listen`.
    is_page: it is for one of our own pages that need a key, if any is set. A browser that knows the key as a password
        sends it with requests of other sites, too.

    Raises SiteNotAllowedError.
    """
    has_own_address = of_pages and config.metrics_listen is not None
    has_key = (config.admin_token if has_own_address else config.client_keys) is not None
    if has_key and not is_page:
        return  # a page would have to know the key
    headers = request.headers
    hosts = headers.getall("Host", ())
    origins, sites = headers.getall("Origin", ()), headers.getall("Sec-Fetch-Site", ())
    if origins or sites:
        _check_origin(config, origins, sites, hosts)
    if has_key:
        return  # a browser knows no password for the name that was bound to our address
    listen = config.metrics_listen if has_own_address and config.metrics_listen else config.listen
    if not all(len(host) <= MAX_HOST_CHARS and _is_name_of(host, listen, config.allowed_hosts) for host in hosts):
        raise SiteNotAllowedError(
            "the Host of this request is not a known name of this machine; use localhost or an IP address,"
            " or list the name in allowed_hosts"
        )


def _check_origin(config: Config, origins: Sequence[str], sites: Sequence[str], hosts: Sequence[str]) -> None:
    """Raises SiteNotAllowedError if an origin is neither ours nor allowed, or `Sec-Fetch-Site` says cross-site."""
    strange = [
        origin
        for origin in origins
        if origin.partition("://")[0].lower() not in APP_SCHEMES
        and not any(fnmatchcase(origin.lower(), glob.lower()) for glob in config.allowed_origins)
    ]
    if origins and not strange:
        return
    own = {f"{scheme}://{host}".lower() for scheme in ("http", "https") for host in hosts}
    is_own = all(origin.lower() in own for origin in strange)
    if not is_own or not all(site.strip().lower() in _OWN_SITES for site in sites):
        origin = next((origin for origin in strange if _PLAIN_ORIGIN.fullmatch(origin)), None)
        example = "" if origin is None else f' (["{origin}"])'
        message = f"a page of another site sent this request; to allow it, list its Origin in allowed_origins{example}"
        raise SiteNotAllowedError(message)


@lru_cache(maxsize=256)
def _is_name_of(host: str, listen: str, globs: tuple[str, ...]) -> bool:
    """Whether a `Host` is safe from DNS rebinding. Off loopback every name is, because we do not know its names."""
    own = split_address(listen)[0].lower()
    if not is_loopback(own):
        return True
    matched = _HOST.fullmatch(host.strip().lower())
    if matched is None:
        return False
    name = matched[1].removesuffix(".")
    if not name or is_loopback(name) or name == own or name in CONTAINER_HOSTS:
        return True
    if any(fnmatchcase(name, glob.lower()) for glob in globs):
        return True
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
