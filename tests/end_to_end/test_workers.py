"""Several processes on one port: one dies, all reload, all drain; metrics are as with one process."""

import asyncio
import os
import re
import signal
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from programs.serving import read_log, serving
from support.client import CHAT, post
from upstreams.recording import event

TWO = ("--set", "workers=2")
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


async def read_api(url: str, path: str) -> Any:
    """What a page of the dashboard shows, by whichever worker answers."""
    address = f"{url.removesuffix('/v1')}/trimtab/api/{path}"
    async with aiohttp.ClientSession() as session, session.get(address) as response:
        return orjson.loads(await response.read())


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
    """The other worker's streams end normally. The killed one is replaced, and no count is lost, on any page."""
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
            overview = await read_api(url, "overview")
            assert (overview["totals"]["requests"], overview["workers"]) == (2 * STREAMS + sum(finished), 2)
        told = set[int]()
        async with asyncio.timeout(30):  # a request is told a little after its answer
            while told != {1, 2}:
                told = {one["worker"] for one in (await read_api(url, "requests?limit=500"))["requests"]}
        assert count_threads(process) == 1  # a process with one thread may fork


async def test_a_reload_holds_for_all_and_for_those_that_come_later(upstream, tmp_path):
    """An invalid configuration is logged once. If the supervisor is killed, its workers drain and end."""
    file = tmp_path / "trimtab.yaml"

    def reload(text: str) -> None:
        file.write_text(f"store: memory\nupstream: {{base_url: {upstream.url}}}\n{text}", encoding="utf-8")
        process.send_signal(signal.SIGHUP)

    async def find_limits() -> set[str]:
        return {(await ask(url)).headers["x-trimtab-tokens"].partition("limit=")[2] for _ in range(8)}

    arguments = ("--upstream", upstream.url, "--set", "defaults.completion_reserve=0")
    file.write_text("store: memory", encoding="utf-8")
    async with serving(*TWO, "--config", str(file), *arguments) as (process, url):
        reload("models: [{match: 'm*', context_window: 30000}]")
        lines = await read_log(process, "reloaded") + await read_log(process, "reloaded")
        assert {line["worker"] for line in lines if line["event"] == "reloaded"} == {1, 2}
        assert await find_limits() == {"30000"}
        reload("nope: 1")
        (line,) = [one for one in await read_log(process, "configuration_invalid") if one["event"] != "request"]
        assert "worker" not in line
        for pid in find_workers(process):
            os.kill(pid, signal.SIGKILL)
        lines = await read_log(process, "worker_ready") + await read_log(process, "worker_ready")
        assert await find_limits() == {"30000"}
        process.kill()
        lines += await read_log(process, "draining") + await read_log(process, "draining")
        await asyncio.wait_for(process.stderr.read(), 30)  # the pipe closes when the last process ends
    assert {line["worker"] for line in lines if line["event"] == "draining"} == {1, 2}
    assert [line["event"] for line in lines].count("configuration_invalid") == 0


async def test_all_workers_drain(upstream):
    """Streams in flight end normally, and no new connection is accepted. The status is 0, and no file is left.

    The signal comes to all processes, as systemd sends it, so each worker gets it twice.
    """
    release = hold_streams(upstream)
    async with serving(*TWO, "--upstream", upstream.url) as (process, url):
        async with asyncio.TaskGroup() as tasks:
            streams = await begin_streams(url, tasks)
            workers, folder = find_workers(process), find_folder(process)
            for pid in (process.pid, *workers):
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
