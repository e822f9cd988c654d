"""Asks the other workers for their part, and answers them.

Law: a worker that is dead or slow is left out and named. Only this user's processes reach the sockets.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
from aiohttp import web

from proxy.exchange.services import Services
from proxy.server.admin.dashboard.parts import Query, answer_part, number_of
from proxy.state.history.place import Place

ANSWER_SECONDS = 2.0
"""Chosen: a worker that is busy for longer is left out, so that the page stays usable."""
EVENTS = "events"
MAX_QUERY_BYTES = 1024 * 1024
_FAILURES = (aiohttp.ClientError, OSError, TimeoutError, orjson.JSONDecodeError)


@dataclass(frozen=True, slots=True)
class Answers:
    """The parts of the workers by their numbers, and those that did not answer."""

    parts: Mapping[int, Any]
    missing: tuple[int, ...] = ()

    @property
    def found(self) -> list[Any]:
        """The parts of the workers that know something."""
        return [part for part in self.parts.values() if part is not None]


async def ask_all(services: Services, name: str, query: Query | None = None) -> Answers:
    """Ask this worker and all others for a part."""
    own, place = await answer_part(services, name, query or {}), services.place
    if place is None:
        return Answers({number_of(services): own})
    others = await ask_others(place, name, query)
    return Answers({place.number: own, **others.parts}, others.missing)


async def ask_others(place: Place, name: str, query: Query | None = None) -> Answers:
    """Ask all other workers for a part."""
    body = orjson.dumps(query or {})
    answers = await asyncio.gather(*(_ask(place, number, name, body) for number in place.others))
    parts = {number: answer for number, answer in zip(place.others, answers, strict=True) if answer is not _SILENT}
    return Answers(parts, tuple(number for number in place.others if number not in parts))


_SILENT = object()


async def _ask(place: Place, number: int, name: str, body: bytes) -> Any:
    if not place.runs(number):
        return _SILENT
    try:
        async with connect(place, number) as session, asyncio.timeout(ANSWER_SECONDS):
            async with session.post(f"http://worker/{name}", data=body) as answer:
                return orjson.loads(await answer.read()) if answer.status == 200 else _SILENT
    except _FAILURES:
        return _SILENT


@asynccontextmanager
async def connect(place: Place, number: int) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of another worker. Raises OSError if it cannot have a socket."""
    path = place.socket_of(number)
    if path is None:
        raise OSError
    no_limit = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path)), timeout=no_limit) as session:
        yield session


async def handle_peer(services: Services, request: web.BaseRequest) -> web.StreamResponse:
    """Answer another worker."""
    name = request.path.removeprefix("/")
    if services.history is None:
        return web.Response(body=b"null")
    if name == EVENTS:
        return await _stream(services, request)
    query = orjson.loads(await request.read())
    part = await answer_part(services, name, query)
    return web.Response(body=orjson.dumps(part, option=orjson.OPT_NON_STR_KEYS))
