"""The way to the upstream: addresses, headers, timeouts, and its faults in our words.

Law: the client's credential goes to the request's own upstream and to no other host. Hop-by-hop headers stay on their
hop; everything else passes as it is.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from proxy.config import UpstreamConfig
from proxy.connections import Connector, ending_with_connection
from proxy.errors import UpstreamTimeoutError, UpstreamUnreachableError

HOP_BY_HOP = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade",
    }
)  # fmt: skip
"""Source: RFC 9110 section 7.6.1, with `proxy-connection` as browsers send it."""
OWN_PREFIX = "x-trimtab-"
SCHEMES = frozenset({"bearer", "basic"})
CREDENTIAL_HEADERS = ("authorization", "api-key", "x-api-key")
SUMMARY_HEADERS = frozenset({*CREDENTIAL_HEADERS, "openai-organization", "openai-project"})
"""What a summary's request takes over from the client's."""
PIECE_BYTES = 256 * 1024
"""A larger body is handed over in pieces, so that a slow upstream holds up its sender and nothing else."""

SWITCHING_PROTOCOLS = 101

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


def request_headers(headers: Headers, upstream: UpstreamConfig, *, identity: bool) -> CIMultiDict[str]:
    """What the upstream receives of a client's headers; `identity` asks it not to compress its answer."""
    forwarded: CIMultiDict[str] = CIMultiDict()
    for name, value in drop_hop_by_hop(headers):
        lower = name.lower()
        if lower in {"host", "content-length", "expect"} or lower.startswith(OWN_PREFIX):
            continue
        if identity and lower == "accept-encoding":
            continue
        if upstream.api_key is not None and lower in CREDENTIAL_HEADERS:
            continue
        forwarded.add(name, value)
    if identity:
        forwarded["Accept-Encoding"] = "identity"
    if upstream.api_key is not None:
        forwarded["Authorization"] = f"Bearer {upstream.api_key}"
    return forwarded


def find_credential(headers: Headers) -> str:
    """What the client shows to be let in; the empty string where it shows nothing, or a scheme with nothing behind."""
    shown = {name.lower(): value for name, value in headers}
    values = (shown.get(name, "") for name in CREDENTIAL_HEADERS)
    return next((value for value in values if value.strip().lower() not in {"", *SCHEMES}), "")


def target_url(upstream: UpstreamConfig, path: str, *, is_api: bool = False) -> URL:
    """`/v1/X` is base_url/X, any other path is on base_url's origin; `is_api` paths belong to base_url without /v1.

    The path goes out as it came in, percent-encoding and all; the host is always the upstream's.
    """
    if not path.startswith("/"):  # absolute form: only its path counts
        parts = urlsplit(path)
        rest = parts.path if parts.path.startswith("/") else "/"
        path = rest + (f"?{parts.query}" if parts.query else "")
    if path == "/v1" or path.startswith(("/v1/", "/v1?")):
        return URL(upstream.base_url + path[3:], encoded=True)
    if is_api:
        return URL(upstream.base_url + path, encoded=True)
    base = urlsplit(upstream.base_url)
    return URL(f"{base.scheme}://{base.netloc}{path}", encoded=True)


class UpstreamClient:
    """Sends requests. One per proxy; close it when done."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=Connector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"),
            max_line_size=64 * 1024,
            max_field_size=64 * 1024,
        )

    @property
    def session(self) -> aiohttp.ClientSession:
        """The session, for WebSockets."""
        return self._session

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    @asynccontextmanager
    async def send(
        self, method: str, url: URL, headers: CIMultiDict[str], body: Body | None, upstream: UpstreamConfig
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The upstream's answer, its body not read yet. Leaving cancels what was not read.

        Raises UpstreamUnreachableError or UpstreamTimeoutError where no answer came; faults of the answer's body are
        aiohttp's own, and those raised inside the block pass through.
        """
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=upstream.connect_timeout_seconds, sock_read=upstream.read_timeout_seconds
        )
        if isinstance(body, bytes) and len(body) > PIECE_BYTES:
            headers["Content-Length"] = str(len(body))
            body = _pieces(body)
        try:
            response = await self._session.request(
                method, url, headers=headers, data=body, timeout=timeout, allow_redirects=False
            )
        except TimeoutError as error:
            message = f"{url.host}:{url.port} did not answer in time; see upstream.*_timeout_seconds"
            raise UpstreamTimeoutError(message) from error
        except (aiohttp.ClientError, OSError) as error:
            message = f"{url.host}:{url.port} could not be reached ({type(error).__name__}); check upstream.base_url"
            raise UpstreamUnreachableError(message) from error
        try:
            if response.status == SWITCHING_PROTOCOLS:
                message = f"{url.host}:{url.port} switched protocols, which nobody asked for"
                raise UpstreamUnreachableError(message)
            with ending_with_connection(response):
                yield response
        finally:
            response.close() if not response.content.at_eof() else response.release()


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    view = memoryview(body)
    for start in range(0, len(view), PIECE_BYTES):
        yield bytes(view[start : start + PIECE_BYTES])
