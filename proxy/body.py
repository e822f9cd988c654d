"""A chat request's body: read whole, split into messages, or only peeked at."""

import re
from collections.abc import AsyncIterator
from functools import partial

from aiohttp import web

from proxy.codecs.chat import ChatRequest, read_damaged_request, read_request
from proxy.codecs.message import UndecodableError
from proxy.threads import INLINE_BYTES, LARGE_BODY_BYTES, run_work

PEEK_BYTES = 64 * 1024
_MODEL = re.compile(rb'"model"\s*+:\s*+"([^"\\]{0,256})"')


async def read_body(request: web.BaseRequest, max_bytes: int) -> bytes | list[bytes]:
    """The whole body; its first pieces where it is larger than `max_bytes`."""
    pieces: list[bytes] = []
    size = 0
    announced = int(request.headers.get("Content-Length", "0"))
    async for piece in request.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if max(size, announced) > max_bytes:
            return pieces
    return b"".join(pieces)


async def chain(pieces: list[bytes], request: web.BaseRequest) -> AsyncIterator[bytes]:
    """The body whose first pieces were read already, piece by piece."""
    for piece in pieces:
        yield piece
    async for piece in request.content.iter_any():
        yield piece


def peek_model(body: bytes | list[bytes]) -> str:
    """The model that a body names which is not decoded; the empty string where its beginning names none."""
    beginning = body if isinstance(body, bytes) else b"".join(body)
    found = _MODEL.search(beginning[:PEEK_BYTES])
    return found[1].decode("utf-8", "replace") if found else ""


async def read_chat(body: bytes) -> ChatRequest | None:
    """The request split into messages; None where it is no chat request, and the upstream shall judge."""
    try:
        return await run_work(partial(read_request, body), in_thread=len(body) > LARGE_BODY_BYTES)
    except UndecodableError:
        pass
    try:
        return await run_work(partial(read_damaged_request, body), in_thread=len(body) > INLINE_BYTES)
    except UndecodableError:
        return None
