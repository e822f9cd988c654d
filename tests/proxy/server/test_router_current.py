"""Which services serve a request, and when its connection ends."""

import asyncio
from dataclasses import replace

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from support.journeys import run_stages

from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.exchange.services import Services
from trimtab.proxy.server.router import Current


async def test_a_request_keeps_the_services_that_it_began_with(compactors: Compactors) -> None:
    """A reload while it is served does not change them. The next request has the new ones."""
    served: list[Services] = []
    begun, release = asyncio.Event(), asyncio.Event()

    async def handle(services: Services, _: web.BaseRequest) -> web.Response:
        begun.set()
        await release.wait()
        served.append(services)
        return web.Response()

    async with run_stages(compactors) as stages:
        before, after = stages.services, replace(stages.services, previous=stages.services.previous)
        current = Current(before)
        answer = current.serve_by(handle)
        async with asyncio.TaskGroup() as group:
            group.create_task(answer(make_mocked_request("GET", "/")))
            await begun.wait()
            current.services = after
            release.set()
        await answer(make_mocked_request("GET", "/"))
    assert served[0] is before
    assert served[1] is after
    assert before is not after


@pytest.mark.parametrize(
    ("headers", "stays"), [({}, True), ({"Upgrade": "WebSocket"}, True), ({"Upgrade": "h2c"}, False)], ids=str
)
async def test_a_connection_ends_that_loses_what_comes_next(
    headers: dict[str, str], stays: object, compactors: Compactors
) -> None:
    """So the client sends the lost request again. Neither the source nor the kind of the answer matters."""

    async def handle(_: Services, request: web.BaseRequest) -> web.Response:
        return web.Response(text=request.path)

    async with run_stages(compactors) as stages:
        response = await Current(stages.services).serve_by(handle)(make_mocked_request("GET", "/a", headers=headers))
    assert (response.keep_alive is not False) is stays
