"""A cut stays where it is when answers teach another scale of the model, as long as what is sent fits by that."""

from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from support.client import post, settle
from support.sessions import make_session
from upstreams.recording import Recorded, completion

MORE, AS_WE_DO, FEWER = 2.2, 2.7, 4.5
"""Bytes for each of the model's tokens; of these texts."""
MESSAGES = make_session(30, result_words=1600)["messages"][:-1]


@pytest.fixture
def start(client, upstream, start_proxy):
    """Starts a proxy before a server that counts a token for so many bytes of a body, and fails if that is None.

    Returns the proxy, and a function that sends messages and returns what was forwarded.
    """

    async def run(find_bytes: Callable[[Any], float | None], high_water: float, strategy: str = "prune") -> Any:
        async def answer(recorded: Recorded, _: web.BaseRequest) -> web.StreamResponse:
            bytes_per_token = find_bytes(recorded.json)
            if bytes_per_token is None:
                return web.Response(status=503)
            return completion(prompt_tokens=int(len(recorded.body) / bytes_per_token), completion_tokens=5)

        async def send(messages: list[Any], model: str = "unknown-model", **more: int) -> bytes:
            await post(client, proxy.url + "/v1/chat/completions", {"messages": messages, "model": model, **more})
            await settle(proxy)
            return [one.body for one in upstream.requests if not one.asks_for_summary][-1]

        upstream.answer = answer
        how = (
            f"defaults.overflow_strategy={strategy}",
            "defaults.cut=at_threshold",
            f"defaults.high_water={high_water}",
        )
        proxy = await start_proxy("defaults.context_window=16000", "defaults.completion_reserve=1000", *how)
        return proxy, send

    return run


def find_gone(messages: list[Any], sent: bytes) -> set[str]:
    """The calls whose result was removed: the end of it is not there."""
    ids = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    return {one for one in ids if f'end {one.removeprefix("call_")}"'.encode() not in sent}


def say_first(text: str, messages: list[Any] = MESSAGES) -> list[Any]:
    """Another session, as its system prompt tells."""
    return [{"role": "system", "content": text}, *messages[1:]]


@pytest.mark.parametrize(("strategy", "bytes_per_token"), [("prune", MORE), ("auto_compact", FEWER)])
async def test_a_removed_result_never_comes_back(strategy, bytes_per_token, start) -> None:
    """After eight answers the ratio rises or falls. A session that is cut is planned by the one before."""
    proxy, send = await start(lambda _: bytes_per_token, 0.6, strategy)
    messages, removed, ratios = say_first(strategy)[:41], set[str](), set[str]()
    for stop in range(4, len(messages) + 1, 2):
        gone = find_gone(messages[:stop], await send(messages[:stop]))
        assert removed <= gone
        removed = gone
        ratios.update(str(known.facts.ratio) for known in proxy.services.models.list_known())
    assert removed
    assert len(ratios) > 1


@pytest.mark.parametrize(("max_tokens", "bytes_per_token"), [(1, 1), (7000, MORE)])
async def test_a_cut_gives_way_to_a_scale_by_which_it_does_not_fit(max_tokens, bytes_per_token, start) -> None:
    """The server counts more than we do: what is sent fits with the completion by its own count from then on."""
    _, send = await start(lambda _: bytes_per_token, 0.9)
    sizes = [len(await send(MESSAGES[:stop], max_tokens=max_tokens)) for stop in range(24, len(MESSAGES) + 1, 2)]
    assert sizes[0] > 16_000 - max_tokens > max(sizes[-8:]) / bytes_per_token


async def test_models_in_turn_keep_the_scales_of_their_cuts(start) -> None:
    """Each model of a session is planned by the scale of its own cut, also if another one was asked in between."""
    bytes_per_token = AS_WE_DO
    _, send = await start(lambda _: bytes_per_token, 0.6)
    messages, removed = say_first("Two models.")[:41], {"third": set[str](), "fourth": set[str]()}
    for stop in range(20, len(messages) + 1, 2):
        for model, before in tuple(removed.items()):
            removed[model] = find_gone(messages[:stop], await send(messages[:stop], model))
            assert before <= removed[model]
        bytes_per_token = FEWER
    assert all(removed.values())


async def test_a_plan_that_the_server_did_not_take_fixes_no_scale(start) -> None:
    """A session whose first request failed gets as much as one that begins now, when answers have taught a scale."""
    _, send = await start(lambda body: None if body["messages"][0]["content"] == "Fails." else FEWER, 0.6)
    first = await send(say_first("Fails.")[:40], "fifth")
    for stop in range(18, 40, 2):
        await send(say_first("Other.")[:stop], "fifth")
    failed, begun = [await send(say_first(text)[:42], "fifth") for text in ("Fails.", "Begin.")]
    assert len(first) < len(failed) == len(begun)
