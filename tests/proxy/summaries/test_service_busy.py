"""Summaries from upstreams that are busy, and lists of models, over real HTTP."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace
from support.client import SMALL, post, settle
from support.sessions import make_session
from upstreams.recording import FakeUpstream, Recorded

from trimtab.proxy.cli.doctor_checks import check_sessions
from trimtab.proxy.summaries import service
from trimtab.proxy.summaries.service import MAX_PAUSE_SECONDS
from trimtab.proxy.summaries.summariser import BUSY_WAITS

SETTINGS = (*SMALL, "defaults.overflow_strategy=summarize", "defaults.summary.max_tokens=300")
LONG = {"model": "m", "messages": make_session(40, result_words=200)["messages"][:-1]}
"""It fits the window only with a summary."""
FULL = {"model": "m", "messages": make_session(35, result_words=160)["messages"][:-1]}
"""It has reached high water, but still fits the window."""
OTHER = {
    "model": "m",
    "messages": [LONG["messages"][0], {"role": "user", "content": "Mend it."}, *LONG["messages"][2:]],
}
"""Another session."""


def answer_summaries(upstream: FakeUpstream, find: Callable[[Recorded], web.Response | None]) -> None:
    """Let an upstream answer questions for summaries as `find` does; None for a summary."""
    plain = upstream.answer

    async def answer(recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        found = find(recorded) if recorded.asks_for_summary else None
        return await plain(recorded, request) if found is None else found

    upstream.answer = answer


def busy_for(seconds: str, status: int = 429) -> web.Response:
    return web.Response(status=status, headers={"Retry-After": seconds})


async def send(client: Any, proxy: Any, body: dict[str, Any]) -> str:
    """Send a request; returns the rule that cut it, with what it saved."""
    response, _ = await post(client, proxy.url + "/chat/completions", body)
    assert response.status == 200
    return str(response.headers.get("x-trimtab-decisions", ""))


def end_pauses(proxy: Any) -> None:
    entries = proxy.services.summaries._pauses._entries
    assert entries
    for name in list(entries):
        proxy.services.summaries._pauses.pop(name)


@pytest.mark.parametrize("status", [429, 529])
async def test_a_busy_upstream_is_asked_again_when_its_time_is_up(status, client, upstream, start_proxy):
    """The request waits for that, within the time that it may wait for a summary."""
    answer_summaries(upstream, lambda _: busy_for("0.01", status) if len(upstream.summaries) <= 2 else None)
    proxy = await start_proxy(*SETTINGS)
    assert (await send(client, proxy, LONG)).startswith("summarise;")
    assert len(upstream.summaries) == 3


async def test_an_upstream_that_stays_busy_is_not_asked_for_ever(client, upstream, start_proxy):
    answer_summaries(upstream, lambda _: busy_for("0.01"))
    proxy = await start_proxy(*SETTINGS)
    assert (await send(client, proxy, LONG)).startswith("digest;")
    assert len(upstream.summaries) == 1 + BUSY_WAITS


async def test_a_request_that_fits_is_not_cut_while_the_upstream_is_busy(client, upstream, start_proxy):
    """Nothing is asked meanwhile. When the time is up, the summary is written, and the cut gets it."""
    is_busy = True
    answer_summaries(upstream, lambda _: busy_for("300") if is_busy else None)
    proxy = await start_proxy(*SETTINGS)
    for _ in range(3):
        assert "digest" not in await send(client, proxy, FULL)
        await settle(proxy)
    assert len(upstream.summaries) == 1
    end_pauses(proxy)
    is_busy = False
    assert "digest" not in await send(client, proxy, FULL)
    await settle(proxy)
    assert (await send(client, proxy, FULL)).startswith("summarise;")


async def test_a_request_that_does_not_fit_gets_a_digest_if_the_wait_is_too_long(client, upstream, start_proxy):
    """It is not held up. The next cut of its session is summarised again."""
    is_busy = True
    answer_summaries(upstream, lambda _: busy_for("300") if is_busy else None)
    proxy = await start_proxy(*SETTINGS)
    assert (await send(client, proxy, LONG)).startswith("digest;")
    end_pauses(proxy)
    is_busy = False
    assert (await send(client, proxy, LONG)).startswith("digest;")  # what was sent stays
    longer = {"model": "m", "messages": make_session(80, result_words=200)["messages"][:-1]}
    assert (await send(client, proxy, longer)).startswith("summarise;")


async def test_a_request_that_must_waits_for_the_end_of_a_short_pause(client, upstream, start_proxy):
    is_busy = True
    answer_summaries(upstream, lambda _: busy_for("300") if is_busy else None)
    proxy = await start_proxy(*SETTINGS)
    assert (await send(client, proxy, LONG)).startswith("digest;")
    pauses, is_busy = proxy.services.summaries._pauses, False
    (name,) = pauses._entries
    pauses[name] = replace(pauses.get(name), until=time.monotonic() + 0.05)
    assert (await send(client, proxy, OTHER)).startswith("summarise;")
    assert len(upstream.summaries) == 2


async def test_no_pause_is_longer_than_the_longest(client, upstream, start_proxy):
    answer_summaries(upstream, lambda _: busy_for("99999999"))
    proxy = await start_proxy(*SETTINGS)
    await send(client, proxy, LONG)
    pauses = proxy.services.summaries._pauses
    pause = pauses.get(next(iter(pauses._entries)))
    assert pause.until - time.monotonic() <= MAX_PAUSE_SECONDS
    assert (pause.is_busy, pause.reason) == (True, "busy")


LISTED = "defaults.summary.model=[first, second]"


@pytest.mark.parametrize("answer", [lambda: web.Response(status=401), lambda: busy_for("300")])
async def test_the_next_model_of_the_list_is_asked_if_one_writes_nothing(answer, client, upstream, start_proxy):
    """At once, also if the first one is only busy. The summary is stored under one id, whoever wrote it."""
    answer_summaries(upstream, lambda asked: answer() if asked.json["model"] == "first" else None)
    proxy = await start_proxy(*SETTINGS, LISTED)
    for _ in range(2):
        assert (await send(client, proxy, LONG)).startswith("summarise;")
    assert [asked.json["model"] for asked in upstream.summaries] == ["first", "second"]
    answer_summaries(upstream, lambda _: None)
    assert (await send(client, proxy, OTHER)).startswith("summarise;")
    assert upstream.summaries[-1].json["model"] in {"first", "second"}


async def test_each_model_of_the_list_has_half_of_the_time_that_is_left_and_the_last_has_all(
    client, upstream, start_proxy, monkeypatch
):
    shares, ask = list[int](), service.ask_model

    def note(*told: Any) -> Any:
        shares.append(round(told[-1] / 1000))
        return ask(*told)

    monkeypatch.setattr(service, "ask_model", note)
    answer_summaries(upstream, lambda _: web.Response(status=401))
    await send(client, await start_proxy(*SETTINGS, LISTED, "defaults.summary.timeout_seconds=8000"), LONG)
    assert shares == [4, 8]


async def test_a_session_that_has_fallen_to_digests_says_so(client, upstream, start_proxy, log):
    """In each answer's header and log line, and once in the log, the metrics and the notes of the dashboard."""
    fails = True
    answer_summaries(upstream, lambda _: web.Response(status=401) if fails else None)
    proxy = await start_proxy(*SETTINGS)
    name = {"model": "m", "messages": LONG["messages"]}
    for _ in range(3):
        response, _ = await post(client, proxy.url + "/chat/completions", name)
        assert response.headers["x-trimtab-summary"].endswith(";instead=refused")
    assert [line["reason"] for line in log.lines if line["event"] == "session_without_summaries"] == ["refused"]
    assert [line["summary"]["instead"] for line in log.lines if line["event"] == "request"] == ["refused"] * 3
    page = await (await client.get(proxy.url.removesuffix("/v1") + "/metrics")).text()
    (sample,) = (line for line in page.splitlines() if line.startswith("trimtab_sessions_without_summaries_total{"))
    assert sample.endswith('reason="refused"} 1.0')
    overview = await (await client.get(proxy.url.removesuffix("/v1") + "/trimtab/api/overview")).json()
    assert overview["totals"]["sessions_without_summaries"] == 1
    texts = [note["text"] for note in overview["notes"] if note["kind"] == "summaries"]
    assert texts == ["Sessions with digests instead of summaries on worker 1: refused 1."]
    sessions = await (await client.get(proxy.url.removesuffix("/v1") + "/trimtab/api/sessions")).json()
    assert [one["digest_instead"] for one in sessions["sessions"]] == ["refused"]

    fails = False
    end_pauses(proxy)
    longer = {"model": "m", "messages": make_session(80, result_words=200)["messages"][:-1]}
    response, _ = await post(client, proxy.url + "/chat/completions", longer)
    assert ";instead=" not in response.headers["x-trimtab-summary"]
    overview = await (await client.get(proxy.url.removesuffix("/v1") + "/trimtab/api/overview")).json()
    assert [note for note in overview["notes"] if note["kind"] == "summaries"] == []


async def test_a_digest_that_was_wanted_is_no_fall(client, upstream, start_proxy, log):
    """A cut with too few steps for a model gets one, whatever the upstream can do."""
    proxy = await start_proxy(*SETTINGS, "defaults.summary.min_steps=1000")
    response, _ = await post(client, proxy.url + "/chat/completions", LONG)
    assert "kind=digest" in response.headers["x-trimtab-summary"]
    assert ";instead=" not in response.headers["x-trimtab-summary"]
    assert not [line for line in log.lines if line["event"] == "session_without_summaries"]


async def test_the_doctor_tells_of_the_sessions_of_a_running_trimtab(client, upstream, start_proxy):
    answer_summaries(upstream, lambda _: web.Response(status=401))
    proxy = await start_proxy(*SETTINGS)
    listen = proxy.url.removeprefix("http://").removesuffix("/v1")
    config = proxy.services.config.model_copy(update={"listen": listen})
    assert await check_sessions(config) == []
    await send(client, proxy, LONG)
    (finding,) = await check_sessions(config)
    assert (finding.level, finding.found.rpartition(": ")[2]) == ("warning", "refused 1")
    assert await check_sessions(config.model_copy(update={"listen": "127.0.0.1:9"})) == []
