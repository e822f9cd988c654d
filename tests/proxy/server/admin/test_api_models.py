"""What `/trimtab/api/models` shows, and which models it hides."""

import orjson
import pytest
from support.client import CHAT, post
from upstreams.recording import FakeUpstream, completion, error

from trimtab.proxy.models.calibration import ERROR_WEIGHT
from trimtab.proxy.server.admin.api import write_models
from trimtab.proxy.server.app import Proxy


async def _look(client, proxy: Proxy) -> dict:
    async with client.get(proxy.url + "/trimtab/api/models") as response:
        assert (response.status, response.content_type) == (200, "application/json")
        return orjson.loads(await response.read())


async def _ask(client, proxy: Proxy, model: str, **headers: str) -> None:
    await post(client, proxy.url + "/v1/chat/completions", CHAT | {"model": model}, **headers)


def _list(**windows: int) -> bytes:
    return orjson.dumps({"data": [{"id": name, "max_model_len": window} for name, window in windows.items()]})


async def _settle(proxy: Proxy) -> None:
    """Wait until nothing is being learned."""
    await proxy.services.models.settle()


async def test_a_model_is_shown_with_what_is_known_of_it(client, upstream: FakeUpstream, start_proxy) -> None:
    """Models that were requested come first, the latest at the top. Models that an upstream has listed follow."""
    upstream.models = _list(told=8192, asked=4096)
    proxy = await start_proxy("models=[{match: mine, context_window: 9000}]")
    await _settle(proxy)
    for model in ("asked", "gpt-4", "mine"):
        await _ask(client, proxy, model)
    await _settle(proxy)

    host = upstream.url.removeprefix("http://").removesuffix("/v1")
    same = {"upstream": host, "token_ratio": 1.0, "calibrated": False, "samples": 0, "vocabulary": "o200k_base"}
    same |= {"mean_error": 0.0, "learned": [], "mode": "enforce"}
    assert await _look(client, proxy) == {
        "models": [
            same | {"model": "mine", "window_tokens": 9000, "window_from": "configured"},
            same | {"model": "gpt-4", "window_tokens": 128_000, "window_from": "default", "vocabulary": "cl100k_base"},
            same | {"model": "asked", "window_tokens": 4096, "window_from": "discovered"},
            same | {"model": "told", "window_tokens": 8192, "window_from": "discovered"},
        ],
        "unlisted": 0,
    }


async def test_calibration_is_shown(client, upstream, start_proxy) -> None:
    """The page has the ratio, its source, and the error of recent counts."""
    reported = [6000] * 8 + [6127]

    async def answer(_recorded, _request):
        return completion(prompt_tokens=reported.pop(0), completion_tokens=1)

    upstream.answer = answer
    proxy = await start_proxy()
    body = CHAT | {"messages": [{"role": "user", "content": "the " * 4000}]}
    while reported:
        await post(client, proxy.url + "/v1/chat/completions", body)
        await _settle(proxy)
    shown = (await _look(client, proxy))["models"][0]

    assert shown["calibrated"]
    assert 1.4 < shown["token_ratio"] < 1.6
    assert shown["mean_error"] == round((6127 / 6000 - 1) * ERROR_WEIGHT, 4)


async def test_a_name_that_no_upstream_has_vouched_for_is_not_shown(client, upstream, start_proxy) -> None:
    """It may be any text of a client, even a credential."""

    async def refuse(_recorded, _request):
        return error(404, message="no such model")

    upstream.answer = refuse
    proxy = await start_proxy("upstream.api_key=sk-PLANTED")
    await _ask(client, proxy, "PLANTED text", Authorization="Bearer PLANTED")

    assert await _look(client, proxy) == {"models": [], "unlisted": 0}


@pytest.mark.parametrize("told", [0, 4])
async def test_a_long_list_is_cut(client, upstream, start_proxy, told: int) -> None:
    """The number of omitted models is shown."""
    upstream.models = _list(**{f"told-{number}": 8192 for number in range(told)})
    proxy = await start_proxy()
    for number in range(3):
        await _ask(client, proxy, f"m-{number}")
    await _settle(proxy)
    shown = orjson.loads(write_models(proxy.services, max_shown=2))

    assert [model["model"] for model in shown["models"]] == ["m-2", "m-1"]
    assert shown["unlisted"] == 1 + told
