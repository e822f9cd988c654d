"""Summaries of a server with one slot: written while the user has the turn, and given up for any client."""

import asyncio
from dataclasses import replace
from typing import Any

import orjson
import pytest
from support.client import SMALL, post, wait_until
from support.journeys import MakeStages, read_session
from upstreams.recording import FakeUpstream, completion

from trimtab.proxy.exchange import services
from trimtab.proxy.exchange.summary import choose_summariser
from trimtab.proxy.models.lessons import Lesson

SETTINGS = (
    *SMALL,
    "defaults.context_window=auto",
    "defaults.overflow_strategy=summarize",
    "defaults.summary.max_tokens=300",
    "prices={cached_input: 0, output: 0}",
)
TURNS = 24
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def talk(turns: int) -> dict[str, Any]:
    """The request of a chat without tools, which begins its `turns`-th turn."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You are a harbour master."}]
    for number in range(turns):
        messages.append({"role": "user", "content": f"Question {number}. " + "Which ship comes next? " * 70})
        messages.append({"role": "assistant", "content": f"Answer {number}: " + "a ship of the line, " * 70})
    return {"model": "m", "messages": messages[:-1]}


def have_one_slot(upstream: FakeUpstream, window: int = 8000) -> asyncio.Event:
    """Answer one request at a time, as a server with one slot. Summaries wait for the event that is returned."""
    told = {"owned_by": "llamacpp", "id": "m", "meta": {"n_ctx": window}, "total_slots": 1}
    upstream.models = orjson.dumps(told | {"data": [told]})
    plain, slot, release = upstream.answer, asyncio.Lock(), asyncio.Event()

    async def answer(recorded: Any, request: Any) -> Any:
        async with slot:
            if recorded.asks_for_summary:
                await release.wait()
            return await plain(recorded, request)

    upstream.answer = answer
    return release


async def ask(client: Any, proxy: Any, turns: int, **members: Any) -> Any:
    response, _ = await post(client, proxy.url + "/v1/chat/completions", talk(turns) | members)
    assert response.status == 200
    return response


async def talk_until(client: Any, proxy: Any) -> int:
    """Talk until something is to be done while no request comes; returns the number of turns."""
    for turns in range(1, TURNS):
        await ask(client, proxy, turns)
        await proxy.services.models.settle()  # what the server says of its slots may come late
        if proxy.services.lifecycle.meanwhile is not None:
            return turns
    raise AssertionError


async def test_a_summary_is_written_while_the_user_reads_and_is_there_for_the_cut(
    client, upstream, start_proxy, monkeypatch
):
    monkeypatch.setattr(services, "QUIET_SECONDS", 0.0)
    have_one_slot(upstream).set()
    proxy = await start_proxy(*SETTINGS)
    turns = await talk_until(client, proxy)
    await wait_until(proxy.services.lifecycle.meanwhile.done)
    (asked,) = upstream.summaries
    *prefix, _ = asked.json["messages"]
    assert prefix == talk(turns)["messages"][: len(prefix)]
    decisions = ""
    for later in range(turns + 1, TURNS):
        decisions = (await ask(client, proxy, later)).headers.get("x-trimtab-decisions", "")
        if decisions:
            break
    assert decisions.startswith("summarise")
    assert "SUMMARY of the work so far." in upstream.chats[-1].json["messages"][1]["content"]


async def test_no_client_waits_for_a_summary_on_one_slot(client, upstream, start_proxy, monkeypatch):
    """A request for a summary that would take for ever is closed as soon as a client asks for anything."""
    monkeypatch.setattr(services, "QUIET_SECONDS", 0.0)
    _ = have_one_slot(upstream)
    proxy = await start_proxy(*SETTINGS)
    turns = await talk_until(client, proxy)
    given_up = 0
    for later in range(turns + 1, TURNS):
        meanwhile, number = proxy.services.lifecycle.meanwhile, len(upstream.summaries)
        if meanwhile is not None:
            await wait_until(lambda meanwhile=meanwhile, n=number: len(upstream.summaries) > n or meanwhile.done())
        upstream.cancelled.clear()
        async with asyncio.timeout(30):
            await ask(client, proxy, later)
        given_up += len(upstream.summaries) > number and upstream.cancelled.is_set()
    assert given_up >= 2
    cut = upstream.chats[-1].json["messages"][1]["content"]
    assert "[Summary of the earlier messages" in cut
    assert "SUMMARY of the work so far." not in cut
    page = await (await client.get(proxy.url + "/metrics")).text()
    assert "trimtab_sessions_without_summaries_total{" not in page  # a digest is what such a session expects


async def test_a_summary_that_is_late_gives_the_slot_back(client, upstream, start_proxy):
    _ = have_one_slot(upstream)
    proxy = await start_proxy(*SETTINGS, "defaults.summary.when=needed", "defaults.summary.wait_seconds=0.05")
    for turns in range(1, TURNS):
        async with asyncio.timeout(30):
            response = await ask(client, proxy, turns)
        await proxy.services.models.settle()
        if upstream.summaries and "x-trimtab-decisions" in response.headers:
            break
    assert response.headers["x-trimtab-decisions"].startswith("digest")
    assert upstream.cancelled.is_set()
    page = await (await client.get(proxy.url + "/metrics")).text()
    assert 'trimtab_sessions_without_summaries_total{model="m",reason="timed_out"} 1' in page


async def test_a_rejected_note_counts_although_its_second_attempt_is_given_up(
    client, upstream, start_proxy, monkeypatch
):
    """Else a model that writes no usable note would be asked at each cut for ever, and nobody would be told."""
    monkeypatch.setattr(services, "QUIET_SECONDS", 0.0)
    _ = have_one_slot(upstream)
    plain = upstream.answer

    async def answer(recorded: Any, request: Any) -> Any:
        if recorded.asks_for_summary and len(upstream.summaries) == 1:
            answered = orjson.loads(completion("Well").body)
            answered["choices"][0]["finish_reason"] = "length"  # so it is asked again, with more room
            return type(completion())(body=orjson.dumps(answered), content_type="application/json")
        return await plain(recorded, request)

    upstream.answer = answer
    proxy = await start_proxy(*SETTINGS)
    turns = await talk_until(client, proxy)
    await wait_until(lambda: len(upstream.summaries) == 2)
    await ask(client, proxy, turns + 1)
    for later in range(turns + 2, TURNS):
        await ask(client, proxy, later)
        if (meanwhile := proxy.services.lifecycle.meanwhile) is not None:
            await wait_until(lambda meanwhile=meanwhile: meanwhile.done() or len(upstream.summaries) > 2)
    assert len(upstream.summaries) == 2
    page = await (await client.get(proxy.url + "/metrics")).text()
    assert 'trimtab_summaries_total{model="m",result="failed"} 1' in page


async def test_a_call_of_a_tool_leaves_the_turn_with_the_client(client, upstream, start_proxy, monkeypatch):
    monkeypatch.setattr(services, "QUIET_SECONDS", 0.0)
    have_one_slot(upstream).set()
    proxy = await start_proxy(*SETTINGS)
    turns = await talk_until(client, proxy)
    await wait_until(proxy.services.lifecycle.meanwhile.done)
    number = len(upstream.summaries)

    async def call(*_: Any) -> Any:
        answer = orjson.loads(completion().body)
        answer["choices"][0]["message"]["tool_calls"] = [CALL]
        return type(completion())(body=orjson.dumps(answer), content_type="application/json")

    upstream.answer = call
    await ask(client, proxy, turns + 1)
    assert proxy.services.lifecycle.meanwhile is None
    assert len(upstream.summaries) == number


@pytest.mark.parametrize("answered", ["nothing", "unclear", "refused"])
async def test_on_one_slot_the_transcript_is_never_sent_as_text(answered, client, upstream, start_proxy, monkeypatch):
    """It would take the session's prompt out of the only cache. Without another form, a refusal is the end."""
    monkeypatch.setattr(services, "QUIET_SECONDS", 0.0)
    have_one_slot(upstream).set()
    plain = upstream.answer

    async def fail(recorded: Any, request: Any) -> Any:
        if not recorded.asks_for_summary:
            return await plain(recorded, request)
        if answered == "nothing":
            return completion("")
        status = 413 if answered == "refused" else 400
        return type(completion())(body=b'{"error": {"message": "too long"}}', status=status)

    upstream.answer = fail
    proxy = await start_proxy(*SETTINGS)
    await talk_until(client, proxy)
    await wait_until(proxy.services.lifecycle.meanwhile.done)
    assert upstream.summaries
    assert all(len(asked.json["messages"]) > 2 for asked in upstream.summaries)
    assert len(upstream.summaries) == 1 or answered != "refused"


KEYED = "upstreams={plain: {base_url: 'http://plain:9/v1'}}"


async def test_what_is_known_of_a_model_is_known_of_it_at_its_upstream(make_stages: MakeStages) -> None:
    """The same name may mean another model with another window at the upstream for summaries."""
    stages = await make_stages(*SMALL, KEYED, "defaults.summary.upstream=plain")
    models, call = stages.services.models, await stages.prepare(read_session(3))
    before = choose_summariser(stages.services, call)
    there = replace(call.view.name, base_url=stages.services.config.upstreams["plain"].base_url)
    for name, window_tokens in ((call.view.name, 7000), (there, 5000)):
        await models.look_up(name, "other")
        await models.learn(name, 8000, Lesson(window_tokens))
    after = choose_summariser(stages.services, call)

    assert before.window_tokens - after.window_tokens == 3000
