"""Sends what the client gets before the answer: comments while it waits for a summary, and the head of a stream.

Law: a stream's comments pass at once, and its first event as soon as it is complete; no other byte is held back. No
answer is held for long. A client that waits for a summary gets the first comment only after the time in `Patience`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TypeVar

import aiohttp
import msgspec
from multidict import CIMultiDict

from trimtab.proxy.http.aiohttp_fixes.server import PlainResponse
from trimtab.proxy.http.content_coding import Reader, read_along
from trimtab.proxy.http.headers import Headers
from trimtab.proxy.http.relay import EVENTS, Reply, begin_answer
from trimtab.proxy.tasks import Tasks
from trimtab.proxy.wire.answers.sse import FirstEvent
from trimtab.proxy.wire.codec import Codec
from trimtab.proxy.wire.json import BYTE_ORDER_MARK
from trimtab.proxy.wire.overflow import REFUSAL_STATUSES, Overflow, read_overflow

MAX_REFUSAL_BYTES = 64 * 1024  # A longer one is passed on unread. Chosen: far above the recorded refusals.
MAX_EMPTY_ANSWER_BYTES = 4 * 1024  # The same with status 200: it is more than an error. Chosen: above recorded errors.
MAX_HELD_SECONDS = 2.0  # chosen: a refusal arrives whole; a slower answer is passed on as it arrives
COMMENT = b": trimtab is writing a summary\n\n"
_EVENTS = (b"data:", b"event:", b"id:", b"retry:", b":")
_FAULTS = (aiohttp.ClientPayloadError, aiohttp.ClientConnectionError, TimeoutError)
"""Safe to swallow: the next read, in http/relay.py, raises them again."""

T = TypeVar("T")


class Patience(msgspec.Struct, frozen=True):
    """When a waiting client gets comments. Source: balancers close idle connections after 30 s, CDNs after 100 s."""

    first_comment_seconds: float = 5.0
    comment_seconds: float = 10.0


class Opening(msgspec.Struct, frozen=True):
    """The beginning of an answer. held: not passed on yet. overflow: the refusal for length in it. text: its words."""

    status: int
    held: bytes = b""
    overflow: Overflow | None = None
    text: bytes = b""


async def read_opening(
    reply: Reply, answer: aiohttp.ClientResponse, codec: Codec, write_headers: Callable[[], Headers]
) -> Opening:
    """Read just enough of an answer to recognise a refusal for length.

    The head of a stream is passed on at once, with the headers from `write_headers`. An answer with a Content-Length is
    not begun, because a second attempt's answer would have another length.
    """
    status, kind = answer.status, answer.content_type
    reader = read_along(answer.headers) if "Content-Encoding" in answer.headers else None
    if status == 200 and kind in reply.event_kinds:
        begins = reader is None and reply.response is None and answer.content_length is None
        if begins:
            await begin_answer(reply, answer, write_headers(), is_stream=True)
        first, held = await _read_first_event(answer, reply, codec, reader)
        if kind != EVENTS and _is_other(first.held):
            reply.event_kinds = (EVENTS,)
            reply.is_stream = reply.is_stream and not begins
        return Opening(status, held, codec.read_empty_answer(first.data) if first.data else None)
    if status == 200 and kind == "application/json":
        if (answer.content_length or 0) > MAX_EMPTY_ANSWER_BYTES:
            return Opening(status)
        held, is_whole = await _read_short(answer, MAX_EMPTY_ANSWER_BYTES)
    elif status in REFUSAL_STATUSES:
        held, is_whole = await _read_short(answer, MAX_REFUSAL_BYTES)
    else:
        return Opening(status)
    text = held if reader is None else reader.feed(held)
    is_judged = is_whole and (text or status != 200)
    read = codec.read_empty_answer if status == 200 else partial(read_overflow, status)
    return Opening(status, held, read(text) if is_judged else None, text)


async def keep_alive_while(reply: Reply, request_id: str, patience: Patience, work: Coroutine[None, None, T]) -> T:
    """Return the result of `work`. If it takes long, begin the answer as an event stream and send comments."""
    tasks = Tasks(lambda _: None)  # the `await` below raises its error
    task = tasks.start(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=patience.first_comment_seconds)
        with suppress(ConnectionError):  # the client has left; the server will cancel this task
            if not done and reply.response is None:
                await _begin_stream(reply, request_id)
            while not done and reply.response is not None:
                await reply.response.write(COMMENT)
                done, _ = await asyncio.wait({task}, timeout=patience.comment_seconds)
        return await task
    finally:
        await tasks.close()


async def _begin_stream(reply: Reply, request_id: str) -> None:
    headers = CIMultiDict([("Content-Type", "text/event-stream; charset=utf-8"), ("Cache-Control", "no-cache")])
    headers["x-trimtab-request-id"] = request_id
    await reply.begin(PlainResponse(headers=headers))


async def _read_first_event(
    answer: aiohttp.ClientResponse, reply: Reply, codec: Codec, reader: Reader | None
) -> tuple[FirstEvent, bytes]:
    """Read up to the first event, and what is held then. If the answer has been begun, what precedes it is passed on.

    A greeting is held no longer than MAX_HELD_SECONDS, and neither is a compressed stream, which passes unchanged.
    Without the content type of a stream of events, what cannot be one is held no longer.
    """
    is_begun, coded = reader is None and reply.response is not None, bytearray()
    first, loop = codec.hold_first_event(keeps_all=not is_begun), asyncio.get_running_loop()
    with suppress(*_FAULTS):
        async with asyncio.timeout(None if reader is None else MAX_HELD_SECONDS) as limit:
            async for chunk in answer.content.iter_any():
                coded += b"" if reader is None else chunk
                passed = first.feed(chunk if reader is None else reader.feed(chunk))
                if passed and is_begun:
                    await reply.write(passed)
                is_other = answer.content_type != EVENTS and _is_other(first.held)
                if first.is_done or is_other or (reader is not None and (reader.is_behind or reader.is_lost)):
                    break
                if first.is_greeted and limit.when() is None:
                    limit.reschedule(loop.time() + MAX_HELD_SECONDS)
            else:
                first.finish()
    return first, bytes(first.held if reader is None else coded)


async def _read_short(answer: aiohttp.ClientResponse, max_bytes: int) -> tuple[bytes, bool]:
    """Read the beginning of the body; return it, and whether it is the whole body.

    Reading stops at white space (some servers send it to keep the connection open), at events despite another content
    type, and after MAX_HELD_SECONDS.
    """
    held = bytearray()
    try:
        if answer.content.is_eof():  # the whole body arrived with the head
            held += answer.content.read_nowait()
            return bytes(held), not held or _may_be_short(held, max_bytes)
        async with asyncio.timeout(MAX_HELD_SECONDS):
            async for chunk in answer.content.iter_any():
                held += chunk
                if not _may_be_short(held, max_bytes):
                    return bytes(held), False
    except _FAULTS:
        return bytes(held), False
    return bytes(held), True


def _may_be_short(held: bytearray, max_bytes: int) -> bool:
    """Whether these bytes may be the beginning of an error or of an empty answer."""
    text = held.lstrip()
    return len(held) <= max_bytes and bool(text) and not text.startswith(_EVENTS)


def _is_other(held: bytearray) -> bool:
    """Whether these bytes cannot be the beginning of a stream of events, such as JSON."""
    text = held.removeprefix(BYTE_ORDER_MARK).lstrip()
    return bool(text) and not any(each.startswith(text[: len(each)]) for each in _EVENTS)
