"""Ten minutes of mixed clients in front of an upstream that fails in every way: nothing grows, nothing is lost.

    python -m bench.soak.run --minutes 10 --clients 16

The proxy is `trimtab serve` in its own process, and so is the upstream. Every request has an id. What the client saw of
a request must be what the upstream did to it (faults.py), and the proxy's own metrics must count the same. The status
is 1 if anything differs. The memory's growth is the slope of a line through all samples of resident memory after the
warm-up (two minutes, or a fifth of the run). In the warm-up large requests fill the proxy's caches.
"""

import asyncio
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import linear_regression, mean

import aiohttp
import click
import msgspec
import orjson

from bench.figures import describe_machine, print_table
from bench.harness.servers import TRIMTAB, find_free_port, run_upstream, start_proxy, stop, wait_until_ready
from bench.soak.clients import BIGS, Books, Client, Texts
from bench.soak.faults import BROKEN, LEFT, SEEN, TOO_LONG

CONFIG = """
store: sqlite:///{folder}/summaries.sqlite3
upstream: {{base_url: "http://127.0.0.1:{port}/v1", read_timeout_seconds: 3}}
limits: {{max_body_bytes: 1000000}}
defaults: {{completion_reserve: 1000, summary: {{timeout_seconds: 4, max_tokens: 300}}}}
models:
  - {{match: wide, context_window: 1000000}}
  - {{match: "m-*", context_window: 10000}}
"""
MAX_GROWTH = 0.05
WARM_UP_SECONDS, WARM_UP_SHARE = 120.0, 0.2
SAMPLE_SECONDS = 1.0
JUDGED_MINUTES = 5.0
"""Chosen: in a shorter run the memory grows because caches fill, so growth is not judged."""
IDLE_SECONDS = 6.0
"""Chosen: the upstream closes idle connections after five seconds."""
CALM_SECONDS = 25.0
"""Chosen: the proxy closes them after fifteen seconds."""
EXPECTED_EVENTS = frozenset(
    {"listening", "request", "summary", "draining"}
    | {"policy_changed", "estimates_off"}  # the upstream counts tokens by bytes
    | {"summaries_fail", "summaries_work_again"}  # it also fails calls for summaries
)
_REQUESTS = re.compile(r"^trimtab_requests_total\{(.*)\} ([\d.e+]+)$", re.MULTILINE)


class Told(msgspec.Struct):
    """The upstream's ledger."""

    by_id: dict[str, list[str]]
    without_id: dict[str, int]


@dataclass
class Process:
    """The process of the proxy: what the kernel knows of it, and its log."""

    pid: int
    port: int
    log: Path
    samples: list[tuple[float, float]] = field(default_factory=list)

    @property
    def resident_bytes(self) -> int:
        """Its resident memory."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    @property
    def descriptors(self) -> int:
        """How many file descriptors it has open."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    async def read_metrics(self) -> str:
        """Its metrics, read on a separate connection."""
        url = f"http://127.0.0.1:{self.port}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url, headers={"Connection": "close"}) as response:
            return await response.text()

    def count_events(self) -> Counter[str]:
        """Its log lines by event; those of libraries also by source and error."""
        lines = [orjson.loads(line) for line in self.log.read_bytes().splitlines() if line.startswith(b"{")]
        about = (("event", "source", "error") if line["event"] == "library" else ("event",) for line in lines)
        return Counter(" ".join(str(line.get(key)) for key in keys) for keys, line in zip(about, lines, strict=True))


@dataclass
class Report:
    """All findings, and whether one of them breaks a law."""

    rows: list[tuple[str, str, str]] = field(default_factory=list)
    violated: bool = False

    def add(self, name: str, found: object, goal: str, *, good: bool) -> None:
        """Add a line, and whether it is right."""
        self.violated |= not good
        self.rows.append((name, str(found), f"{goal}: {'met' if good else 'MISSED'}"))


@contextmanager
def running(seed: int, folder: str, *, small_caches: bool) -> Iterator[tuple[Process, int]]:
    """Run the proxy until it is ready, with its upstream; yields the process and the port of the upstream."""
    config, log = Path(folder, "soak.yaml"), Path(folder, "log")
    program = (sys.executable, "-m", "bench.soak.serve") if small_caches else TRIMTAB
    with run_upstream(str(seed), module="bench.soak.upstream") as upstream_port:
        config.write_text(CONFIG.format(folder=folder, port=upstream_port), encoding="utf-8")
        port = find_free_port()
        with log.open("wb") as written:
            proxy = start_proxy(port, "--config", str(config), program=program, log=written)
        try:
            wait_until_ready(port, proxy)
            yield Process(proxy.pid, port, log), upstream_port
        finally:
            stop(proxy)


async def sample(process: Process) -> None:
    while True:
        process.samples.append((time.monotonic(), float(process.resident_bytes)))
        await asyncio.sleep(SAMPLE_SECONDS)


async def soak(process: Process, books: Books, minutes: float, clients: int, seed: int) -> float:
    """Run the clients; return when the warm-up ended."""
    texts = Texts(seed)
    began = time.monotonic()
    until, warm_at = began + minutes * 60, began + min(WARM_UP_SECONDS, WARM_UP_SHARE * minutes * 60)
    async with asyncio.TaskGroup() as tasks:
        sampling = tasks.create_task(sample(process))
        asking = [
            tasks.create_task(Client(name, process.port, books, texts, seed).run(until)) for name in range(clients)
        ]
        if minutes >= JUDGED_MINUTES:
            filler = Client(clients, process.port, books, texts, seed)
            asking.append(tasks.create_task(filler.fill(BIGS)))
        await asyncio.wait(asking)
        sampling.cancel()
    return warm_at


async def grow_calm(process: Process, descriptors: int) -> tuple[int, float]:
    """Wait until the proxy holds no more than before; return its descriptors and requests in flight."""
    deadline = time.monotonic() + CALM_SECONDS
    while True:
        in_flight = float(
            re.findall(r"^trimtab_requests_in_flight (.*)$", await process.read_metrics(), re.MULTILINE)[0]
        )
        if (process.descriptors <= descriptors and in_flight == 0) or time.monotonic() > deadline:
            return process.descriptors, in_flight
        await asyncio.sleep(0.2)


def count_outcomes(metrics: str) -> Counter[str]:
    """The proxy's own counts, under the clients' names for outcomes."""
    counted: Counter[str] = Counter()
    for labels, value in _REQUESTS.findall(metrics):
        label = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        outcome, status = label["outcome"], label["status"]
        names = {"broken": BROKEN, "aborted": LEFT, "refused": f"refused {status}"}
        counted[names.get(outcome, f"answered {status}")] += int(float(value))
    return counted


def check_books(report: Report, books: Books, told: Told, counted: Counter[str]) -> None:
    """Compare clients, upstream and proxy."""
    sent = len(books.outcomes)
    seen = Counter(books.outcomes.values())
    unexpected = [
        f"{number}: {done} -> {books.outcomes.get(number)}"
        for number, done in told.by_id.items()
        if books.outcomes.get(number) not in SEEN[done[-1]]
    ]
    unseen = [n for n, outcome in books.outcomes.items() if n not in told.by_id and outcome != LEFT]
    twice = [n for n, done in told.by_id.items() if len(done) > 1 and TOO_LONG not in done[:-1]]
    for line in [*unexpected, *unseen, *books.wrong][:20]:
        click.echo(f"wrong: {line}", err=True)
    answered = sum(count for outcome, count in seen.items() if outcome.startswith("answered"))
    failed = sum(seen.values()) - answered
    report.add(
        "requests sent = answered + failed as expected", f"{sent} = {answered} + {failed}", "equal", good=sent > 0
    )
    report.add("outcomes that differ from what the upstream did", len(unexpected), "0", good=not unexpected)
    report.add("answered, but unknown to the upstream", len(unseen), "0", good=not unseen)
    report.add("sent twice without a refusal for length", len(twice), "0", good=not twice)
    report.add("answers of another request, or incomplete", len(books.wrong), "0", good=not books.wrong)
    # A client that left at once may have left before the proxy had read anything. If the upstream saw the request, the
    # proxy counted it.
    left = sum(books.outcomes.get(number) == LEFT for number in told.by_id)
    seen[LEFT] = min(max(counted[LEFT], left), seen[LEFT])
    differing = {key: (seen[key], counted[key]) for key in {*seen, *counted} if seen[key] != counted[key]}
    report.add("trimtab_requests_total that differ", differing or 0, "0", good=not differing)


def check_process(report: Report, process: Process, warm_at: float, held: tuple[int, int, float]) -> None:
    """Check memory, descriptors and log lines."""
    samples = [(at, size) for at, size in process.samples if at >= warm_at]
    slope, _ = linear_regression(*zip(*samples, strict=True))
    growth = slope * (samples[-1][0] - samples[0][0]) / mean(size for _, size in samples[:10])
    first, last = (mean(size for _, size in part) / 1e6 for part in (samples[:10], samples[-10:]))
    report.add("resident, MB, after the warm-up and at the end", f"{first:.0f}, {last:.0f}", "", good=True)
    judged = process.samples[-1][0] - process.samples[0][0] > JUDGED_MINUTES * 60 - 2 * SAMPLE_SECONDS
    goal = f"< {MAX_GROWTH:.0%}" if judged else "not judged in such a short run"
    report.add("growth of a line through it", f"{growth:.1%}", goal, good=growth < MAX_GROWTH or not judged)
    before, after, in_flight = held
    report.add("descriptors before and after", f"{before}, {after}", "no more", good=after <= before)
    report.add("requests in flight at the end", f"{in_flight:g}", "0", good=in_flight == 0)
    events = process.count_events()
    odd = {event: count for event, count in events.items() if event not in EXPECTED_EVENTS}
    report.add("unexpected log lines", odd or 0, "0", good=not odd)


def print_outcomes(books: Books, told: Told) -> None:
    done = Counter(name for each in told.by_id.values() for name in each)
    seen = Counter(books.outcomes.values())
    _print_counts("Asked by clients", books.kinds)
    _print_counts("Done by the upstream to requests, and to summaries", done, told.without_id)
    _print_counts("Seen by clients", seen)


def _print_counts(title: str, *columns: Mapping[str, int]) -> None:
    names = sorted({name for column in columns for name in column})
    rows = [[name, *(str(column.get(name, 0)) for column in columns)] for name in names]
    print_table(title, ("", *("count" for _ in columns)), rows)


async def run(minutes: float, clients: int, seed: int, *, small_caches: bool) -> Report:
    report, books = Report(), Books()
    with (
        tempfile.TemporaryDirectory(prefix="trimtab-soak-") as folder,
        running(seed, folder, small_caches=small_caches) as (process, upstream_port),
    ):
        await Client(-1, process.port, books, Texts(seed), seed).fill(1)
        await asyncio.sleep(IDLE_SECONDS)
        before = process.descriptors
        warm_at = await soak(process, books, minutes, clients, seed)
        after, in_flight = await grow_calm(process, before)
        metrics = await process.read_metrics()
        url = f"http://127.0.0.1:{upstream_port}/soak/ledger"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            told = msgspec.json.decode(await response.read(), type=Told)
        print_outcomes(books, told)
        check_books(report, books, told, count_outcomes(metrics))
        fail_open = sum(map(float, re.findall(r"^trimtab_fail_open_total\{.*\} (.*)$", metrics, re.MULTILINE)))
        report.add("trimtab_fail_open_total", f"{fail_open:g}", "0", good=fail_open == 0)
        check_process(report, process, warm_at, (before, after, in_flight))
    return report


@click.command()
@click.option("--minutes", default=10.0, show_default=True)
@click.option("--clients", default=16, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option(
    "--small-caches", is_flag=True, help="Use caches a sixteenth as large, which are full when the warm-up ends."
)
def main(minutes: float, clients: int, seed: int, *, small_caches: bool) -> None:
    """Soak the proxy; see the top of this file."""
    click.echo(describe_machine())
    report = asyncio.run(run(minutes, clients, seed, small_caches=small_caches))
    print_table("Soak", ("", "found", "goal"), report.rows)
    sys.exit(1 if report.violated else 0)


if __name__ == "__main__":
    main()
