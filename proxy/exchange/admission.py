"""Admission: whether there is memory and a thread for a request.

Law: if memory or a thread is missing, a request gets an error response, or streams through without being decoded.
Requests already admitted are not disturbed.
"""

import asyncio
from functools import partial

from aiohttp import web

from trimtab.proxy.account.recorder import fail_open
from trimtab.proxy.compaction.offload import INLINE_BYTES, LARGE_BODY_BYTES, BusyError, Lane
from trimtab.proxy.exchange.arrival import Arrival
from trimtab.proxy.exchange.services import Services
from trimtab.proxy.http.errors import NO_MEMORY_LEFT, NO_THREAD_LEFT, OverloadedError
from trimtab.proxy.http.relay import Reply
from trimtab.proxy.http.request_body import ReceivedBody, receive_body
from trimtab.proxy.memory import Working, estimate_work
from trimtab.proxy.wire.codec import Codec
from trimtab.proxy.wire.transcript.body import MIN_BYTES, PrefixMatch


async def receive(
    services: Services, reply: Reply, arrival: Arrival, lane: Lane, codec: Codec
) -> tuple[ReceivedBody, PrefixMatch | None]:
    """Receive the body, and find the longest common beginning with an earlier body of the same tenant, if any.

    A body that the memory could never hold is marked as too large and is not decoded. Raises SlowRequestError and
    OverloadedError.
    """
    received = await hold(services, reply.request, lane)
    body = received.json
    if body is None:
        return received, None
    match: PrefixMatch | None = None
    if len(body) >= MIN_BYTES:
        with fail_open(services.recorder, arrival.request_id, "read"):
            match = services.compactors.find_kept_bodies(arrival.tenant.id).find(codec.name, body)
    known_bytes = 0 if match is None else match.stop
    if len(body) - known_bytes > LARGE_BODY_BYTES:
        work_bytes = await asyncio.to_thread(estimate_work, body, known_bytes)
    else:
        work_bytes = estimate_work(body, known_bytes)
    wire, beginning = received.wire, received.beginning
    if len(body) + work_bytes > services.memory.most_bytes:
        return ReceivedBody(wire, None, beginning, is_too_large=True), None
    return ReceivedBody(wire, body, beginning, work_bytes=work_bytes), match


async def hold(services: Services, request: web.BaseRequest, lane: Lane) -> ReceivedBody:
    """Receive the body; only its beginning if it is too large. The memory is counted in the request's account.

    Raises SlowRequestError and OverloadedError.
    """
    most_bytes = min(services.config.limits.max_body_bytes, services.memory.most_body_bytes)
    services.uploads.open(request, services.memory.open(lane.name))
    run = partial(services.workers.run, lane, size_bytes=INLINE_BYTES + 1)
    try:
        return await receive_body(request, most_bytes, services.uploads, run)
    except (BusyError, MemoryError) as error:
        raise translate(error) from error


class working:  # noqa: N801 - used like a function
    """Context manager: inside the block there is memory for work on the body. Raises OverloadedError."""

    __slots__ = ("_held",)

    def __init__(self, services: Services, request: web.BaseRequest, received: ReceivedBody) -> None:
        account = services.uploads.find_account(request)
        self._held: Working | None = None
        if account is not None and received.json is not None:
            wait_seconds = services.config.limits.max_plan_seconds
            self._held = account.working(len(received.json), received.work_bytes, wait_seconds=wait_seconds)

    async def __aenter__(self) -> None:
        """Wait for the memory and take it."""
        if self._held is not None and not await self._held.__aenter__():
            await self._held.__aexit__()
            raise OverloadedError(NO_MEMORY_LEFT)

    async def __aexit__(self, *_: object) -> None:
        if self._held is not None:
            await self._held.__aexit__()


def translate(error: BusyError | MemoryError) -> OverloadedError:
    """The refusal of a request for which there is no thread or no memory."""
    return OverloadedError(NO_THREAD_LEFT if isinstance(error, BusyError) else NO_MEMORY_LEFT)
