"""A server's own tokenizer is asked how it counts."""

import asyncio
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import Mock

import aiohttp
import orjson
import pytest
from aiohttp import web
from upstreams.recording import FakeUpstream

from trimtab.proxy.compaction.offload import INLINE_BYTES
from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.http.client import UpstreamClient
from trimtab.proxy.models.calibration import WARM_UP_SAMPLES
from trimtab.proxy.models.discovery import Windows, discover
from trimtab.proxy.models.tokenizer import TEMPLATE, TOKENIZE, Prompt, ask_reading, measure_prompt
from trimtab.rules.tokens import scripts
from trimtab.rules.tokens.families import SILENT, Reading
from trimtab.rules.tokens.scripts import SAMPLES

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def wait_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, a server may count late. A test of lateness sets its own limit."""
    monkeypatch.setattr("trimtab.proxy.models.tokenizer.WAIT_SECONDS", 30.0)


def tokens(number: int) -> Json:
    return {"tokens": list(range(number))}


def count_prompt(body: Json) -> int:
    """Priming of 4 if asked for, a frame of 5 for each message, and 20 tokens if the first is no system message."""
    messages, priming = body["messages"], 4 * body["add_generation_prompt"]
    return priming + sum(5 + len(message["content"]) for message in messages) + 20 * (messages[0]["role"] != "system")


def llama(path: str, body: Json) -> Json:
    """llama.cpp: it reads `content`, and writes prompts by its template."""
    if path == TEMPLATE:
        return {"prompt": "x" * count_prompt(body)}
    return tokens(len(body["content"]))


def vllm(path: str, body: Json) -> Json:
    """vLLM: it reads `prompt`, or `messages`; it has no other path."""
    if path != TOKENIZE:
        return {"detail": "Not Found"}
    return tokens(count_prompt(body) if "messages" in body else len(body["prompt"]))


def sglang(path: str, body: Json) -> Json:
    return tokens(len(body["prompt"])) if path == TOKENIZE and "prompt" in body else {"error": "no"}


def tgi(path: str, body: Json) -> Any:
    """TGI: texts only; the answer is the list itself."""
    return [{"id": 1}] * len(body["inputs"]) if path == TOKENIZE and "inputs" in body else {"error": "no"}


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


@pytest.mark.parametrize("server", [sglang, tgi])
async def test_without_a_template_to_ask_the_usual_frame_counts(server: Callable[[str, Json], Json]) -> None:
    assert await ask(server) == Reading(samples=CHARACTERS, priming=3, frame=4.0)


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


@pytest.mark.parametrize("answer", [b"", b'{"error": "no"}', b'{"tokens": []}'])
async def test_a_prompt_that_is_not_counted_shows_nothing(answer: bytes) -> None:
    """Also if it is so short that one token could be right."""

    async def post(*_: object) -> bytes:
        return answer

    sent = Mock(messages=[Mock(texts=["Hello"])])
    assert await measure_prompt(post, "m", Prompt(sent, len)) is None


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


HARBOURS = {
    "German": "Der Hafen liegt an der Mündung des Flusses und wurde von Kaufleuten gegründet. ",
    "Russian": "Порт расположен в устье реки и был основан купцами. ",
    "Thai": "ท่าเรือตั้งอยู่ที่ปากแม่น้ำ ",
}


FRENCH = "Le port se trouve à l'embouchure du fleuve et fut fondé par des marchands. "
ANSWERED = ({"role": "user", "content": "Hello"}, {"role": "assistant", "content": "ok"})
STARTS = tuple(3 * text for text in HARBOURS.values())
Started = Callable[..., Any]


class Server:
    """vLLM's answers. A text that repeats one of HARBOURS has three tokens for eight of its bytes, others two.

    hangs: whether it leaves a prompt's count unanswered. asked: the prompts whose texts it was to count.
    """

    def __init__(self, *, hangs: bool = False) -> None:
        self.hangs = hangs
        self.asked: list[str] = []

    def count(self, text: str) -> int:
        return len(text.encode()) * (3 if text.startswith(STARTS) else 2) // 8

    async def __call__(self, recorded: Any, _: web.BaseRequest) -> web.StreamResponse:
        body = {} if recorded.method == "GET" else recorded.json
        if recorded.path != TOKENIZE:
            sent = sum(4 + self.count(message["content"]) for message in body.get("messages", ()))
            told = LISTED if recorded.method == "GET" else CHAT | {"usage": {"prompt_tokens": 3 + sent}}
        else:
            told = tokens(self.count(body["prompt"])) if "prompt" in body else {}
            if body.get("prompt", "").startswith(STARTS):
                self.asked.append(body["prompt"])
                await asyncio.sleep(30 * self.hangs)
        return web.json_response(told)


CHAT = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}]}


async def send(client: aiohttp.ClientSession, proxy: Any, text: str, before: Sequence[Any] = ()) -> tuple[int, int]:
    """The tokens of a prompt as trimtab and as the server tells them."""
    body = {"model": "m", "messages": [*before, {"role": "user", "content": text}]}
    async with client.post(proxy.url + "/v1/chat/completions", json=body) as response:
        answer = await response.json()
    await proxy.services.models.settle()
    counted = re.search(r"sent=(\d+)", response.headers["x-trimtab-tokens"])
    assert counted is not None
    return int(counted[1]), answer["usage"]["prompt_tokens"]


@pytest.mark.parametrize("language", HARBOURS)
async def test_the_first_count_in_a_language_is_that_of_the_server(
    language: str, client: aiohttp.ClientSession, upstream: FakeUpstream, start_proxy: Started
) -> None:
    """The samples of such a kind show two thirds of it. The next prompt of a session is not asked again."""
    upstream.answer, upstream.answers_questions = server, _ = Server(), True
    proxy = await start_proxy()
    await send(client, proxy, "Hello")
    for before in ((), ANSWERED):
        counted, told = await send(client, proxy, 20 * HARBOURS[language], before)
        assert counted == pytest.approx(told, rel=0.03)
    assert len(server.asked) == 1


async def test_the_first_count_of_a_session_is_that_of_the_server_in_languages_of_one_kind(
    client: aiohttp.ClientSession, upstream: FakeUpstream, start_proxy: Started
) -> None:
    """The server counts two fifths more for German than for French, also after German has been settled by answers."""
    upstream.answer, upstream.answers_questions = Server(), True
    proxy = await start_proxy()
    await send(client, proxy, "Hello")
    for _ in range(WARM_UP_SAMPLES):
        await send(client, proxy, 90 * HARBOURS["German"], ANSWERED)
    for text in (FRENCH, HARBOURS["German"], FRENCH):
        counted, told = await send(client, proxy, 20 * text)
        assert counted == pytest.approx(told, rel=0.03), text


async def test_what_kind_of_text_a_long_prompt_is_in_is_not_found_out_on_the_event_loop(
    client: aiohttp.ClientSession, upstream: FakeUpstream, start_proxy: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for the server's own count of it, nor when the answer reports its tokens."""
    upstream.answer, upstream.answers_questions = server, _ = Server(), True
    proxy, looked, count = await start_proxy(), [], scripts._count_bytes
    await send(client, proxy, "Hello")

    def note(raw: bytes) -> tuple[int, ...]:
        looked.append((threading.current_thread() is threading.main_thread(), len(raw)))
        return count(raw)

    monkeypatch.setattr(scripts, "_count_bytes", note)
    await send(client, proxy, 1000 * HARBOURS["German"])
    assert server.asked
    assert max(size for _, size in looked) > INLINE_BYTES
    assert all(size <= INLINE_BYTES for is_on_loop, size in looked if is_on_loop)


async def test_a_server_that_does_not_count_a_prompt_delays_it_once_and_shortly(
    client: aiohttp.ClientSession,
    upstream: FakeUpstream,
    start_proxy: Started,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trimtab.proxy.models.tokenizer.WAIT_SECONDS", 0.01)
    upstream.answer, upstream.answers_questions = server, _ = Server(hangs=True), True
    proxy = await start_proxy()
    await send(client, proxy, "Hello")
    counts = [await send(client, proxy, 20 * HARBOURS["German"]) for _ in range(2)]
    assert counts[0] == counts[1]
    assert len(server.asked) == 1
