"""What is learned of models' windows, from an upstream over real HTTP."""

import asyncio
from dataclasses import replace

import orjson
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from support.client import wait_until
from support.model_learning import NAME, NOW, TOKENS, Clock, Process, Start, report, run_processes
from upstreams.recording import FakeUpstream

from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.models import keeping, records
from trimtab.proxy.models.calibration import WARM_UP_SAMPLES
from trimtab.proxy.models.discovery import Windows
from trimtab.proxy.models.keeping import MODEL_BYTES, REDISCOVER_SECONDS, REFRESH_SECONDS, _Upstream
from trimtab.proxy.models.records import MAX_RATIO, Facts, ModelName, Record, Records
from trimtab.proxy.models.service import MAX_NAME_CHARS
from trimtab.proxy.store.opening import LayeredStore
from trimtab.proxy.store.store import MemoryStore
from trimtab.rules.tokens.scripts import IS_PLAIN, Measured

CREDENTIAL = [("Authorization", "Bearer sk-client")]


@pytest.fixture
def name(upstream: FakeUpstream) -> ModelName:
    return replace(NAME, base_url=upstream.url)


def _list(**windows: int) -> bytes:
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


async def test_a_credential_is_tried_once_where_nothing_was_learned(
    upstream: FakeUpstream, start: Start, name: ModelName, clock: Clock
) -> None:
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


class Held(MemoryStore):
    """Notes what it is asked for, and answers when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.may_answer = asyncio.Event()

    async def get(self, summary_id: str) -> bytes | None:
        self.asked.append(summary_id)
        await self.may_answer.wait()
        return await super().get(summary_id)


async def test_closing_leaves_no_task(upstream: FakeUpstream, start: Start, name: ModelName) -> None:
    """Neither an unanswered question nor a store that hangs delays it."""
    asked, store = asyncio.Event(), Held()

    async def hang(_recorded: object, _request: object) -> web.StreamResponse:
        asked.set()
        await asyncio.Event().wait()
        return web.Response()

    upstream.answers_questions, upstream.answer = True, hang
    before = asyncio.all_tasks()
    process = start(store)
    process.models.seek_windows(UpstreamConfig(base_url=upstream.url))
    looking = asyncio.ensure_future(process.models.look_up(name, "other"))
    async with asyncio.timeout(30):
        await asked.wait()
        await wait_until(lambda: bool(store.asked))
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


# Learning in several processes that share a store.


RATIOS = st.lists(st.floats(0.01, 30.0) | st.sampled_from((0.06, 1.0, 1.7, 12.0)), min_size=1, max_size=12)


@given(st.lists(st.tuples(st.integers(0, 2), RATIOS, st.integers(1, 9)), min_size=1, max_size=12))
def test_processes_that_hear_different_things_agree_at_the_next_look(
    reported: list[tuple[int, list[float], int]],
) -> None:
    """It does not matter how their reports differ, or which process writes first."""

    async def run() -> None:
        clock = Clock()
        async with run_processes(clock) as start:
            processes = [start() for _ in range(3)]
            for process in processes:
                await process.look_up()
            for who, ratios, times in reported:
                await processes[who].feed(ratios * times)
                if times % 2:  # else they get more reports before they read the store
                    continue
                clock.seconds += REFRESH_SECONDS + 1
                known = [await process.look_up() for process in processes]
                assert known == known[:1] * 3
                assert 1 / MAX_RATIO <= known[0].ratio <= MAX_RATIO

    asyncio.run(run())


async def test_one_question_serves_all_who_ask_first(start: Start) -> None:
    """Requests that meet a model at the same time read the store once."""
    store = Held()
    process = start(store)
    asyncio.get_running_loop().call_later(0, store.may_answer.set)
    await asyncio.gather(*(process.models.look_up(NAME, "other") for _ in range(5)))

    assert len(store.asked) == 1
    assert NAME.model not in store.asked[0]
    assert NAME.base_url not in store.asked[0]


async def test_replicas_agree_again_after_a_store_lost_everything(start: Start, clock: Clock) -> None:
    """Each has a memory in front of the store. One starts anew, and knows again what the other one still knew."""
    durable = MemoryStore()
    fronts = [LayeredStore(durable, ttl_seconds=3600, on_error=str, log=None, clock=clock) for _ in range(2)]
    process = start(fronts[0])
    await process.look_up()
    await process.feed([1.3] * WARM_UP_SAMPLES)
    MemoryStore.__init__(durable)  # empty it
    fresh = start(fronts[1])
    assert await fresh.look_up() == Facts(1.0)
    for _ in range(2):
        clock.seconds += REFRESH_SECONDS + 1
        for each, front in zip((process, fresh), fronts, strict=True):
            await each.look_up()
            await front.settle()

    assert await fresh.look_up() == await process.look_up() == Facts(1.3)
    for front in fronts:
        await front.close()


async def test_a_store_that_hangs_holds_up_the_first_request_only(start: Start) -> None:
    """The wait is short, and no other request waits. The store's late answer counts as a change."""
    store = Held()
    await store.put(records._record_id(NAME, 1), b'{"ratio":1.3,"calibrated":true}')
    process = start(store)
    process.models.read_seconds = 0.001
    assert await process.models.look_up(NAME, "other") == Facts(1.0)
    process.models.read_seconds = 3600
    async with asyncio.timeout(30):
        assert await process.models.look_up(NAME, "other") == Facts(1.0)

    store.may_answer.set()
    assert await process.look_up() == Facts(1.3)
    assert process.changes == {"calibration": 1}


# Learning, if clients invent names and upstreams send misleading reports.


ONE_MODEL = orjson.dumps({"data": [{"id": "x.gguf", "owned_by": "llamacpp", "meta": {"n_ctx": 16_384}}]})
"""A list of llama.cpp's, which serves whatever name a request says."""


async def test_a_name_that_is_too_long_is_not_kept(start: Start) -> None:
    """Only its family's ratio is used, and nothing that a client could make large is kept."""
    store = Held()
    process = start(store)
    for length in (MAX_NAME_CHARS + 1, 1_000_000):
        name = replace(NAME, model="claude-opus-4-7".ljust(length, "x"))
        assert await process.look_up(name) == Facts(1.5)
        assert await process.feed([3.0] * WARM_UP_SAMPLES, name) == 1.5

    assert (store.asked, process.models.list_known()) == ([], [])
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


async def test_invented_names_do_not_push_out_a_model_that_warms_up(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "MAX_MODELS_BYTES", 40 * MODEL_BYTES)
    process = start()
    await process.look_up()
    for number in range(WARM_UP_SAMPLES):
        ratio = await process.feed([1.4])
        for other in range(41):
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
