"""One worker asks the others."""

import asyncio
import os
from dataclasses import replace

import pytest
from aiohttp import web
from support.events import make_event, make_window

from proxy.account.history.place import Place
from proxy.server.admin.dashboard import peers
from proxy.server.admin.dashboard.peers import ask_all, ask_others, correct_cuts
from proxy.server.admin.dashboard.serving import serve_workers
from proxy.telemetry.shared import Roster, SharedMetrics


@pytest.fixture
def place(tmp_path_factory):
    """Worker 1 of three; the third one has no process."""
    roster = Roster(3)
    for number, pid in ((1, os.getpid()), (2, os.getpid()), (3, 0)):
        roster.write(number, pid, 0)
    return Place(1, SharedMetrics(tmp_path_factory.mktemp("s"), roster, 0))


def answering(body, status=200):
    async def answer(request):
        return web.Response(body=body, status=status)

    return answer


async def test_the_parts_of_all_workers_that_run_are_found(place):
    async with serve_workers(answering(b'{"x": 1}'), replace(place, number=2)):
        answers = await ask_others(place, "notes")
    assert answers.found == [{"x": 1}]
    assert answers.missing == ()


@pytest.mark.parametrize("answer", [answering(b"{"), answering(b"{}", 500), None], ids=["broken", "failed", "closed"])
async def test_a_worker_that_fails_is_named(answer, place):
    async with serve_workers(answer or answering(b""), replace(place, number=2) if answer else None):
        answers = await ask_others(place, "notes")
    assert (answers.found, answers.missing) == ([], (2,))


async def test_a_slow_worker_is_not_waited_for(place, monkeypatch):
    monkeypatch.setattr(peers, "ANSWER_SECONDS", 0.05)

    async def sleep(_request):
        await asyncio.Event().wait()

    async with serve_workers(sleep, replace(place, number=2)):
        assert (await ask_others(place, "notes")).missing == (2,)


async def test_a_single_process_answers_alone(start_proxy):
    proxy = await start_proxy()
    answers = await ask_all(proxy.services, "sessions", {"limit": 5})
    assert dict(answers.parts) == {1: []}


async def test_a_cut_that_another_worker_has_seen_has_not_moved(start_proxy, place):
    """What it cost is taken back, too."""
    proxy = await start_proxy()
    window = {"cuts": [{"at": 7}], "prune_stop": 2}
    events = [{"session": "s", "at": 9.0, "window": window, "cut_moved": True, "cut_tokens": 5, "cut_cost_usd": 1.0}]
    asked = []

    async def answer(request):
        asked.append(await request.json())
        return web.Response(body=b"[true]")

    async with serve_workers(answer, replace(place, number=2)):
        await correct_cuts(replace(proxy.services, place=place), events)
    assert asked == [{"marks": [["s", "7/2", 9.0]]}]
    assert (events[0]["cut_moved"], events[0]["cut_tokens"], events[0]["cut_cost_usd"]) == (False, None, None)


async def test_a_cut_that_this_worker_has_seen_has_not_moved_at_another_one(start_proxy, place):
    """Its own request, which was the first, stays marked."""
    proxy = await start_proxy()
    services = replace(proxy.services, place=place)
    for at in (5.0, 9.0):
        services.past.add(make_event(session="s", at=at, window=make_window(7, 2)))
    window = {"cuts": [{"at": 7}], "prune_stop": 2}
    events = [{"session": "s", "at": at, "window": window, "cut_moved": True} for at in (5.0, 8.0)]
    async with serve_workers(answering(b"[false, false]"), replace(place, number=2)):
        await correct_cuts(services, events)
    assert [event["cut_moved"] for event in events] == [True, False]
