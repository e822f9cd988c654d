"""Asks the other workers for their parts.

Law: a worker that is dead or slow is left out and named.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import aiohttp
import orjson

from proxy.account.history.place import Place
from proxy.exchange.services import Services
from proxy.server.admin.dashboard.parts import Query, answer_part, number_of
from proxy.server.admin.dashboard.shapes import Json, read_pieces

ANSWER_SECONDS = 2.0
"""Chosen: a worker that is busy for longer is left out, so that the page stays usable."""
FAILURES = (aiohttp.ClientError, OSError, TimeoutError, ValueError)
"""What may go wrong between two workers; the last one for what is no JSON."""


@dataclass(frozen=True, slots=True)
class Answers:
    """The parts of the workers by their numbers; and those that run but did not answer."""

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


async def _ask(place: Place, number: int, name: str, query: bytes) -> Any:
    if not place.runs(number):
        return None
    try:
        async with (
            asyncio.timeout(ANSWER_SECONDS),
            connect(place, number) as session,
            session.post(f"http://worker/{name}", data=query) as answer,
        ):
            written = BytesIO()
            async for chunk in answer.content.iter_any():
                written.write(chunk)
            _ = written.seek(0)
            return await asyncio.to_thread(read_pieces, written) if answer.status == 200 else _SILENT
    except FAILURES:
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


async def correct_cuts(services: Services, events: Sequence[Json]) -> None:
    """Take back `cut_moved` if any worker has seen the cut before: each of them knows its own requests only."""
    moved = [event for event in events if event["cut_moved"]]
    if services.place is None or not moved:
        return
    marks = [(event["session"], _name_mark(event), event["at"]) for event in moved]
    for told in (await ask_all(services, "seen", {"marks": marks})).found:
        for event, is_seen in zip(moved, told, strict=True):
            if is_seen:
                event.update(cut_moved=False, cut_tokens=None, cut_cost_usd=None)


def _name_mark(event: Json) -> str:
    """As name_mark in account/history/turn.py, of an event that was shaped."""
    cuts = event["window"]["cuts"]
    return f"{cuts[-1]['at'] if cuts else 0}/{event['window']['prune_stop']}"
