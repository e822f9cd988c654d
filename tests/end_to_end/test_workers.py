"""Several processes on one port: one dies, all reload, all drain; metrics and summaries are as with one process."""

import asyncio
import os
import re
import signal
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from programs.serving import own_environment, read_log, serving
from programs.starts import start_trimtab
from support.client import CHAT, SMALL, post
from support.sessions import make_session, requests_of
from upstreams.recording import event

TWO = ("--set", "workers=2")
ONE_CUT = 40
"""The index of a request whose cut part fits into one summary request."""
STREAMS = 24
"""This many connections reach both workers, except once in eight million runs."""


async def ask(url: str, body: Any = CHAT, **headers: str) -> Any:
    """Send a request on a new connection."""
    async with aiohttp.ClientSession() as session:
        response, _ = await post(session, url + "/chat/completions", body, **headers)
        return response


async def ask_many(url: str, count: int) -> None:
    """Send requests at once, each on its own connection. All must succeed."""
    assert {response.status for response in await asyncio.gather(*(ask(url) for _ in range(count)))} == {200}


async def read_metrics(url: str) -> dict[str, float]:
    """The metrics page: values by name with labels."""
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        text = await response.text()
    return {key: float(value) for key, value in re.findall(r"^([^#].*) (\S+)$", text, re.MULTILINE)}


async def settle(url: str) -> None:
    """Wait until no request is in flight. A request is counted once its cost is booked, a little after its answer."""
    while (await read_metrics(url))["trimtab_requests_in_flight"]:
        pass


def find_workers(process: Process) -> list[int]:
    """The ids of the processes that the supervisor has forked."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(pid) for pid in children.read_text("ascii").split()]


def find_folder(process: Process) -> Path:
    """The folder to which the workers write their metrics."""
    open_files = {one.readlink() for one in Path(f"/proc/{process.pid}/fd").iterdir()}
    (lock,) = [path for path in open_files if "trimtab-metrics-" in str(path)]
    return lock.parent


def count_threads(process: Process) -> int:
    """The number of the supervisor's threads."""
    return len(list(Path(f"/proc/{process.pid}/task").iterdir()))


def sum_samples(page: dict[str, float], name: str) -> float:
    """The sum over all series of a metric."""
    return sum(value for key, value in page.items() if key.partition("{")[0] == name)


def hold_streams(upstream: Any) -> asyncio.Event:
    """From now on the upstream sends half a stream, and the rest after the event is set."""
    release = asyncio.Event()

    async def hold(_recorded, request):
        response = aiohttp.web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(event("half"))
        await release.wait()
        await response.write(event("rest"))
        await response.write_eof()
        return response

    upstream.answer = hold
    return release


async def read_stream(url: str, begun: "asyncio.Queue[int]") -> bool:
    """Whether a stream ended normally. Its start is put into the queue."""
    async with aiohttp.ClientSession() as session:
        try:
            async with session.post(url + "/chat/completions", json=CHAT | {"stream": True}) as response:
                begun.put_nowait(1)
                return (await response.read()).endswith(event("rest"))
        except aiohttp.ClientError:
            return False


async def begin_streams(url: str, tasks: asyncio.TaskGroup) -> list["asyncio.Task[bool]"]:
    """Start streams, each on its own connection, and wait until all have begun."""
    begun: asyncio.Queue[int] = asyncio.Queue()
    streams = [tasks.create_task(read_stream(url, begun)) for _ in range(STREAMS)]
    for _ in streams:
        await asyncio.wait_for(begun.get(), 30)
    return streams


async def test_a_worker_that_is_killed_takes_only_its_open_requests_with_it(upstream):
    """The other worker's streams end normally. The killed one is replaced, and no count is lost."""
    async with serving(*TWO, "--upstream", upstream.url) as (process, url):
        metrics = url.removesuffix("/v1") + "/metrics"
        await ask_many(url, STREAMS)
        plain, release = upstream.answer, hold_streams(upstream)
        async with asyncio.TaskGroup() as tasks:
            streams = await begin_streams(url, tasks)
            assert (await read_metrics(metrics))["trimtab_requests_in_flight"] == STREAMS
            os.kill(find_workers(process)[0], signal.SIGKILL)
            lines = await read_log(process, "worker_ready")
            release.set()
        finished = [stream.result() for stream in streams]
        assert 0 < sum(finished) < STREAMS
        (died,) = [line for line in lines if line["event"] == "worker_died"]
        assert (died["worker"], died["signal"], died["again_in_seconds"]) == (1, "SIGKILL", 0)
        upstream.answer = plain
        await ask_many(url, STREAMS)
        await settle(metrics)
        for _ in range(8):  # either worker may answer
            page = await read_metrics(metrics)
            assert sum_samples(page, "trimtab_requests_total") == 2 * STREAMS + sum(finished)
            assert page["trimtab_requests_in_flight"] == 0
            assert page['trimtab_worker_restarts_total{worker="1"}'] == 1
            assert sum_samples(page, "trimtab_worker_up") == 2
        assert count_threads(process) == 1  # a process with one thread may fork


async def test_a_reload_holds_for_all_and_for_those_that_come_later(upstream, tmp_path):
    """Each worker logs it. An invalid configuration is logged once, and no worker uses it."""
    file = tmp_path / "trimtab.yaml"

    def write(text: str) -> None:
        file.write_text(f"upstream: {{base_url: {upstream.url}}}\n{text}", encoding="utf-8")

    write("models: [{match: 'm*', context_window: 40000}]")
    async with serving(*TWO, "--config", str(file), "--set", "defaults.completion_reserve=0") as (process, url):
        start = time.time()
        write("models: [{match: 'm*', context_window: 30000}]\nstore_ttl_seconds: 60")
        process.send_signal(signal.SIGHUP)
        lines = await read_log(process, "reloaded")
        lines += await read_log(process, "reloaded")
        assert {line["worker"] for line in lines if line["event"] == "reloaded"} == {1, 2}
        assert {line["key"] for line in lines if line["event"] == "reload_incomplete"} == {"store_ttl_seconds"}
        write("nope: 1")
        process.send_signal(signal.SIGHUP)
        (line,) = await read_log(process, "configuration_invalid")
        assert "worker" not in line
        page = await read_metrics(url.replace("/v1", "/metrics"))
        assert page["trimtab_config_last_reload_successful"] == 0
        assert start <= page["trimtab_config_last_reload_success_timestamp_seconds"] <= time.time()
        for pid in find_workers(process):
            os.kill(pid, signal.SIGKILL)
        await read_log(process, "worker_ready")
        await read_log(process, "worker_ready")
        limits = {(await ask(url)).headers["x-trimtab-tokens"].partition("limit=")[2] for _ in range(8)}
        assert limits == {"30000"}


@pytest.mark.parametrize("to_all", [False, True], ids=["to the supervisor", "to all, as systemd sends it"])
async def test_all_workers_drain(to_all, upstream):
    """Streams in flight end normally, and no new connection is accepted. The status is 0, and no file is left."""
    release = hold_streams(upstream)
    async with serving(*TWO, "--upstream", upstream.url) as (process, url):
        async with asyncio.TaskGroup() as tasks:
            streams = await begin_streams(url, tasks)
            workers, folder = find_workers(process), find_folder(process)
            for pid in (process.pid, *workers) if to_all else (process.pid,):
                os.kill(pid, signal.SIGTERM)
            lines = await read_log(process, "draining")
            lines += await read_log(process, "draining")
            assert {line["worker"] for line in lines} == {1, 2}
            await refuse(url)
            release.set()
        assert all(stream.result() for stream in streams)
        assert await asyncio.wait_for(process.wait(), 30) == 0
    assert not os.access(folder, os.F_OK)


async def refuse(url: str) -> None:
    """Wait until new connections are refused."""
    async with asyncio.timeout(30):
        while True:
            try:
                await ask(url, b"{}")
            except aiohttp.ClientConnectorError:
                return
            except aiohttp.ClientError:
                continue


async def test_workers_end_with_their_supervisor(upstream):
    """They drain and leave no process behind."""
    release = hold_streams(upstream)
    async with serving(*TWO, "--upstream", upstream.url) as (process, url):
        async with asyncio.TaskGroup() as tasks:
            streams = await begin_streams(url, tasks)
            process.kill()
            await read_log(process, "draining")
            release.set()
        assert all(stream.result() for stream in streams)
        await asyncio.wait_for(process.stderr.read(), 30)  # the pipe closes when the last process ends


@pytest.mark.parametrize(
    ("settings", "status", "said"),
    [
        (["workers=2", "metrics_listen=127.0.0.1:TAKEN"], 1, "trimtab: cannot listen on 127.0.0.1:0 or 127.0.0.1:"),
        (["workers=8"], 2, "trimtab: workers: 8 workers need limits.max_memory_bytes of at least 4294967296"),
        (["workers=0"], 2, "trimtab: workers: 0 must be auto, or a whole number from 1 to 256"),
    ],
)
async def test_what_keeps_workers_from_starting_is_said_once(settings, status, said, upstream):
    """The status is that of a single process, and no worker starts."""
    taken = upstream.url.removesuffix("/v1").rpartition(":")[2]
    arguments = [word for setting in settings for word in ("--set", setting.replace("TAKEN", taken))]
    process = await start_trimtab("serve", "--listen", "127.0.0.1:0", *arguments, stderr=PIPE, env=own_environment())
    _, told = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == status
    (line,) = told.decode().splitlines()
    assert line.startswith(said)


async def test_pages_have_an_address_of_their_own(upstream):
    """All workers share it, and the system may choose its port too. Each line but the supervisor's names its worker."""
    process = await start_trimtab(
        *("serve", "--listen", "127.0.0.1:0", "--upstream", upstream.url, *TWO),
        *("--set", "metrics_listen=127.0.0.1:0", "--set", "store=memory"),
        stderr=PIPE,
        env=own_environment(),
    )
    lines = await read_log(process, "listening")
    assert [line["event"] for line in lines] == ["store_not_shared", "listening"]
    assert lines[-1]["workers"] == 2
    await ask_many(lines[-1]["url"], 4)
    await settle(lines[-1]["metrics"])
    for _ in range(8):
        assert sum_samples(await read_metrics(lines[-1]["metrics"]), "trimtab_requests_total") == 4
    async with aiohttp.ClientSession() as session:
        ready = lines[-1]["metrics"].removesuffix("/metrics") + "/trimtab/ready"
        async with session.get(ready) as response:
            assert (response.status, await response.read()) == (200, b'{"status":"ready"}')
    process.send_signal(signal.SIGTERM)
    _, said = await process.communicate()
    assert process.returncode == 0
    written = [orjson.loads(line) for line in said.splitlines()]
    assert Counter(line["event"] for line in written) == {"request": 4, "draining": 2}
    assert all(line["worker"] in {1, 2} for line in written)


@pytest.mark.parametrize("key", ["Bearer sk-test", ""], ids=["with a key", "without"])
async def test_a_summary_that_both_want_is_asked_for_once(key, upstream):
    """The first worker requests it, and the other one finds the text."""
    session = make_session(60, result_words=120)
    bodies = [{"model": "m", "messages": messages, "tools": session["tools"]} for messages in requests_of(session)]
    plain, release, asked = upstream.answer, asyncio.Event(), asyncio.Event()

    async def hold(recorded, request):
        if recorded.asks_for_summary:
            asked.set()
            await release.wait()
        return await plain(recorded, request)

    upstream.answer = hold
    settings = [word for setting in (*SMALL, "defaults.summary.max_tokens=300") for word in ("--set", setting)]
    async with serving(*TWO, *settings, "--upstream", upstream.url) as (process, url):
        waiting = [asyncio.ensure_future(ask(url, bodies[ONE_CUT], Authorization=key)) for _ in range(STREAMS)]
        await asyncio.wait_for(asked.wait(), 30)
        release.set()
        assert {response.status for response in await asyncio.gather(*waiting)} == {200}
        assert {(await ask(url, bodies[ONE_CUT], Authorization=key)).status for _ in range(8)} == {200}
        workers: Counter[int] = Counter()
        while workers.total() < STREAMS + 8:
            workers[(await read_log(process, "request"))[-1]["worker"]] += 1
        assert set(workers) == {1, 2}
        assert len(upstream.summaries) == 1
        sent = {recorded.sha256 for recorded in upstream.chats}
        assert len(sent) <= 2  # the body without the cut, and the body with it
