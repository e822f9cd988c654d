"""Sends our own pages to readers that may be slow, and to many of them at once.

Law: a page is only made if its reader may have another one. What a reader has not read yet counts as memory of requests
does, and ends after the same time.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from aiohttp import web
from multidict import CIMultiDict

from trimtab.proxy.exchange.services import Services
from trimtab.proxy.http.aiohttp_fixes.server import PlainResponse
from trimtab.proxy.http.errors import OverloadedError
from trimtab.proxy.http.relay import Reply

MAX_PAGES = 128
"""Pages that are made or sent at once. Chosen: a page takes milliseconds; more readers than that are no people."""
MAX_SHARED_OF_ONE = 64
"""As MAX_PAGES, of one address and client key, for pages that are shared. Chosen: half of all."""
MAX_PAGES_OF_ONE = 16
"""As MAX_SHARED_OF_ONE, for other pages. Chosen: two browsers ask for as many at once."""
PIECE_BYTES = 64 * 1024
"""A page is sent in pieces of this size. Chosen: as asyncio's buffer, of which each reader has one."""

Make = Callable[[], Awaitable[web.StreamResponse]]
"""Makes a page, or sends a stream of its own. Raises ProxyError."""


async def send_page(
    services: Services, request: web.BaseRequest, tenant: str, make: Make, *, is_shared: bool
) -> web.StreamResponse:
    """Make a page and send it, or end the connection. Raises OverloadedError and what `make` raises.

    tenant: whose memory it takes, unless the page `is_shared` by its readers.
    """
    kind, most_pages = ("shared", MAX_SHARED_OF_ONE) if is_shared else ("own", MAX_PAGES_OF_ONE)
    with _reading(services.pages_in_flight, f"{kind} {request.remote} {tenant}", most_pages):
        answer = await make()
        if not isinstance(answer, web.Response) or not isinstance(answer.body, bytes):
            return answer
        body, memory = answer.body, services.memory
        if is_shared:
            return await send_whole(Reply(request), answer, body)
        if not memory.try_take(tenant, len(body)):
            message = "there is no memory for this page now; read the pages that you have asked for, or try again"
            raise OverloadedError(message)
        try:
            return await send_whole(Reply(request), answer, body)
        finally:
            memory.give(tenant, len(body))


@contextmanager
def _reading(in_flight: Counter[str], reader: str, most_pages: int) -> Iterator[None]:
    """A block in which a reader waits for a page, or reads it. Raises OverloadedError."""
    if in_flight.total() >= MAX_PAGES or in_flight[reader] >= most_pages:
        message = "too many pages of trimtab are being read at once; read those that you have asked for, or try again"
        raise OverloadedError(message)
    in_flight[reader] += 1
    try:
        yield
    finally:
        in_flight[reader] -= 1
        if not in_flight[reader]:
            del in_flight[reader]


async def send_whole(reply: Reply, answer: web.Response, body: bytes) -> web.StreamResponse:
    request = reply.request
    response = PlainResponse(status=answer.status, headers=CIMultiDict(answer.headers))
    response.content_length = len(body)
    if answer.keep_alive is False:
        response.force_close()
    try:
        await reply.begin(response)
        for start in range(0, 0 if request.method == "HEAD" else len(body), PIECE_BYTES):
            await reply.write(body[start : start + PIECE_BYTES])
            await reply.wait_for_client()
        await response.write_eof()
    except ConnectionError:
        pass  # the reader has left, or takes nothing
    return response
