"""The upstream's answer on its way to the client, chunk by chunk.

Law: what arrives leaves at once and unchanged; the tap reads a copy. An answer that breaks off is never closed as if
it were whole.
"""

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp
import msgspec
import orjson
from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter
from multidict import CIMultiDict

from proxy.http.errors import UpstreamInvalidError
from proxy.http.headers import Headers, answer_headers, is_sendable, read_headers
from proxy.telemetry.pace import Pace
from proxy.wire.chat.answer import MAX_EVENT_BYTES, UNKNOWN_FORM, ResponseTap

STALLED_SECONDS = 600.0
"""A client that takes nothing of its answer for so long has gone without a word."""
_RESET = struct.pack("ii", 1, 0)
"""Linger for no time: closing sends a reset."""
MAX_REASON_BYTES = 2000
"""Of an error that is not in OpenAI's form, in the event that tells of it."""


def loses_what_follows(request: web.BaseRequest) -> bool:
    """Whether what came at once behind a request is lost: the parser drops it behind an upgrade that it does not know.

    Then the connection must end with the answer, so that the client asks again.
    """
    return request.headers.get("Upgrade", "websocket").lower() != "websocket"


class PlainResponse(web.StreamResponse):
    """A response with no header that the upstream did not send, but for `Date` and what frames the body."""

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send the head."""
        if loses_what_follows(request):
            self.force_close()
        return await super().prepare(request)

    async def _prepare_headers(self) -> None:
        given = {"content-type", "server"} & {name.lower() for name in self.headers}
        await super()._prepare_headers()
        for name in {"content-type", "server"} - given:
            self.headers.popall(name, None)


class OwnRequest(web.BaseRequest):
    """A request whose answer, if it is our own, names no library in `Server`."""

    async def _prepare_hook(self, resp: web.StreamResponse) -> None:
        if not isinstance(resp, PlainResponse):
            resp.headers.popall("Server", None)


@dataclass(slots=True)
class Relayed:
    """How an answer went. Times are of the monotonic clock, 0.0 where there was no such moment.

    `pace` is that of a stream's text; of an answer that is no stream it stays empty.
    """

    status: int = 0
    last_byte_at: float = 0.0
    pace: Pace = field(default_factory=Pace)
    broken: bool = False
    client_left: bool = False


async def relay_answer(
    request: web.BaseRequest,
    answer: aiohttp.ClientResponse,
    added: Headers,
    tap: ResponseTap | None,
    relayed: Relayed,
    held: bytes = b"",
) -> web.StreamResponse:
    """Pass the answer on, with the headers `added`; `relayed` is filled in on the way. Raises UpstreamInvalidError.

    `held` are the first bytes of its body where those were read already.
    """
    response = await begin_answer(request, answer, added, relayed)
    return await _copy(request, answer, response, tap, relayed, held)


async def begin_answer(
    request: web.BaseRequest, answer: aiohttp.ClientResponse, added: Headers, relayed: Relayed
) -> PlainResponse:
    """Pass on the answer's status and headers, with the headers `added`. Raises UpstreamInvalidError."""
    if answer.status < 200:
        message = f"the upstream answered with status {answer.status}, which ends no request; check upstream.base_url"
        raise UpstreamInvalidError(message)
    relayed.status = answer.status
    headers = CIMultiDict(answer_headers(read_headers(answer.raw_headers)))
    headers.extend(added)
    reason = answer.reason if is_sendable(answer.reason or "") else None
    response = PlainResponse(status=answer.status, reason=reason, headers=headers)
    if request.version < HttpVersion11 and "Content-Length" not in headers:
        response.force_close()  # its end is the connection's
    await response.prepare(request)
    return response


async def replace_answer(
    request: web.BaseRequest, answer: aiohttp.ClientResponse, added: Headers, relayed: Relayed, body: bytes
) -> web.StreamResponse:
    """Pass the answer on with another body, which is JSON."""
    relayed.status = answer.status
    relayed.last_byte_at = time.monotonic()
    headers = CIMultiDict(answer_headers(read_headers(answer.raw_headers)))
    for name in ("Content-Length", "Content-Encoding", "Content-Type"):
        headers.popall(name, None)
    headers.extend([("Content-Type", "application/json"), *added])
    response = PlainResponse(status=answer.status, reason=answer.reason, headers=headers)
    response.content_length = len(body)
    await response.prepare(request)
    with suppress(ConnectionError):  # the client has left
        await response.write_eof(body)
    return response


async def relay_into_stream(
    request: web.BaseRequest,
    answer: aiohttp.ClientResponse,
    stream: web.StreamResponse,
    tap: ResponseTap | None,
    relayed: Relayed,
    held: bytes = b"",
) -> web.StreamResponse:
    """The same where an event stream has been begun already: an answer that is none becomes one event of it."""
    relayed.status = answer.status
    return await _copy(request, answer, stream, tap, relayed, held)


async def _copy(
    request: web.BaseRequest,
    answer: aiohttp.ClientResponse,
    response: web.StreamResponse,
    tap: ResponseTap | None,
    relayed: Relayed,
    held: bytes,
) -> web.StreamResponse:
    """The answer's body, chunk by chunk, and its end; as one event where a stream was begun and this is none."""
    as_event = _is_stream(response) and not _is_stream(answer)
    event = bytearray()
    try:
        async for chunk in _chain(held, answer):
            arrived = time.monotonic()
            if as_event:
                event += chunk[: MAX_EVENT_BYTES - len(event)]
            else:
                await write_chunk(response, chunk, relayed)
            if tap is not None:
                tap.feed(chunk)
                relayed.pace.note(tap.text_chars, arrived)
    except (aiohttp.ClientPayloadError, aiohttp.ClientConnectionError, TimeoutError):
        relayed.broken = not relayed.client_left
        reset(request)
        return response
    relayed.last_byte_at = time.monotonic()
    await response.write_eof(_write_event(answer.status, bytes(event)) if as_event else b"")
    if tap is not None:
        tap.finish()
    return response


def _ends_with_connection(answer: aiohttp.ClientResponse) -> bool:
    """Whether only the connection's end tells where the body ends."""
    return "Content-Length" not in answer.headers and "Transfer-Encoding" not in answer.headers


def reset(request: web.BaseRequest) -> None:
    """End the client's connection so that it notices: without this, the end looks regular where no length was given."""
    if request.transport is not None:
        reset_transport(request.transport)


def reset_transport(transport: asyncio.Transport) -> None:
    """End a connection so that the other side notices."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        with suppress(OSError):  # it is gone already
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    transport.abort()


def _is_stream(answer: aiohttp.ClientResponse | web.StreamResponse) -> bool:
    return answer.status == 200 and answer.content_type == "text/event-stream"


async def _chain(held: bytes, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The body, chunk by chunk. Raises aiohttp's errors where it was cut, by a reset as well."""
    upstream = answer.connection.protocol if answer.connection is not None else None
    if held:
        yield held
    async for chunk in answer.content.iter_any():
        yield chunk
    if _ends_with_connection(answer) and upstream is not None and isinstance(upstream.exception(), OSError):
        raise aiohttp.ClientPayloadError  # aiohttp takes this for an end


def _write_event(status: int, body: bytes) -> bytes:
    """An answer that is no stream as one event: on one line, and an error in OpenAI's form, with the lost status."""
    try:
        members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except UNKNOWN_FORM:
        members = {}
    if "error" not in members and status != 200:
        reason = body[:MAX_REASON_BYTES].decode("utf-8", "replace").strip() or "no reason given"
        error = {"message": f"status {status}: {reason}", "type": "upstream_error", "param": None, "code": str(status)}
        body = orjson.dumps({"error": error})
    return b"data: " + body.translate(None, b"\r\n") + b"\n\n"


async def write_chunk(response: web.StreamResponse, chunk: bytes, relayed: Relayed) -> None:
    """Write a chunk; a failure is the client's, who has left, or reads no more."""
    try:
        async with asyncio.timeout(STALLED_SECONDS):
            await response.write(chunk)
    except (ConnectionError, TimeoutError):
        relayed.client_left = True
        raise
