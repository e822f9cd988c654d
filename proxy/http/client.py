"""Requests to the upstream: their URLs, timeouts and errors.

Law: a request goes to the host that the configuration names, whatever the client writes into its target. The operator's
own key goes to a path only if that is under a folder in every way that a server may read it: with dot segments
resolved, with escapes undone once or repeatedly, with backslashes as slashes, with parameters and blanks dropped. A
path is only checked, never rewritten.
"""

import asyncio
import re
import unicodedata
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes, urlsplit

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from trimtab.proxy.config.network import ForwardProxy
from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.http.aiohttp_fixes.client import Connector, SendSettings, send_plainly
from trimtab.proxy.http.aiohttp_fixes.tunnels import Request
from trimtab.proxy.http.content_coding import read_along
from trimtab.proxy.http.credentials import drop_query_keys
from trimtab.proxy.http.errors import PathNotAllowedError, ProxyError, UpstreamInvalidError, UpstreamUnreachableError
from trimtab.proxy.http.headers import MAX_HEAD_BYTES, MAX_HEADER_FIELDS
from trimtab.proxy.http.unreachable import (
    PROXY_AUTHENTICATION_REQUIRED,
    describe_large_head,
    describe_refusal,
    explain,
    name_host,
)

MAX_ESCAPES = 4  # Readings of a segment, each with one more level undone. Chosen: real paths have two levels at most.
_ODD = re.compile(r"[%\\;#?]|\.\.|/\.?/|/\.?$|[^!-~]")
"""Characters that servers may read in several ways. A path without them has only one reading."""
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SLASHES = re.compile(r"[/\\]")
_LEFT_OUT = re.compile(r"[\x00-\x20\x7f]|[;#?].*", re.DOTALL)
"""What servers may drop from a segment: blanks, control characters, parameters, and everything after `#` or `?`.

Source: RFC 3986 section 3.3; WHATWG URL, section 4.4.
"""


def is_allowed(path: str, base_path: str, allowed_paths: Sequence[str]) -> bool:
    """Whether a path without query is under `base_path` or one of `allowed_paths`: a path, or a folder `/PATH/*`."""
    folders = (base_path, *(allowed.removesuffix("/*") for allowed in allowed_paths if allowed.endswith("/*")))
    return path in allowed_paths or any(_is_under(path, folder) for folder in folders)


def _is_under(path: str, folder: str) -> bool:
    if path != folder and not path.startswith(f"{folder}/"):
        return False
    below = path[len(folder) :]
    return _ODD.search(below) is None or _stays(below)


def _stays(below: str) -> bool:
    """Whether no reading of a path leaves the folder in which it begins.

    The depth is a lower bound for all readings: a segment counts as one level down at most, however many slashes it
    hides, and as many levels up as its worst reading has.
    """
    depth = 0
    for segment in below.split("/"):
        readings = list(_read(segment))
        if not readings:
            return False
        ups = max(sum(part == ".." for part in reading) for reading in readings)
        is_nothing = any(all(part in {"", "."} for part in reading) for reading in readings)
        depth += -ups if ups else 0 if is_nothing else 1
        if depth < 0:
            return False
    return True


def _read(segment: str) -> Iterator[list[str]]:
    """Each way to read a segment, as its parts; none if it is malformed or has more than MAX_ESCAPES levels."""
    readings: list[list[str]] = []
    for _ in range(MAX_ESCAPES):
        plain = unicodedata.normalize("NFKC", segment)  # some servers read a full-width dot as a dot
        if "\x00" in plain:  # some servers end the path at NUL
            return
        readings.append([_LEFT_OUT.sub("", part) for part in _SLASHES.split(plain)])
        if "%" not in segment:
            yield from readings
            return
        if _BROKEN_ESCAPE.search(segment):
            return
        try:
            segment = unquote_to_bytes(segment).decode()
        except UnicodeError:  # for example an overlong encoding of a dot or a slash
            return


WHOLE_BYTES = 4 * 1024 * 1024  # A larger body is sent in pieces. Chosen: usual requests go out in one write.
PIECE_BYTES = 256 * 1024  # Size of these pieces. Chosen: bounds what waits in the connection's buffer.

SWITCHING_PROTOCOLS = 101  # Source: RFC 9110 section 15.2.2
_PATH_OR_QUERY = re.compile(r"[/?].*", re.DOTALL)

READ_BYTES = 64 * 1024  # Of a response; aiohttp's default. It stops reading at twice this.
MAX_UPSTREAMS = 64  # For which `_Known` is kept. Chosen: more than a configuration has; reloads leave old ones behind.
Body = bytes | tuple[bytes, ...] | AsyncIterator[bytes | memoryview]
"""A request's body: whole, in pieces that have all arrived, or as an iterator over what is still to arrive."""


def target_url(upstream: UpstreamConfig, path: str, *, is_api: bool = False) -> URL:
    """The upstream URL of a request target.

    `/v1/X` becomes base_url/X. Any other path is put on base_url's origin; if `is_api`, it is put under base_url. All
    else in path and query is sent byte for byte. Only keys in the query are removed, if the upstream must not see the
    client's credential. Raises PathNotAllowedError if the operator's own key would go to a path that is not allowed.
    """
    path = origin_form(path)
    if "?" in path and upstream.shown != "client":
        path = drop_query_keys(path)
    allowed_paths = None if upstream.api_key is None else tuple(upstream.allowed_paths)
    # Only the paths that dialects document are cached: any other path, and any query, may hold a key.
    build = _build_url if is_api and "?" not in path else _build_url.__wrapped__
    return build(upstream.base_url, path, allowed_paths, is_api=is_api)


@lru_cache(maxsize=64)
def _build_url(base_url: str, path: str, allowed_paths: tuple[str, ...] | None, *, is_api: bool) -> URL:
    """`allowed_paths` is None unless the operator's own key is sent. Raises PathNotAllowedError."""
    base = urlsplit(base_url)
    if path == "/v1" or path.startswith(("/v1/", "/v1?")):
        path = base.path + path[3:]
    elif is_api:
        path = base.path + path
    if not path.startswith(("/", "*")):
        path = f"/{path}"
    if allowed_paths is not None and not is_allowed(path.partition("?")[0], base.path, allowed_paths):
        raise PathNotAllowedError(
            "this proxy sends its own key only to paths under upstream.base_url, with dot segments resolved; request"
            " /v1/X, or have the path listed in upstream.allowed_paths"
        )
    # The query is passed as part of the path, because yarl would drop an empty query and a fragment.
    return URL.build(scheme=base.scheme, authority=base.netloc, path=path, encoded=True)


def origin_form(target: str) -> str:
    """The path and query of a request target; scheme and host of an absolute target are dropped."""
    if target.startswith("/") or target == "*":
        return target
    start = _PATH_OR_QUERY.search(target.partition("://")[2])
    if start is None:
        return "/"
    return start[0] if start[0].startswith("/") else f"/{start[0]}"


async def read_bounded(answer: aiohttp.ClientResponse, max_bytes: int) -> bytes | None:
    """A response's decoded body; None if it is longer, and the rest stays unread. Raises aiohttp's errors."""
    body, reader = bytearray(), read_along(answer.headers)
    async for chunk in answer.content.iter_any():
        for text in (chunk,) if reader is None else reader.read_in_steps(chunk):
            body += text
            if len(body) > max_bytes:
                return None
            await asyncio.sleep(0)
    return bytes(body)


class _Known(NamedTuple):
    upstream: UpstreamConfig
    settings: SendSettings
    proxy: ForwardProxy | None


class UpstreamClient:
    """Sends requests to upstreams. There is one for the whole process; close it when done."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=Connector(limit=0),  # limits.max_concurrent_requests bounds the requests
            request_class=Request,
            cookie_jar=aiohttp.DummyCookieJar(),  # cookies of one client must not reach another
            auto_decompress=False,
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"),
            read_bufsize=READ_BYTES,
            max_line_size=MAX_HEAD_BYTES,
            max_field_size=MAX_HEAD_BYTES,
            max_headers=MAX_HEADER_FIELDS,
        )
        self._upstreams: dict[int, _Known] = {}

    async def close(self) -> None:
        await self._session.close()

    def _prepare_upstream(self, upstream: UpstreamConfig) -> _Known:
        timeout = aiohttp.ClientTimeout(
            total=None, connect=upstream.connect_timeout_seconds, sock_read=upstream.read_timeout_seconds
        )
        if len(self._upstreams) >= MAX_UPSTREAMS:  # some are left from configurations before a reload
            self._upstreams.clear()
        known = _Known(upstream, SendSettings(timeout, upstream.tls or True), upstream.route.proxy)
        self._upstreams[id(upstream)] = known
        return known

    def send(
        self, method: str, url: URL, headers: CIMultiDict[str], body: Body | None, upstream: UpstreamConfig
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Context manager: sends the request and gives the response, its body not read yet.

        Leaving the block closes the connection if the body was not read to its end. Entering it raises
        UpstreamUnreachableError or UpstreamTimeoutError if no response came, and UpstreamInvalidError if the response
        has too large a head or a transfer coding other than chunked. Reading the body raises aiohttp's own errors.
        """
        return self.prepare(method, url, headers, body, upstream)

    def prepare(
        self, method: str, url: URL, headers: CIMultiDict[str], body: Body | None, upstream: UpstreamConfig
    ) -> "Sending":
        """As `send`, and tells how far the request has come."""
        known = self._upstreams.get(id(upstream))
        if known is None or known.upstream is not upstream:
            known = self._prepare_upstream(upstream)
        sending = Sending(self._session, known, method, url, headers)
        sending.body = pieces = (body,) if isinstance(body, bytes) else body
        if isinstance(pieces, tuple):
            size_bytes = sum(map(len, pieces))
            if headers.get("Content-Length") != str(size_bytes):
                headers["Content-Length"] = str(size_bytes)  # keeps the position of the client's header
            if size_bytes > WHOLE_BYTES:
                sending.body = _hand_over(pieces, sending)
        return sending


UNCONNECTED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError)
"""aiohttp's errors without a connection to the upstream; the last one is a forward proxy that refuses a tunnel."""


class Sending:
    """The context manager of `UpstreamClient.send`. It is a class because a generator costs three times as much.

    is_sent: the whole request is on its way; not known if its body still arrives, or if it goes through a proxy.
    """

    __slots__ = ("_headers", "_known", "_method", "_response", "_session", "_url", "body", "is_sent")

    def __init__(
        self, session: aiohttp.ClientSession, known: _Known, method: str, url: URL, headers: CIMultiDict[str]
    ) -> None:
        self._session = session
        self._known = known
        self._method = method
        self._url = url
        self._headers = headers
        self._response: aiohttp.ClientResponse | None = None
        self.body: Body | None = None
        self.is_sent = False

    @property
    def is_unanswered(self) -> bool:
        """Whether the upstream has got the whole request, and its response has not begun."""
        return self.is_sent and self._response is None

    def note_sent(self) -> None:
        self.is_sent = True

    async def __aenter__(self) -> aiohttp.ClientResponse:
        upstream, settings, proxy = self._known
        url, headers, body = self._url, self._headers, self.body
        self.body = None  # frees the memory as soon as aiohttp has sent the body
        asks_upgrade = "Upgrade" in headers
        is_tunnelled = False
        try:
            if proxy is None and isinstance(body, tuple) and self._method == "POST" and not asks_upgrade:
                response = await send_plainly(self._session, url, headers, body, settings, self.note_sent)
            else:
                how = _choose_arguments(url, headers, settings, proxy)
                is_tunnelled = "server_hostname" in how
                is_absolute = "proxy" in how and url.scheme == "http" and not is_tunnelled
                target = url.origin() if is_absolute and url.raw_path == "*" else url  # RFC 9112 section 3.2.4
                data = b"".join(body) if isinstance(body, tuple) else body
                response = await self._session.request(self._method, target, data=data, allow_redirects=False, **how)
        except (aiohttp.ClientError, OSError) as error:  # a timeout is an OSError
            if isinstance(error.__cause__, ProxyError):
                raise error.__cause__ from None  # reading the client's body failed, not the upstream
            told = explain(error, url, upstream)
            told.is_unsent = isinstance(error, UNCONNECTED)
            raise told from error
        self._response = response
        try:
            _check_head(response, url, asks_upgrade=asks_upgrade)
            # Without a tunnel, a 407 of the forward proxy arrives as the response to the request itself.
            is_of_proxy = not is_tunnelled and url.scheme != "https"
            if proxy is not None and is_of_proxy and response.status == PROXY_AUTHENTICATION_REQUIRED:
                raise UpstreamUnreachableError(describe_refusal(proxy, response.status, url))
        except ProxyError:
            await self.__aexit__()
            raise
        return response

    async def __aexit__(self, *_: object) -> None:
        """Close the connection, or keep it if the body was read to its end."""
        response = self._response
        if response is not None and not response.closed:  # else the connection was given back with its last byte
            response.close() if not response.content.at_eof() else response.release()


def _choose_arguments(
    url: URL, headers: CIMultiDict[str], settings: SendSettings, proxy: ForwardProxy | None
) -> dict[str, Any]:
    """Arguments for aiohttp. By a forward proxy, plain HTTP goes in absolute form, and a WebSocket through a tunnel."""
    how: dict[str, Any] = {"headers": headers, "timeout": settings.timeout, "ssl": settings.tls}
    if proxy is None:
        return how
    shown = {} if proxy.authorization is None else {"Proxy-Authorization": proxy.authorization}
    how |= {"proxy": proxy.url, "proxy_headers": shown}
    if url.scheme == "http" and "Upgrade" in headers:
        how["server_hostname"] = url.host
    elif url.scheme == "http":
        how["headers"] = CIMultiDict([*headers.items(), *shown.items()])
    return how


def _check_head(response: aiohttp.ClientResponse, url: URL, *, asks_upgrade: bool) -> None:
    if response.status == SWITCHING_PROTOCOLS and not asks_upgrade:
        message = f"{name_host(url)} switched protocols without being asked to; check upstream.base_url"
        raise UpstreamUnreachableError(message)
    if sum(map(len, chain.from_iterable(response.raw_headers))) > MAX_HEAD_BYTES:
        raise UpstreamInvalidError(describe_large_head(url))
    if "Transfer-Encoding" not in response.headers:
        return
    # The body is passed on as bytes and Transfer-Encoding is dropped, so the client could not undo any other coding.
    codings = [coding.strip().lower() for coding in response.headers.getall("Transfer-Encoding")]
    if codings != ["chunked"]:
        message = f"{name_host(url)} answered with a transfer coding other than chunked, which was not asked for"
        raise UpstreamInvalidError(message)


async def _hand_over(pieces: Iterable[bytes], sending: Sending) -> AsyncIterator[memoryview]:
    """The bytes in pieces of at most PIECE_BYTES, not copied. `sending` is told when all were taken."""
    for piece in pieces:
        view = memoryview(piece)
        for start in range(0, len(view), PIECE_BYTES):
            yield view[start : start + PIECE_BYTES]
    sending.note_sent()
