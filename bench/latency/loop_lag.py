"""Measures how long the proxy's event loop is blocked while large requests are counted, by a probe on that loop.

    python -m bench.latency.loop_lag --posts 20

The proxy runs in this process, on uvloop, as `trimtab serve` runs it. The upstream and the client are processes of
their own. The messages of a body have never been seen, unless the case says so. After each case the loop idles for as
long, because the machine itself stalls now and then.

Columns, for the longest delay: *own*: the loop's thread ran; *in line*: it waited for a processor that other processes
had; *lock*: it waited for the interpreter, which another thread had. *longest of the program*: the longest delay
without the wait in line and without time in which no thread of the program ran.
"""

import argparse
import asyncio
import gc
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from statistics import median
from typing import NoReturn

import orjson
import structlog
import uvloop

from bench.figures import describe_machine, judge, print_table
from bench.harness.counting import Codec, load_encoding, make_counter, read_body
from bench.harness.loop_probe import LAG_HEADINGS, Lag, Probe, describe_lags
from bench.harness.servers import run_upstream
from bench.latency.loop_client import PAUSE_SECONDS, Case, build_shape
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.schema import Config
from trimtab.proxy.server.app import run_proxy
from trimtab.proxy.wire.codec import Request
from trimtab.rules.conversation import CountTokens

GOAL_MS = 10.0
GOAL_KILOBYTES = 1000
HARD_KILOBYTES = 20_000
HARD_POSTS = 3
SETTLE_SECONDS = 1.0
"""Chosen: time for the upstream and the client to start."""
MIN_IDLE_SECONDS = 1.0
MAX_IDLE_SECONDS = 3.0
BREATH_SECONDS = 0.2
"""Chosen: pause before a case, so that its preparation is not measured."""
WIDE, NARROW = "wide", "narrow"
WINDOWS = {WIDE: 10_000_000, NARROW: 32_768}
"""The windows of the cases: count and forward unchanged, or cut."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The delays during a case, the longest of each post in milliseconds, and the delays of an idle loop afterwards."""

    lags: Sequence[Lag]
    longest: Sequence[float]
    idle: Sequence[Lag]


def make_cases(posts: int) -> list[Case]:
    sizes = (("100 kB", 100), ("400 kB", 400), ("1 MB", GOAL_KILOBYTES))
    doings = ((WIDE, "nothing to do"), (NARROW, "cut"))
    crowds = ((1, ""), (4, ", four at once"))
    return [
        Case("400 kB, known, nothing to do", 400, posts, WIDE, is_known=True),
        *(
            Case(f"{size}, {doing}{crowd}", kilobytes, posts, model, at_once=at_once)
            for at_once, crowd in crowds
            for size, kilobytes in sizes
            for model, doing in doings
        ),
        Case("1 MB in one text, nothing to do", GOAL_KILOBYTES, posts, WIDE, is_one_text=True),
        Case("1 MB in one text, cut", GOAL_KILOBYTES, posts, NARROW, is_one_text=True),
        Case("20 MB, nothing to do", HARD_KILOBYTES, HARD_POSTS, WIDE),
        Case("20 MB, cut", HARD_KILOBYTES, HARD_POSTS, NARROW),
        Case("20 MB in one text, nothing to do", HARD_KILOBYTES, HARD_POSTS, WIDE, is_one_text=True),
    ]


class Client:
    """The process of loop_client.py."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def prepare(self, case: Case) -> None:
        """Let the client build the bodies of a case."""
        await self._ask(orjson.dumps(asdict(case)))

    async def post(self) -> list[tuple[int, int]]:
        """Let the client post them; return when each post began and ended (nanoseconds)."""
        spans: list[tuple[int, int]] = orjson.loads(await self._ask(b"go"))
        return spans

    async def _ask(self, line: bytes) -> bytes:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError
        self._process.stdin.write(line + b"\n")
        answer = await self._process.stdout.readline()
        if not answer:
            message = "the client ended"
            raise RuntimeError(message)
        return answer


@asynccontextmanager
async def run_client(port: int) -> AsyncIterator[Client]:
    command = (sys.executable, "-m", "bench.latency.loop_client", str(port))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    try:
        yield Client(process)
    finally:
        process.terminate()
        await process.wait()


async def measure_case(client: Client, case: Case, probe: Probe) -> Measured:
    await client.prepare(case)
    await asyncio.sleep(BREATH_SECONDS)
    probe.take()
    spans = sorted(await client.post())
    starts = [began for began, _ in spans[:: case.at_once]]
    return await _idle_and_summarise(probe, starts)


async def measure_work(work: Callable[[], object], probe: Probe) -> Measured:
    """As `measure`, for work in a thread, repeated a few times without any request."""
    probe.take()
    starts = []
    for _ in range(HARD_POSTS):
        starts.append(time.monotonic_ns())
        await asyncio.to_thread(work)
        await asyncio.sleep(PAUSE_SECONDS)
    return await _idle_and_summarise(probe, starts)


async def _idle_and_summarise(probe: Probe, starts: Sequence[int]) -> Measured:
    """Divide the recorded delays by the posts that began at `starts`; then idle for as long."""
    bounds = [*starts, time.monotonic_ns()]
    await asyncio.sleep(min(max((bounds[-1] - bounds[0]) / 1e9, MIN_IDLE_SECONDS), MAX_IDLE_SECONDS))
    taken = probe.take()
    each = [[lag for ended, lag in taken if start <= ended < stop] for start, stop in pairwise(bounds)]
    return Measured(
        [lag for lags in each for lag in lags],
        [max(lag.total for lag in lags) for lags in each if lags],
        [lag for ended, lag in taken if ended >= bounds[-1]],
    )


HEADINGS = ("ms", "posts", *LAG_HEADINGS[:2], "median of the posts' longest", *LAG_HEADINGS[2:])


def describe(name: str, measured: Measured) -> list[str]:
    p50, p99, *others = describe_lags(measured.lags, measured.idle)
    return [name, f"{len(measured.longest)}", p50, p99, f"{median(measured.longest):.1f}", *others]


def make_lone_works() -> dict[str, Callable[[], object]]:
    """The parts of the work for a request of 20 MB, each alone in a thread."""
    encoding = load_encoding()
    body = build_shape(HARD_KILOBYTES * 1000, is_one_text=False)
    one = build_shape(HARD_KILOBYTES * 1000, is_one_text=True)
    request, one_request = read_body(body), read_body(one)
    text = orjson.loads(one)["messages"][-1]["content"]

    kept: list[Codec] = []  # kept, as the proxy keeps it: freeing all of it takes long, too

    def decode(request: Request, count: CountTokens) -> None:
        kept.append(Codec(count))
        kept[-1].decode(request)

    return {
        "20 MB: splitting": partial(read_body, body),
        "20 MB: decoding": partial(decode, request, len),
        "20 MB: decoding and counting": partial(decode, request, make_counter(encoding)),
        "20 MB in one text: splitting": partial(read_body, one),
        "20 MB in one text: decoding": partial(decode, one_request, len),
        "20 MB in one text: counting": lambda: make_counter(encoding)(text),
    }


async def measure_all(config: Config, cases: Sequence[Case], *, lone: bool) -> dict[str, Measured]:
    log = structlog.get_logger()
    probe = Probe()
    measured: dict[str, Measured] = {}
    async with asyncio.TaskGroup() as tasks, run_proxy(config, log, Compactors(log)) as proxy:
        gc.freeze()  # as `trimtab serve` does
        watching = tasks.create_task(probe.run())
        async with run_client(int(proxy.url.rpartition(":")[2])) as client:
            await asyncio.sleep(SETTLE_SECONDS)
            for case in cases:
                measured[case.name] = await measure_case(client, case, probe)
        works = await asyncio.to_thread(make_lone_works) if lone else {}
        for name, work in works.items():
            await asyncio.sleep(BREATH_SECONDS)
            measured[name] = await measure_work(work, probe)
        watching.cancel()
    return measured


def note_fault(faults: Counter[str], _: object, level: str, event: structlog.typing.EventDict) -> NoReturn:
    """Count the warnings of the proxy: a request that fails open is not what should be measured."""
    faults[f"{level} {event['event']} {event.get('phase', '')} {event.get('error', '')}".strip()] += 1
    raise structlog.DropEvent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--posts", type=int, default=20, help="posts of each case, except those of 20 MB")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    arguments = parser.parse_args()
    faults: Counter[str] = Counter()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING), processors=[partial(note_fault, faults)]
    )
    cases = [case for case in make_cases(arguments.posts) if arguments.only in case.name]
    print(describe_machine())
    with run_upstream() as upstream_port, tempfile.TemporaryDirectory(prefix="trimtab-bench-") as folder:
        config = Config.model_validate(
            {
                "listen": "127.0.0.1:0",
                "upstream": {"base_url": f"http://127.0.0.1:{upstream_port}/v1"},
                "store": f"sqlite:///{folder}/summaries.sqlite",
                "models": [{"match": f"{name}-*", "context_window": size} for name, size in WINDOWS.items()],
            }
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            measured = runner.run(measure_all(config, cases, lone=not arguments.only))
    print_table("Delays of the event loop, ms", HEADINGS, [describe(name, each) for name, each in measured.items()])
    for fault, times in faults.items():
        print(f"\nWARNING, the proxy logged {times} times: {fault}")
    within = [lag for case in cases if case.kilobytes <= GOAL_KILOBYTES for lag in measured[case.name].lags]
    if within:
        total, program = max(lag.total for lag in within), max(lag.program for lag in within)
        print(f"\nbodies up to 1 MB: longest {total:.1f} ms, {judge(total, GOAL_MS, 'ms')};")
        print(f"of the program {program:.1f} ms, {judge(program, GOAL_MS, 'ms')}")


if __name__ == "__main__":
    main()
