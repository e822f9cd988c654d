"""The way to the upstream: addresses, timeouts, and its faults in our words.

Law: a request goes to the host of the upstream that the configuration names, whatever the client writes.
"""

import re
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from proxy.config.network.forward_proxies import ForwardProxy
from proxy.config.schema import UpstreamConfig
from proxy.http.aiohttp_fixes import Connector, Request, Way, send_plainly
from proxy.http.credentials import drop_query_keys
from proxy.http.errors import PathNotAllowedError, ProxyError, UpstreamInvalidError, UpstreamUnreachableError
from proxy.http.headers import MAX_HEAD_BYTES, MAX_HEADER_FIELDS
from proxy.http.paths import is_allowed
from proxy.http.unreachable import (
    PROXY_AUTHENTICATION_REQUIRED,
    describe_large_head,
    describe_refusal,
    explain,
    name_host,
)

WHOLE_BYTES = 4 * 1024 * 1024
PIECE_BYTES = 256 * 1024
"""A body of more than the first is handed over in pieces of the second, each when the upstream has taken the last."""

SWITCHING_PROTOCOLS = 101
_PATH_OR_QUERY = re.compile(r"[/?].*", re.DOTALL)

READ_BYTES = 64 * 1024
"""Twice this is held of an answer that its client does not take yet, and what came with it."""
MAX_UPSTREAMS = 64
"""Whose ways are remembered at once."""
Body = bytes | tuple[bytes, ...] | AsyncIterator[bytes | memoryview]
"""Of a request: whole, in pieces that are all there, or as it comes."""


def target_url(upstream: UpstreamConfig, path: str, *, is_api: bool = False) -> URL:
    """`/v1/X` is base_url/X, any other path is on base_url's origin; `is_api` paths belong to base_url without /v1.

    The path goes out unchanged, percent-encoding, empty query and all, but for keys in the query of a client whose
    credential the upstream is not to be shown; the host is always the upstream's. Raises PathNotAllowedError where the
    operator's own key would go to a path that it is not for.
    """
    path = origin_form(path)
    if "?" in path and upstream.shown != "client":
        path = drop_query_keys(path)
    allowed_paths = None if upstream.api_key is None else tuple(upstream.allowed_paths)
    # Only what a codec claims is remembered: elsewhere in a path, and in a query, there may be a key.
    build = _build_url if is_api and "?" not in path else _build_url.__wrapped__
    return build(upstream.base_url, path, allowed_paths, is_api=is_api)


@lru_cache(maxsize=64)
def _build_url(base_url: str, path: str, allowed_paths: tuple[str, ...] | None, *, is_api: bool) -> URL:
    """The address of a path; `allowed_paths` if the operator's own key goes with it. Raises PathNotAllowedError."""
    base = urlsplit(base_url)
    if path == "/v1" or path.startswith(("/v1/", "/v1?")):
        path = base.path + path[3:]
    elif is_api:
        path = base.path + path
    if not path.startswith(("/", "*")):
        path = f"/{path}"
    if allowed_paths is not None and not is_allowed(path.partition("?")[0], base.path, allowed_paths):
        message = (
            "this proxy's own key goes only to paths under upstream.base_url, also behind dot segments; ask for /v1/X,"
            " or have the path listed in upstream.allowed_paths"
        )
        raise PathNotAllowedError(message)
    # All of it as the path: yarl would drop an empty query and a fragment.
    return URL.build(scheme=base.scheme, authority=base.netloc, path=path, encoded=True)


def origin_form(target: str) -> str:
    """The path and query of a request target; of an absolute one, only these count."""
    if target.startswith("/") or target == "*":
        return target
    start = _PATH_OR_QUERY.search(target.partition("://")[2])
    if start is None:
        return "/"
    return start[0] if start[0].startswith("/") else f"/{start[0]}"


async def read_bounded(answer: aiohttp.ClientResponse, max_bytes: int) -> bytes | None:
    """The whole body of an answer; None if it is longer than `max_bytes`, of which no more is read then.

    Faults of the body are raised as aiohttp's own.
    """
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > max_bytes:
            return None
    return bytes(body)


class _Known(NamedTuple):
    """What is found out of an upstream once."""

    upstream: UpstreamConfig
    way: Way
    proxy: ForwardProxy | None


class UpstreamClient:
    """Sends requests. One per proxy; close it when done."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=Connector(limit=0),
            request_class=Request,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"),
            read_bufsize=READ_BYTES,
            max_line_size=MAX_HEAD_BYTES,
            max_field_size=MAX_HEAD_BYTES,
            max_headers=MAX_HEADER_FIELDS,
        )
        self._ways: dict[int, _Known] = {}

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    def _find_way(self, upstream: UpstreamConfig) -> _Known:
        """Find out how requests to an upstream travel, and remember it."""
        timeout = aiohttp.ClientTimeout(
            total=None, connect=upstream.connect_timeout_seconds, sock_read=upstream.read_timeout_seconds
        )
        if len(self._ways) >= MAX_UPSTREAMS:  # those of configurations that were reloaded
            self._ways.clear()
        known = _Known(upstream, Way(timeout, upstream.tls or True), upstream.route.proxy)
        self._ways[id(upstream)] = known
        return known

    def send(
        self, method: str, url: URL, headers: CIMultiDict[str], body: Body | None, upstream: UpstreamConfig
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """The upstream's answer, its body not read yet. Leaving cancels what was not read.

        Raises UpstreamUnreachableError or UpstreamTimeoutError where no answer came, and UpstreamInvalidError where
        its head is too large or its body coded on this hop; faults of the answer's body are aiohttp's own, and those
        raised inside the block pass through.
        """
        known = self._ways.get(id(upstream))
        if known is None or known.upstream is not upstream:
            known = self._find_way(upstream)
        pieces = (body,) if isinstance(body, bytes) else body
        if isinstance(pieces, tuple):
            size_bytes = sum(map(len, pieces))
            if headers.get("Content-Length") != str(size_bytes):
                headers["Content-Length"] = str(size_bytes)  # where the client's stood
            body = _hand_over(pieces) if size_bytes > WHOLE_BYTES else pieces
        return _Sending(self._session, known, method, url, headers, body)


class _Sending:
    """A request that is sent while a block runs. A class: a generator for each request costs three times as much."""

    __slots__ = ("_body", "_headers", "_known", "_method", "_response", "_session", "_url")

    def __init__(
        self,
        session: aiohttp.ClientSession,
        known: _Known,
        method: str,
        url: URL,
        headers: CIMultiDict[str],
        body: Body | None,
    ) -> None:
        self._session = session
        self._known = known
        self._method = method
        self._url = url
        self._headers = headers
        self._body = body
        self._response: aiohttp.ClientResponse | None = None

    async def __aenter__(self) -> aiohttp.ClientResponse:
        """Send it, and wait for the head of its answer."""
        upstream, way, proxy = self._known
        url, headers, body = self._url, self._headers, self._body
        self._body = None  # aiohttp holds it for as long as it has to
        asks_upgrade = "Upgrade" in headers
        is_tunnelled = False
        try:
            if proxy is None and isinstance(body, tuple) and self._method == "POST" and not asks_upgrade:
                response = await send_plainly(self._session, url, headers, body, way)
            else:
                how = _choose_way(url, headers, way, proxy)
                is_tunnelled = "server_hostname" in how
                is_absolute = "proxy" in how and url.scheme == "http" and not is_tunnelled
                target = url.origin() if is_absolute and url.raw_path == "*" else url  # RFC 9112 section 3.2.4
                data = b"".join(body) if isinstance(body, tuple) else body
                response = await self._session.request(self._method, target, data=data, allow_redirects=False, **how)
        except (aiohttp.ClientError, OSError) as error:  # a timeout is an OSError
            if isinstance(error.__cause__, ProxyError):
                raise error.__cause__ from None  # the body's own fault
            raise explain(error, url, upstream) from error
        self._response = response
        try:
            _check_upgrade(response, url, asks_upgrade=asks_upgrade)
            _check_head(response, url)
            _check_codings(response, url)
            _check_proxy(response, url, proxy, is_tunnelled=is_tunnelled)
        except ProxyError:
            await self.__aexit__()
            raise
        return response

    async def __aexit__(self, *_: object) -> None:
        """Cancel what was not read."""
        response = self._response
        if response is not None:
            response.close() if not response.content.at_eof() else response.release()


def _check_upgrade(response: aiohttp.ClientResponse, url: URL, *, asks_upgrade: bool) -> None:
    if response.status == SWITCHING_PROTOCOLS and not asks_upgrade:
        message = f"{name_host(url)} switched protocols, which nobody asked for; check upstream.base_url"
        raise UpstreamUnreachableError(message)


def _choose_way(url: URL, headers: CIMultiDict[str], way: Way, proxy: ForwardProxy | None) -> dict[str, Any]:
    """How a request travels: its headers, timeouts, TLS, and the proxy with the password that only the proxy is shown.

    An upstream without TLS is asked in absolute form, but for a WebSocket, which has a tunnel.
    """
    how: dict[str, Any] = {"headers": headers, "timeout": way.timeout, "ssl": way.tls}
    if proxy is None:
        return how
    shown = {} if proxy.authorization is None else {"Proxy-Authorization": proxy.authorization}
    how |= {"proxy": proxy.url, "proxy_headers": shown}
    if url.scheme == "http" and "Upgrade" in headers:
        how["server_hostname"] = url.host
    elif url.scheme == "http":
        how["headers"] = CIMultiDict([*headers.items(), *shown.items()])
    return how


def _check_proxy(response: aiohttp.ClientResponse, url: URL, proxy: ForwardProxy | None, *, is_tunnelled: bool) -> None:
    """A proxy that wants a password says so in the upstream's place where there is no tunnel through it."""
    if proxy is None or url.scheme == "https" or is_tunnelled:
        return
    if response.status == PROXY_AUTHENTICATION_REQUIRED:
        raise UpstreamUnreachableError(describe_refusal(proxy, response.status, url))


def _check_head(response: aiohttp.ClientResponse, url: URL) -> None:
    if sum(map(len, chain.from_iterable(response.raw_headers))) > MAX_HEAD_BYTES:
        raise UpstreamInvalidError(describe_large_head(url))


def _check_codings(response: aiohttp.ClientResponse, url: URL) -> None:
    """Nobody would undo another transfer coding than chunked: we pass the bytes on, and the header ends on this hop."""
    if "Transfer-Encoding" not in response.headers:
        return
    codings = [coding.strip().lower() for coding in response.headers.getall("Transfer-Encoding")]
    if codings not in ([], ["chunked"]):
        message = f"{name_host(url)} answered with a transfer coding other than chunked, which nobody asked for"
        raise UpstreamInvalidError(message)


async def _hand_over(pieces: Iterable[bytes]) -> AsyncIterator[memoryview]:
    """Pieces that are not too large, none of them copied."""
    for piece in pieces:
        view = memoryview(piece)
        for start in range(0, len(view), PIECE_BYTES):
            yield view[start : start + PIECE_BYTES]
