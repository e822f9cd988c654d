"""What is learned of models' windows, from an upstream over real HTTP."""

import asyncio
from dataclasses import replace

import orjson
import pytest
from aiohttp import web
from support.model_learning import NAME, NOW, Clock, Process, Start
from upstreams.recording import FakeUpstream

from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.models.calibration import WARM_UP_SAMPLES
from trimtab.proxy.models.keeping import REDISCOVER_SECONDS, REFRESH_SECONDS
from trimtab.proxy.models.records import Facts, ModelName, Record, Records
from trimtab.proxy.store.store import MemoryStore
from trimtab.rules.tokens.scripts import IS_PLAIN, Measured

CREDENTIAL = [("Authorization", "Bearer sk-client")]


@pytest.fixture
def name(upstream: FakeUpstream) -> ModelName:
    """A model of the upstream's."""
    return replace(NAME, base_url=upstream.url)


def _list(**windows: int) -> bytes:
    """A list of models, by name and window."""
    models = [{"id": name.replace("_", "-"), "max_model_len": window} for name, window in windows.items()]
    return orjson.dumps({"object": "list", "data": models})


async def _seek(process: Process, upstream: FakeUpstream, headers: list[tuple[str, str]] | None = None) -> None:
    process.models.seek_windows(UpstreamConfig(base_url=upstream.url), headers or [], "mine")
    await process.settle()


def _count_questions(upstream: FakeUpstream) -> int:
    """How often the upstream was asked for its list."""
    return sum(asked.path == "/v1/models" for asked in upstream.questions)


async def test_a_window_reaches_a_model_that_is_known(upstream: FakeUpstream, start: Start, name: ModelName) -> None:
    """It is a change, which is counted and logged. The ratio stays."""
    upstream.models, process = _list(secret_model=8192), start()
    assert await process.look_up(name, "glob-*") == Facts(1.0)
    await _seek(process, upstream)

    assert await process.look_up(name, "glob-*") == Facts(1.0, 8192)
    assert process.changes == {"window": 1}
    known = {"event": "policy_changed", "model": "glob-*", "cause": "window", "before": None, "after": 8192}
    assert process.log.lines == [known]


async def test_a_window_reaches_a_model_that_is_new(upstream: FakeUpstream, start: Start, name: ModelName) -> None:
    """It counts from the first request on, so it is no change. A model that is not listed has no window."""
    upstream.models, process = _list(secret_model=8192), start()
    await _seek(process, upstream)

    assert process.models.recall(name) == Facts(1.0, 8192)
    assert await process.models.look_up(name, "other") == Facts(1.0, 8192)
    assert await process.look_up(name) == Facts(1.0, 8192)
    assert await process.look_up(replace(name, model="another")) == Facts(1.0)
    assert await process.look_up(NAME) == Facts(1.0)  # the same name at another upstream
    assert (process.changes, process.log.lines) == ({}, [])


async def test_the_window_of_a_server_of_one_model_is_every_names(upstream: FakeUpstream, start: Start) -> None:
    """llama.cpp serves its model under every name."""
    upstream.models = orjson.dumps({"data": [{"id": "x.gguf", "owned_by": "llamacpp", "meta": {"n_ctx": 16_384}}]})
    process = start()
    await _seek(process, upstream)

    for model in ("x.gguf", "gpt-4o", ""):
        assert (await process.look_up(ModelName(upstream.url, model, "auto"))).window_tokens == 16_384


async def test_a_credential_is_tried_once_where_nothing_was_learned(
    upstream: FakeUpstream, start: Start, name: ModelName, clock: Clock
) -> None:
    """The upstream lists its models only for valid credentials."""
    process = start()
    await _seek(process, upstream)
    upstream.models = _list(secret_model=8192)
    await _seek(process, upstream)
    assert _count_questions(upstream) == 1
    await _seek(process, upstream, CREDENTIAL)

    assert [asked.header("authorization") for asked in upstream.questions if asked.path == "/v1/models"] == [
        [],
        ["Bearer sk-client"],
    ]
    assert await process.look_up(replace(name, tenant="mine")) == Facts(1.0, 8192)
    assert await process.look_up(name) == Facts(1.0)
    upstream.models = None
    await _seek(process, upstream, CREDENTIAL)
    assert _count_questions(upstream) == 2


async def test_a_new_window_is_every_processs_and_stays(
    upstream: FakeUpstream, start: Start, name: ModelName, clock: Clock
) -> None:
    """A process that asked before the upstream was restarted with another window must not bring back the old one."""
    upstream.models, first, second = _list(secret_model=8192), start(), start()
    for process in (first, second):
        await _seek(process, upstream)
        assert await process.look_up(name) == Facts(1.0, 8192)
    upstream.models = _list(secret_model=4096)
    clock.seconds += REDISCOVER_SECONDS + 1
    await _seek(first, upstream)
    for process in (second, first) * 3:
        clock.seconds += REFRESH_SECONDS + 1
        assert await process.look_up(name) == Facts(1.0, 4096)

    assert first.changes == second.changes == {"window": 1}
    await _seek(second, upstream)
    upstream.models = _list(secret_model=8192)
    clock.seconds += REDISCOVER_SECONDS + 1
    await _seek(second, upstream)
    for process in (first, second) * 3:
        clock.seconds += REFRESH_SECONDS + 1
        assert await process.look_up(name) == Facts(1.0, 8192)
    assert first.changes == second.changes == {"window": 2}


async def test_closing_leaves_no_task(upstream: FakeUpstream, start: Start, name: ModelName) -> None:
    """Neither an unanswered question nor a store that hangs delays it."""
    asked, read = asyncio.Event(), asyncio.Event()

    async def hang(_recorded: object, _request: object) -> web.StreamResponse:
        asked.set()
        await asyncio.Event().wait()
        return web.Response()

    class Hanging(MemoryStore):
        async def get(self, summary_id: str) -> bytes | None:
            read.set()
            await asyncio.Event().wait()
            return await super().get(summary_id)

    upstream.answers_questions, upstream.answer = True, hang
    before = asyncio.all_tasks()
    process = start(Hanging())
    process.models.seek_windows(UpstreamConfig(base_url=upstream.url))
    looking = asyncio.ensure_future(process.models.look_up(name, "other"))
    async with asyncio.timeout(30):
        await asked.wait()
        await read.wait()
        await process.models.close()
        assert await looking == Facts(1.0)
        await upstream.cancelled.wait()

    assert not {task for task in asyncio.all_tasks() - before if "proxy" in repr(task.get_coro())}


HOSTED = ModelName("https://api.openai.com/v1", "gpt-3.5-turbo", "cl100k_base")


async def test_the_catalogue_knows_what_nobody_tells(start: Start) -> None:
    """Its window is known from the first request on, and is never written to the store."""
    store = MemoryStore()
    process = start(store)
    assert process.models.recall(HOSTED).window_tokens == 16_385
    assert (await process.models.look_up(HOSTED, "other")).window_tokens == 16_385

    await process.look_up(HOSTED)
    await process.feed([1.3] * WARM_UP_SAMPLES, HOSTED)
    generation, record = await Records(store).read(HOSTED)

    assert (await process.look_up(HOSTED)).window_tokens == 16_385
    measured = (Measured(IS_PLAIN, 1.3),)
    found = Record(1.3, None, calibrated=True, ratio_source="answers", ratio_at=NOW, measured=measured)
    assert (generation, record) == (1, found)
    assert process.changes == {"calibration": 1}
