"""A server's own tokenizer is asked how it counts."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from aiohttp import web
from upstreams.recording import FakeUpstream

from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.http.client import UpstreamClient
from trimtab.proxy.models.discovery import Windows, discover
from trimtab.proxy.models.tokenizer import TEMPLATE, TOKENIZE, ask_reading
from trimtab.rules.tokens.families import SILENT, Reading
from trimtab.rules.tokens.scripts import SAMPLES

Json = dict[str, Any]


def tokens(number: int) -> Json:
    return {"tokens": list(range(number))}


def count_prompt(messages: list[Json]) -> int:
    """Priming of 4, a frame of 5 for each message, and 20 tokens if the first one is no system message."""
    return 4 + sum(5 + len(message["content"]) for message in messages) + 20 * (messages[0]["role"] != "system")


def llama(path: str, body: Json) -> Json:
    """llama.cpp: it reads `content`, and writes prompts by its template."""
    if path == TEMPLATE:
        return {"prompt": "x" * count_prompt(body["messages"])}
    return tokens(len(body["content"]))


def vllm(path: str, body: Json) -> Json:
    """vLLM: it reads `prompt`, or `messages`; it has no other path."""
    if path != TOKENIZE:
        return {"detail": "Not Found"}
    return tokens(count_prompt(body["messages"]) if "messages" in body else len(body["prompt"]))


def sglang(path: str, body: Json) -> Json:
    """SGLang: texts only."""
    return tokens(len(body["prompt"])) if path == TOKENIZE and "prompt" in body else {"error": "no"}


async def ask(server: Callable[[str, Json], Any], told: Reading = SILENT) -> Reading:
    async def post(path: str, body: bytes) -> bytes:
        answer = server(path, orjson.loads(body))
        return answer if isinstance(answer, bytes) else orjson.dumps(answer)

    return await ask_reading(post, "m", told)


CHARACTERS = tuple(map(len, SAMPLES))


@pytest.mark.parametrize("server", [llama, vllm])
async def test_samples_and_template_are_counted_by_the_server(server: Callable[[str, Json], Json]) -> None:
    assert await ask(server, Reading(drops_tools=True)) == Reading(
        drops_tools=True, samples=CHARACTERS, priming=4, frame=5.0, unspoken=20
    )


@pytest.mark.parametrize("writes", [True, False])
async def test_calls_are_left_out_unless_the_template_is_seen_to_write_them(*, writes: bool) -> None:
    """A server may say that its template has no calls, and write them as the text of their message."""

    def server(path: str, body: Json) -> Json:
        if path == TEMPLATE and writes and "tools" in body:
            return {"prompt": orjson.dumps(body["messages"]).decode()}
        return llama(path, body)

    told = Reading(drops_calls=True)
    assert await ask(server, told) == told._replace(
        samples=CHARACTERS, priming=4, frame=5.0, unspoken=20, drops_calls=not writes
    )


async def test_without_a_template_to_ask_the_usual_frame_counts() -> None:
    assert await ask(sglang) == Reading(samples=CHARACTERS, priming=3, frame=4.0)


@pytest.mark.parametrize(
    "answer",
    [
        *(b"", b"[", [], {}, {"tokens": 7}, {"tokens": []}, {"count": 9}, {"tokens": [0] * 100_000}, {"prompt": "x"}),
        {"tokens": [list(range(200))]},
        {"tokens": [0] * 20},
    ],
)
async def test_a_server_without_a_usable_tokenizer_has_said_nothing(answer: Any) -> None:
    told = Reading(drops_tools=True)
    assert await ask(lambda *_: answer, told) == told


@pytest.mark.parametrize("prompt", [b"", {"prompt": ""}, {"prompt": "x" * 900}, {"prompt": 5}, {"prompt": "x"}])
async def test_a_template_that_adds_what_none_does_is_not_believed(prompt: Any) -> None:
    def server(path: str, body: Json) -> Any:
        return prompt if path == TEMPLATE else llama(path, {"content": "", **body})

    assert (await ask(server))._replace(samples=()) == Reading(priming=3, frame=4.0)


LISTED = {"object": "list", "data": [{"id": "m", "owned_by": "vllm", "max_model_len": 8192}]}
ADAPTER = {"id": "a", "owned_by": "vllm", "parent": "m", "max_model_len": 8192}


async def _discover(upstream: FakeUpstream, *, listed: Json = LISTED, known: Windows | None = None) -> Windows:
    async def answer(recorded: Any, _: web.BaseRequest) -> web.StreamResponse:
        told = listed if recorded.method == "GET" else vllm(recorded.path, recorded.json)
        return web.Response(body=orjson.dumps(told))

    upstream.answer, upstream.answers_questions, client = answer, True, UpstreamClient()
    try:
        return await discover(client, UpstreamConfig(base_url=upstream.url), [], known)
    finally:
        await client.close()


async def test_a_server_is_asked_once_for_its_only_model(upstream: FakeUpstream) -> None:
    """A later discovery asks again only if other windows are told. An adapter has the tokenizer of its model."""
    found = await _discover(upstream, listed=LISTED | {"data": [*LISTED["data"], ADAPTER]})
    assert found.reading == Reading(samples=CHARACTERS, priming=4, frame=5.0, unspoken=20)
    asked = len(upstream.requests)

    assert await _discover(upstream, listed=LISTED | {"data": [*LISTED["data"], ADAPTER]}, known=found) == found
    assert {one.method for one in upstream.requests[asked:]} == {"GET"}


@pytest.mark.parametrize("other", [{"owned_by": "openai"}, {"owned_by": "vllm", "max_model_len": 4096}])
async def test_no_other_server_is_asked_to_count(upstream: FakeUpstream, other: Json) -> None:
    """Neither one that does not name itself, nor one with several models."""
    first = {} if other["owned_by"] == "vllm" else {"data": []}
    listed = LISTED | first
    found = await _discover(
        upstream, listed=listed | {"data": [*listed["data"], {"id": "n", "max_model_len": 1, **other}]}
    )
    assert found.reading is SILENT
    assert all(recorded.method == "GET" for recorded in upstream.requests)
