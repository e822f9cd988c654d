"""The way to the upstream: addresses, headers, timeouts, and its faults in our words.

Law: the client's credential goes to the request's own upstream and to no other host. Hop-by-hop headers stay on their
hop; everything else passes as it is.
"""

import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from proxy.config.schema import UpstreamConfig
from proxy.http.aiohttp_fixes import Connector, Request, ending_with_connection
from proxy.http.errors import ProxyError, UpstreamInvalidError, UpstreamUnreachableError
from proxy.http.unreachable import PROXY_AUTHENTICATION_REQUIRED, describe_refusal, explain, name_host

HOP_BY_HOP = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade",
    }
)  # fmt: skip
"""Source: RFC 9110 section 7.6.1, with `proxy-connection` as browsers send it."""
NOT_FORWARDED = HOP_BY_HOP | {"host", "content-length", "expect"}
"""Of a request: said anew for the next hop, or said for this one."""
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
OWN_PREFIX = "x-trimtab-"
KEY_HEADER = f"{OWN_PREFIX}key"
"""For clients whose `Authorization` is the upstream's; it goes no further than here."""
SCHEMES = frozenset({"bearer", "basic"})
CREDENTIAL_HEADERS = ("authorization", "api-key", "x-api-key")
SUMMARY_HEADERS = frozenset({*CREDENTIAL_HEADERS, "openai-organization", "openai-project"})
"""What a summary's request takes over from the client's."""
AFFINITY_HEADERS = frozenset({"x-grok-conv-id", "x-session-affinity", "x-session-id"})
"""By these an upstream leads a session to where its prompt cache is: xAI, Fireworks, OpenRouter and other gateways."""
PIECE_BYTES = 256 * 1024
"""A larger body is handed over in pieces, so that a slow upstream holds up its sender and nothing else."""

SWITCHING_PROTOCOLS = 101
_PATH_OR_QUERY = re.compile(r"[/?].*", re.DOTALL)

Headers = list[tuple[str, str]]
Body = bytes | AsyncIterator[bytes]


def read_headers(raw_headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Headers in wire order and case, duplicates kept; bytes beyond ASCII survive."""
    return [
        (name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape"))
        for name, value in raw_headers
    ]


def drop_hop_by_hop(headers: Headers) -> Headers:
    """Without the headers of this hop: the standard ones and those that `Connection` names."""
    named = {
        token.strip().lower() for name, value in headers if name.lower() == "connection" for token in value.split(",")
    }
    return [(name, value) for name, value in headers if name.lower() not in HOP_BY_HOP and name.lower() not in named]


def answer_headers(headers: Headers) -> Headers:
    """What the client receives of an upstream's headers: all but this hop's own and what cannot be sent on."""
    return [(name, value) for name, value in drop_hop_by_hop(headers) if is_sendable(value)]


def is_sendable(text: str) -> bool:
    """Whether a header's value, or a reason, has no control character in it, which might split the answer."""
    return CONTROL.search(text) is None


def request_headers(headers: Headers, upstream: UpstreamConfig, *, identity: bool) -> CIMultiDict[str]:
    """What the upstream receives of a client's headers, in their order; `identity` asks it not to compress its answer.

    A header that comes again is spelt as it was at first: aiohttp would drop it otherwise.
    """
    own: dict[str, tuple[str, str]] = {}
    if identity:
        own["accept-encoding"] = ("Accept-Encoding", "identity")
    if upstream.api_key is not None:
        own |= dict.fromkeys(CREDENTIAL_HEADERS, ("Authorization", f"Bearer {upstream.api_key}"))
    spelt: dict[str, str] = {}
    forwarded: CIMultiDict[str] = CIMultiDict()
    for name, value in drop_hop_by_hop(headers):
        lower = name.lower().replace("_", "-")  # some servers cannot tell these apart
        if lower in {"host", "expect"} or lower.startswith(OWN_PREFIX) or ("_" in name and lower in NOT_FORWARDED):
            continue
        if lower not in own:
            forwarded.add(spelt.setdefault(lower, name), value)
        elif own[lower][0] not in forwarded:
            forwarded.add(*own[lower])
    for name, value in own.values():
        forwarded.setdefault(name, value)
    return forwarded


def find_credentials(headers: Headers) -> tuple[str, ...]:
    """What the client shows to be let in, in CREDENTIAL_HEADERS' order, each once; not a scheme with nothing behind."""
    found: dict[str, None] = {}
    for wanted in CREDENTIAL_HEADERS:
        values = (value for name, value in headers if name.lower() == wanted)
        found |= dict.fromkeys(value for value in values if value.strip().lower() not in {"", *SCHEMES})
    return tuple(found)


def target_url(upstream: UpstreamConfig, path: str, *, is_api: bool = False) -> URL:
    """`/v1/X` is base_url/X, any other path is on base_url's origin; `is_api` paths belong to base_url without /v1.

    The path goes out as it came in, percent-encoding, empty query and all; the host is always the upstream's.
    """
    base = urlsplit(upstream.base_url)
    path = origin_form(path)
    if path == "/v1" or path.startswith(("/v1/", "/v1?")):
        path = base.path + path[3:]
    elif is_api:
        path = base.path + path
    if not path.startswith(("/", "*")):
        path = f"/{path}"
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


class UpstreamClient:
    """Sends requests. One per proxy; close it when done."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=Connector(limit=0),
            request_class=Request,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"),
            max_line_size=64 * 1024,
            max_field_size=64 * 1024,
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    @asynccontextmanager
    async def send(
        self, method: str, url: URL, headers: CIMultiDict[str], body: Body | None, upstream: UpstreamConfig
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The upstream's answer, its body not read yet. Leaving cancels what was not read.

        Raises UpstreamUnreachableError or UpstreamTimeoutError where no answer came, and UpstreamInvalidError where
        its body is coded on this hop; faults of the answer's body are aiohttp's own, and those raised inside the block
        pass through.
        """
        if isinstance(body, bytes):
            if headers.get("Content-Length") != str(len(body)):
                headers["Content-Length"] = str(len(body))  # where the client's stood
            body = _pieces(body) if len(body) > PIECE_BYTES else body
        how = _choose_way(url, headers, upstream)
        is_absolute = "proxy" in how and url.scheme == "http" and "server_hostname" not in how
        target = url.origin() if is_absolute and url.raw_path == "*" else url  # RFC 9112 section 3.2.4
        try:
            response = await self._session.request(method, target, data=body, allow_redirects=False, **how)
        except (aiohttp.ClientError, OSError) as error:  # a timeout is an OSError
            if isinstance(error.__cause__, ProxyError):
                raise error.__cause__ from None  # the body's own fault
            raise explain(error, url, upstream) from error
        try:
            if response.status == SWITCHING_PROTOCOLS and "Upgrade" not in headers:
                message = f"{name_host(url)} switched protocols, which nobody asked for; check upstream.base_url"
                raise UpstreamUnreachableError(message)
            _check_codings(response, url)
            _check_proxy(response, url, upstream, is_tunnelled="server_hostname" in how)
            with ending_with_connection(response):
                yield response
        finally:
            response.close() if not response.content.at_eof() else response.release()


def _choose_way(url: URL, headers: CIMultiDict[str], upstream: UpstreamConfig) -> dict[str, Any]:
    """How a request travels: its headers, timeouts, TLS, and the proxy with the password that only the proxy is shown.

    An upstream without TLS is asked in absolute form, but for a WebSocket, which has a tunnel.
    """
    timeout = aiohttp.ClientTimeout(
        total=None, connect=upstream.connect_timeout_seconds, sock_read=upstream.read_timeout_seconds
    )
    how: dict[str, Any] = {"headers": headers, "timeout": timeout, "ssl": upstream.tls or True}
    proxy = upstream.route.proxy
    if proxy is None:
        return how
    shown = {} if proxy.authorization is None else {"Proxy-Authorization": proxy.authorization}
    how |= {"proxy": proxy.url, "proxy_headers": shown}
    if url.scheme == "http" and "Upgrade" in headers:
        how["server_hostname"] = url.host
    elif url.scheme == "http":
        how["headers"] = CIMultiDict([*headers.items(), *shown.items()])
    return how


def _check_proxy(response: aiohttp.ClientResponse, url: URL, upstream: UpstreamConfig, *, is_tunnelled: bool) -> None:
    """A proxy that wants a password says so in the upstream's place where there is no tunnel through it."""
    proxy = upstream.route.proxy
    if proxy is None or url.scheme == "https" or is_tunnelled:
        return
    if response.status == PROXY_AUTHENTICATION_REQUIRED:
        raise UpstreamUnreachableError(describe_refusal(proxy, response.status, url))


def _check_codings(response: aiohttp.ClientResponse, url: URL) -> None:
    """Nobody would undo another transfer coding than chunked: we pass the bytes on, and the header ends on this hop."""
    codings = [coding.strip().lower() for coding in response.headers.getall("Transfer-Encoding", ())]
    if codings not in ([], ["chunked"]):
        message = f"{name_host(url)} answered with a transfer coding other than chunked, which nobody asked for"
        raise UpstreamInvalidError(message)


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    view = memoryview(body)
    for start in range(0, len(view), PIECE_BYTES):
        yield bytes(view[start : start + PIECE_BYTES])
