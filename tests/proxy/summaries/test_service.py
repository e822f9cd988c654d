"""Summaries: one call for one summary, however many callers ask, and pauses after failures."""

import asyncio
import time
from unittest.mock import Mock

import aiohttp
import pytest
from support.client import CHAT, SMALL, post, settle
from support.sessions import make_session
from upstreams.recording import hold_summaries

from trimtab.proxy.config.policy import SummaryConfig
from trimtab.proxy.summaries import service
from trimtab.proxy.summaries.calls import NoNoteError, NoSummaryError
from trimtab.proxy.summaries.service import MAX_PAUSE_SECONDS, MAX_REJECTED_SECONDS, _lengthen
from trimtab.proxy.summaries.summariser import Summariser

SETTINGS = (*SMALL, "defaults.overflow_strategy=summarize", "defaults.summary.max_tokens=300")
"""A session that is a little too long for an inline question. One question contains its transcript."""


async def test_two_credentials_never_share_a_summary(client, upstream, start_proxy):
    """The same transcript with another credential is summarised again. With the same one, its summary is found."""
    proxy = await start_proxy(*SETTINGS)
    body = {"model": "m", "messages": make_session(36, result_words=200)["messages"][:-1]}
    for key in ("Bearer one", "Bearer two", "Bearer one"):
        await post(client, proxy.url + "/v1/chat/completions", body, Authorization=key)
    assert [recorded.header("authorization") for recorded in upstream.summaries] == [["Bearer one"], ["Bearer two"]]
    assert proxy.services.recorder.metrics.summaries["m", "hit"] == 1


async def test_a_text_is_asked_of_the_store_once_a_minute(client, upstream, start_proxy, monkeypatch):
    """Each turn after a cut needs it. After a minute the store is asked, and so knows that it is still used."""
    proxy = await start_proxy(*SETTINGS)
    store, asked = proxy.services.summaries._store, []
    get = store.get
    monkeypatch.setattr(type(store), "get", lambda _, summary_id: asked.append(summary_id) or get(summary_id))
    body = {"model": "m", "messages": make_session(36, result_words=200)["messages"][:-1]}
    await post(client, proxy.url + "/v1/chat/completions", body)
    asked.clear()
    await post(client, proxy.url + "/v1/chat/completions", body)
    assert all(summary_id.startswith("model-") for summary_id in asked)
    monkeypatch.setattr(service, "OPENED_SECONDS", -1.0)
    proxy.services.summaries._opened.shrink(0)
    await post(client, proxy.url + "/v1/chat/completions", body)
    await post(client, proxy.url + "/v1/chat/completions", body)
    texts = [summary_id for summary_id in asked if not summary_id.startswith("model-")]
    assert len(texts) == 2
    assert len(upstream.summaries) == 1


async def test_concurrent_requests_share_one_summary_call(client, upstream, start_proxy):
    """However many requests need the same summary at once, the upstream is asked once."""
    release = hold_summaries(upstream)
    proxy = await start_proxy(*SETTINGS)
    body = {"model": "m", "messages": make_session(36, result_words=200)["messages"][:-1]}
    joined = 'trimtab_summaries_total{model="other",result="joined"} 4.0'
    async with asyncio.TaskGroup() as tasks:
        for _ in range(5):
            tasks.create_task(post(client, proxy.url + "/v1/chat/completions", body))
        async with asyncio.timeout(30):
            while joined not in (await (await client.get(proxy.url + "/metrics")).read()).decode():  # noqa: ASYNC110 - a counter has no event
                await asyncio.sleep(0)
        release.set()
    assert len(upstream.summaries) == 1
    assert len({recorded.sha256 for recorded in upstream.chats}) == 1


async def test_what_stood_in_for_a_summary_stays_when_that_comes_later(client, upstream, start_proxy):
    """A request that does not wait any longer gets the digest. The call changes nothing that was forwarded."""
    release = hold_summaries(upstream)
    proxy = await start_proxy(*SETTINGS, "defaults.summary.wait_seconds=0.05")
    body = {"model": "m", "messages": make_session(36, result_words=200)["messages"][:-1]}
    async with asyncio.timeout(30):
        await post(client, proxy.url + "/v1/chat/completions", body)
    assert len(upstream.summaries) == 1
    release.set()
    await settle(proxy)
    await post(client, proxy.url + "/v1/chat/completions", body)
    first, second = upstream.chats
    assert first.body == second.body
    assert "## Files and what was done to them" in first.json["messages"][1]["content"]


def test_a_request_waits_no_longer_than_one_summary_may_take() -> None:
    told = [SummaryConfig(timeout_seconds=60, wait_seconds=seconds) for seconds in (None, 0, 5, 90)]
    assert [Summariser.patience_seconds.fget(Mock(settings=settings)) for settings in told] == [60, 0, 5, 60]


async def test_client_that_leaves_does_not_stop_its_summary(client, upstream, start_proxy):
    plain = upstream.answer
    asked, release = asyncio.Event(), asyncio.Event()

    async def hold(recorded, request):
        if recorded.asks_for_summary:
            asked.set()
            await release.wait()
        return await plain(recorded, request)

    upstream.answer = hold
    proxy = await start_proxy(*SETTINGS)
    body = {"model": "m", "messages": make_session(36, result_words=200)["messages"][:-1]}
    async with asyncio.TaskGroup() as tasks:
        leaving = tasks.create_task(post(client, proxy.url + "/v1/chat/completions", body))
        await asyncio.wait_for(asked.wait(), 30)
        leaving.cancel()
    release.set()
    await post(client, proxy.url + "/v1/chat/completions", body)
    assert len(upstream.summaries) == 1
    assert "SUMMARY of the work so far." in upstream.chats[0].json["messages"][1]["content"]


async def test_after_a_failure_no_model_is_asked_for_a_while(client, upstream, start_proxy):
    """The next cuts get their digest at once. Another credential has a pause of its own."""
    plain = upstream.answer

    async def fail(recorded, request):
        return aiohttp.web.Response(status=401) if recorded.asks_for_summary else await plain(recorded, request)

    upstream.answer = fail
    proxy = await start_proxy(*SETTINGS)
    for steps in (50, 60, 70):
        body = {"model": "m", "messages": make_session(steps, result_words=200)["messages"][:-1]}
        response, _ = await post(client, proxy.url + "/v1/chat/completions", body)
        assert response.headers["x-trimtab-decisions"].startswith("digest;")
    assert len(upstream.summaries) == 1
    await post(client, proxy.url + "/v1/chat/completions", body, Authorization="Bearer other")
    assert len(upstream.summaries) == 2


async def test_closing_gives_up_the_calls_under_way(client, upstream, start_proxy):
    asked = asyncio.Event()

    async def hang(recorded, request):
        if recorded.asks_for_summary:
            asked.set()
            await asyncio.Event().wait()
        return aiohttp.web.Response()

    upstream.answer = hang
    proxy = await start_proxy(*SETTINGS)
    body = {"model": "m", "messages": make_session(36, result_words=200)["messages"][:-1]}
    waiting = asyncio.ensure_future(post(client, proxy.url + "/v1/chat/completions", body))
    await asyncio.wait_for(asked.wait(), 30)
    await proxy.services.summaries.close()
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await asyncio.wait_for(waiting, 30)
    await asyncio.wait_for(upstream.cancelled.wait(), 30)


async def test_a_list_is_no_base_for_a_summary(client, upstream, start_proxy):
    """If the previous text was a digest, the next question contains the messages that the digest covered."""
    plain, fails = upstream.answer, True

    async def fail_once(recorded, request):
        if recorded.asks_for_summary and fails:
            return aiohttp.web.Response(status=401)
        return await plain(recorded, request)

    upstream.answer = fail_once
    proxy = await start_proxy(*SETTINGS, "defaults.summary.request=transcript")
    session = make_session(70, result_words=200)["messages"]
    await post(client, proxy.url + "/v1/chat/completions", {"model": "m", "messages": session[:100]})
    fails = False
    proxy.services.summaries._pauses.pop(next(iter(proxy.services.summaries._pauses._entries)))
    await post(client, proxy.url + "/v1/chat/completions", {"model": "m", "messages": session[:140]})
    await settle(proxy)
    told = upstream.summaries[1].json["messages"][-1]["content"]
    assert "SUMMARY OF WHAT CAME BEFORE" not in told
    assert "part_3.py" in told


async def test_a_pause_does_not_displace_a_summary_that_is_being_written(client, upstream, start_proxy):
    """Another session's failure in the meantime puts no digest in its place."""
    plain, release, fails = upstream.answer, asyncio.Event(), False

    async def answer(recorded, request):
        if recorded.asks_for_summary and fails:
            return aiohttp.web.Response(status=401)
        if recorded.asks_for_summary:
            await release.wait()
        return await plain(recorded, request)

    upstream.answer = answer
    proxy = await start_proxy(*SETTINGS)
    url = proxy.url + "/v1/chat/completions"
    body = {"model": "m", "messages": make_session(36, result_words=200)["messages"][:-1]}
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(post(client, url, body))
        async with asyncio.timeout(30):
            while not upstream.summaries:  # noqa: ASYNC110 - what arrives at the upstream has no event for the second time
                await asyncio.sleep(0)
        fails = True
        other = {"model": "m", "messages": make_session(50, result_words=300)["messages"][:-1]}
        response, _ = await post(client, url, other)
        assert response.headers["x-trimtab-decisions"].startswith("digest;")
        joining = tasks.create_task(post(client, url, body))
        await asyncio.sleep(0)
        release.set()
    assert [task.result()[0].headers["x-trimtab-decisions"].split(";")[0] for task in (waiting, joining)] == [
        "summarise"
    ] * 2


async def test_failures_are_warned_of_once_and_their_end_is_told(client, upstream, start_proxy, log):
    """There is one warning, however many calls fail. Each failed call has its own line anyway."""
    plain, fails = upstream.answer, True

    async def fail(recorded, request):
        refuses = recorded.asks_for_summary and fails
        return aiohttp.web.Response(status=401) if refuses else await plain(recorded, request)

    upstream.answer = fail
    proxy = await start_proxy(*SETTINGS)
    await post(client, proxy.url + "/v1/chat/completions", CHAT)  # the upstream vouches for the model
    for number, steps in enumerate((50, 60, 70)):
        fails = number != 1
        proxy.services.summaries._pauses._entries.clear()
        body = {"model": "m", "messages": make_session(steps, result_words=200)["messages"][:-1]}
        await post(client, proxy.url + "/v1/chat/completions", body, Authorization=f"Bearer {number}")
    told = [line for line in log.lines if line["event"].startswith("summaries_")]
    assert [line["event"] for line in told] == ["summaries_fail", "summaries_work_again", "summaries_fail"]
    assert [event for event in log.warned if event.startswith("summaries_")] == ["summaries_fail", "summaries_fail"]
    assert (told[0]["model"], told[0]["reason"]) == ("m", "status 401")
    assert sum(line["event"] == "summary" and line["result"] == "refused" for line in log.lines) == 2


@pytest.mark.parametrize(
    ("error", "seconds"),
    [(NoSummaryError("status 500"), MAX_PAUSE_SECONDS), (NoNoteError("short", was_cut=False), MAX_REJECTED_SECONDS)],
)
def test_a_model_that_fails_again_and_again_is_asked_ever_more_rarely(error: NoSummaryError, seconds: float) -> None:
    """Each pause is twice as long as the one before, up to a bound: a larger one if it writes no notes."""
    pauses, pause, now = [], None, time.monotonic()
    for _ in range(20):
        pause = _lengthen(pause, error)
        pauses.append(round(pause.until - now))
    assert pauses[:4] == [15, 30, 60, 120]
    assert pauses == sorted(pauses)
    assert pauses[-1] == seconds
