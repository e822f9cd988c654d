"""Learning, if clients invent names and upstreams send misleading reports."""

import re
from dataclasses import replace
from uuid import uuid4

import orjson
from aiohttp import web
from support.client import post
from support.model_learning import NAME, TOKENS, Clock, Start, report
from upstreams.recording import completion

from trimtab.proxy.config.policy import PolicyConfig
from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.models.calibration import WARM_UP_SAMPLES
from trimtab.proxy.models.discovery import Windows
from trimtab.proxy.models.keeping import MAX_MODELS_BYTES, MODEL_BYTES, REFRESH_SECONDS, _Upstream
from trimtab.proxy.models.records import Facts
from trimtab.proxy.models.service import MAX_NAME_CHARS
from trimtab.proxy.store.store import MemoryStore
from trimtab.proxy.wire.chat import codec as chat
from trimtab.rules.policy import Policy

CHAT = "/v1/chat/completions"
KNOWN = MAX_MODELS_BYTES // MODEL_BYTES
ONE_MODEL = orjson.dumps({"data": [{"id": "x.gguf", "owned_by": "llamacpp", "meta": {"n_ctx": 16_384}}]})
"""A list of llama.cpp's, which serves whatever name a request says."""


async def test_a_name_that_is_too_long_is_not_kept(start: Start) -> None:
    """Only its family's ratio is used, and nothing that a client could make large is kept."""
    asked: list[str] = []

    class Asked(MemoryStore):
        async def get(self, summary_id: str) -> bytes | None:
            asked.append(summary_id)
            return await super().get(summary_id)

    store = Asked()
    process = start(store)
    for length in (MAX_NAME_CHARS + 1, 1_000_000):
        name = replace(NAME, model="claude-opus-4-7".ljust(length, "x"))
        assert await process.look_up(name) == Facts(1.5)
        assert await process.feed([3.0] * WARM_UP_SAMPLES, name) == 1.5

    assert (asked, process.models.list_known()) == ([], [])
    assert (len(store._entries.items()), process.changes) == (0, {})


async def test_invented_names_write_no_record(start: Start, upstream) -> None:
    """Not even if the upstream has one window for every name. A name is written once a request was answered."""
    upstream.models, store = ONE_MODEL, MemoryStore()
    process = start(store)
    process.models.seek_windows(UpstreamConfig(base_url=upstream.url))
    await process.settle()
    names = [replace(NAME, base_url=upstream.url, model=f"invented-{number}") for number in range(50)]
    for name in names:
        assert await process.models.look_up(name, "other") == Facts(1.0, 16_384)
    await process.settle()
    assert len(store._entries.items()) == 0

    await process.look_up(names[0])
    assert len(store._entries.items()) == 1


async def test_invented_names_do_not_push_out_a_model_that_warms_up(start: Start) -> None:
    """More of them than memory holds come between its answers."""
    process = start()
    await process.look_up()
    for number in range(WARM_UP_SAMPLES):
        ratio = await process.feed([1.4])
        for other in range(KNOWN + 1):
            await process.models.look_up(replace(NAME, model=f"invented-{number}-{other}"), "other")
    await process.settle()

    assert ratio == process.models.recall(NAME).ratio == 1.4


async def test_a_window_survives_a_calibration_under_way(start: Start, clock: Clock) -> None:
    """The window is learned after a report, and before the record that the report caused is written."""
    process = start()
    await process.look_up()
    for _ in range(WARM_UP_SAMPLES):
        process.models.observe(NAME, report(TOKENS, round(1.3 * TOKENS)))
    process.models._told._upstreams[NAME.base_url] = _Upstream(Windows({NAME.model: 32_768}, None), has_told=True)
    model = process.models._kept.vouched.get(NAME.key)
    assert model is not None
    await process.models._kept.take_window(model)  # before the record's first step
    await process.settle()
    await process.feed([1.3] * WARM_UP_SAMPLES)
    for one in (process, start(), process):
        clock.seconds += REFRESH_SECONDS + 1
        assert await one.look_up() == Facts(1.3, 32_768)


async def learn(proxy) -> None:
    """Wait until the proxy has finished learning."""
    await proxy.services.lifecycle.idle.wait()
    await proxy.services.models.settle()


async def ask(client, proxy, *messages, key: str = "sk-test"):
    """The response's status and the tokens in its header, after the proxy has learned from it."""
    body = {"model": "m", "messages": messages}
    response, _ = await post(client, proxy.url + CHAT, body, Authorization=f"Bearer {key}")
    await learn(proxy)
    items = re.findall(r"(\w+)=(\d+)", response.headers["x-trimtab-tokens"])
    return response.status, {key: int(value) for key, value in items}


def say(words: int, role: str = "user", **members: str) -> dict[str, str]:
    """A new message of about `words` tokens."""
    return {"role": role, "content": f"{uuid4()}" + " word" * words, **members}


def count_by(compactors, body: bytes) -> int:
    """Our own tokens of a request."""
    return compactors.choose(PolicyConfig(), "m").plan(chat.CHAT.read(body), Policy()).original.tokens


async def test_reasoning_that_a_server_drops_teaches_nothing(client, upstream, start_proxy, compactors):
    """Otherwise the prompts of one client would make those of all others look shorter than they are."""

    async def answer(recorded, _request):
        messages = [{**message, "reasoning": ""} for message in recorded.json["messages"]]
        read = orjson.dumps({"model": "m", "messages": messages})
        return completion(prompt_tokens=count_by(compactors, read), completion_tokens=1)

    upstream.answer = answer
    settings = ("defaults.context_window=32768", "defaults.completion_reserve=1000", "defaults.on_exceeded=error")
    proxy = await start_proxy(*settings)
    for _ in range(WARM_UP_SAMPLES + 1):
        thought = say(1, "assistant", reasoning=" word" * 4000)
        answered, tokens = await ask(client, proxy, say(6000), thought, say(1), key="sk-one")
        assert answered == 200
    status, _ = await ask(client, proxy, say(40_000), key="sk-other")

    assert tokens["sent"] > 10_000  # all was counted
    assert status == 400
    metrics = await (await client.get(proxy.url + "/metrics")).text()
    assert "trimtab_policy_changes_total{" not in metrics


async def test_a_wrong_key_does_not_keep_the_window_from_a_good_one(client, upstream, start_proxy):
    """The upstream lists its models only for valid keys, and a client with a wrong key comes first."""

    async def answer(recorded, _request):
        if recorded.header("Authorization") != ["Bearer good"]:
            return web.Response(status=401, body=b'{"error":{}}')
        if recorded.method == "POST":
            return completion(prompt_tokens=11, completion_tokens=3)
        known = recorded.path.endswith("/v1/models")
        return web.json_response({"data": [{"id": "m", "max_model_len": 32_768}]}, status=200 if known else 404)

    upstream.answer, upstream.answers_questions = answer, True
    proxy = await start_proxy()
    await learn(proxy)
    await ask(client, proxy, say(1), key="wrong")
    await ask(client, proxy, say(1), key="good")
    _, tokens = await ask(client, proxy, say(1), key="good")

    assert tokens["limit"] == 32_768 - 8192
