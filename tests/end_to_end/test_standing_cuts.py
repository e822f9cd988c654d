"""A cut stays where it is when answers teach another scale of the model, as long as what is sent fits by that."""

import orjson
import pytest
from aiohttp import web
from support.client import post, settle
from support.sessions import make_session
from upstreams.recording import FakeUpstream, Recorded, completion

MORE, FEWER = 2.2, 4.5
"""Bytes for each of the model's tokens. By our count, these texts have 2.7."""
FULL = "end "
"""Ends each result that was not removed."""


@pytest.mark.parametrize("bytes_per_token", [MORE, FEWER])
@pytest.mark.parametrize("strategy", ["prune", "auto_compact"])
async def test_a_removed_result_never_comes_back(
    strategy, bytes_per_token, client, upstream: FakeUpstream, start_proxy
):
    """After eight answers the ratio rises or falls. A session that is cut is planned by the one before."""

    async def answer(recorded: Recorded, _: web.BaseRequest) -> web.StreamResponse:
        return completion(prompt_tokens=int(len(recorded.body) / bytes_per_token), completion_tokens=5)

    upstream.answer = answer
    how = (f"defaults.overflow_strategy={strategy}", "defaults.cut=at_threshold", "defaults.high_water=0.6")
    proxy = await start_proxy("defaults.context_window=16000", "defaults.completion_reserve=1000", *how)
    messages = make_session(20, result_words=1600, system=f"{strategy} {bytes_per_token}")["messages"][:-1]
    removed, ratios = set[str](), set[str]()
    for number in range(4, len(messages) + 1, 2):
        body = orjson.dumps({"model": "unknown-model", "messages": messages[:number]})
        assert (await post(client, proxy.url + "/v1/chat/completions", body))[0].status == 200
        await settle(proxy)
        sent = [one.body for one in upstream.requests if not one.asks_for_summary][-1]
        results = {message["tool_call_id"]: message for message in messages[:number] if message["role"] == "tool"}
        gone = {name for name in results if f'{FULL}{name.removeprefix("call_")}"'.encode() not in sent}
        assert removed <= gone
        removed |= gone
        ratios.update(str(known.facts.ratio) for known in proxy.services.models.list_known())
    assert removed
    assert len(ratios) > 1, removed


async def test_a_cut_gives_way_to_a_scale_by_which_it_does_not_fit(client, upstream: FakeUpstream, start_proxy):
    """The server counts three times what we do: what is sent fits by its own count from then on."""

    async def answer(recorded: Recorded, _: web.BaseRequest) -> web.StreamResponse:
        return completion(prompt_tokens=len(recorded.body), completion_tokens=5)

    upstream.answer = answer
    how = ("defaults.overflow_strategy=prune", "defaults.cut=at_threshold", "defaults.high_water=0.9")
    proxy = await start_proxy("defaults.context_window=16000", "defaults.completion_reserve=1000", *how)
    messages = make_session(30, result_words=1600)["messages"][:-1]
    for number in range(24, len(messages) + 1, 2):
        body = orjson.dumps({"model": "unknown-model", "messages": messages[:number]})
        assert (await post(client, proxy.url + "/v1/chat/completions", body))[0].status == 200
    sizes = [len(one.body) for one in upstream.requests]
    assert sizes[0] > 16_000 > max(sizes[-8:])


async def test_the_scale_of_a_cut_counts_for_its_model_alone(client, upstream: FakeUpstream, start_proxy):
    """A session goes on with a model that counts as we do: it gets as much as one that it has from the beginning."""

    async def answer(recorded: Recorded, _: web.BaseRequest) -> web.StreamResponse:
        bytes_per_token = 1 if recorded.json["model"] == "first" else 2.7
        return completion(prompt_tokens=int(len(recorded.body) / bytes_per_token), completion_tokens=5)

    upstream.answer = answer
    how = ("defaults.overflow_strategy=prune", "defaults.cut=at_threshold", "defaults.high_water=0.9")
    proxy = await start_proxy("defaults.context_window=16000", "defaults.completion_reserve=1000", *how)
    messages = make_session(30, result_words=1600)["messages"][:-1]

    async def send(number: int, model: str) -> int:
        body = orjson.dumps({"messages": messages[:number], "model": model})
        assert (await post(client, proxy.url + "/v1/chat/completions", body))[0].status == 200
        await settle(proxy)
        return len(upstream.requests[-1].body)

    for number in range(24, 61, 2):
        await send(number, "first")
    gone_on_bytes = await send(62, "second")
    messages[0] = {"role": "system", "content": "You are a coding Agent."}
    assert gone_on_bytes == await send(62, "second")


async def test_models_in_turn_keep_the_scales_of_their_cuts(client, upstream: FakeUpstream, start_proxy):
    """Each model of a session is planned by the scale of its own cut, also if another one was asked in between."""
    bytes_per_token = 2.7

    async def answer(recorded: Recorded, _: web.BaseRequest) -> web.StreamResponse:
        return completion(prompt_tokens=int(len(recorded.body) / bytes_per_token), completion_tokens=5)

    upstream.answer = answer
    how = ("defaults.overflow_strategy=prune", "defaults.cut=at_threshold", "defaults.high_water=0.6")
    proxy = await start_proxy("defaults.context_window=16000", "defaults.completion_reserve=1000", *how)
    messages = make_session(20, result_words=1600, system="Two models.")["messages"][:-1]
    removed = {"third": set[str](), "fourth": set[str]()}
    for number in range(20, len(messages) + 1, 2):
        bytes_per_token = 2.7 if number == 20 else FEWER
        for model, before in tuple(removed.items()):
            body = orjson.dumps({"messages": messages[:number], "model": model})
            assert (await post(client, proxy.url + "/v1/chat/completions", body))[0].status == 200
            await settle(proxy)
            sent = upstream.requests[-1].body
            results = [message["tool_call_id"] for message in messages[:number] if message["role"] == "tool"]
            gone = {name for name in results if f'{FULL}{name.removeprefix("call_")}"'.encode() not in sent}
            assert before <= gone
            removed[model] = before | gone
    assert all(removed.values())


async def test_a_plan_that_the_server_did_not_take_fixes_no_scale(client, upstream: FakeUpstream, start_proxy):
    """A session whose first request failed gets as much as one that begins now, when answers have taught a scale."""

    async def answer(recorded: Recorded, _: web.BaseRequest) -> web.StreamResponse:
        if recorded.json["messages"][0]["content"] == "Fails.":
            return web.Response(status=503)
        return completion(prompt_tokens=int(len(recorded.body) / FEWER), completion_tokens=5)

    async def send(system: str, number: int) -> int:
        body = orjson.dumps({"messages": [{"role": "system", "content": system}, *messages[:number]], "model": "fifth"})
        await post(client, proxy.url + "/v1/chat/completions", body)
        await settle(proxy)
        return len(upstream.requests[-1].body)

    upstream.answer = answer
    how = ("defaults.overflow_strategy=prune", "defaults.cut=at_threshold", "defaults.high_water=0.6")
    proxy = await start_proxy("defaults.context_window=16000", "defaults.completion_reserve=1000", *how)
    messages = make_session(30, result_words=1600)["messages"][1:-1]
    first_bytes = await send("Fails.", 39)
    for number in range(17, 39, 2):
        await send("Other.", number)
    assert first_bytes < await send("Fails.", 41) == await send("Begin.", 41)
