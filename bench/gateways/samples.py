"""One sample: put a load on a target, then read what it cost from the kernel and from the upstream.

Law: a sample during which other programs used more than a tenth of a core is repeated; the cleanest one is kept, with
the share that other programs used.
"""

import resource
import subprocess
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from bench.gateways.scenarios import Scenario
from bench.harness.accounts import find_family, pinned, read_machine, read_processor_seconds
from bench.harness.servers import HOST

MAX_FOREIGN = 0.10
"""Of a core, on average over a sample. Chosen: a sample with more is repeated."""
ATTEMPTS = 3
_QUIET_SECONDS = 0.3
_MOST_WAITING_SECONDS = 5.0
_GENERATOR_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One target under one load. Times are milliseconds; `cost_us` is the gateway's processor time in microseconds.

    `cost_us` is for each answer, or for each event of a stream. `first_ms` and `last_ms` are medians. `foreign` is the
    share of a core that others used meanwhile, including other virtual machines on the same hardware.
    """

    target: str
    scenario: str
    round: int
    answers: int
    failed: int
    per_second: float
    cost_us: float | None
    first_ms: float | None
    last_ms: float | None
    gateway_share: float
    foreign: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident megabytes of a target before its first load and after its last one, and seconds until it answered."""

    target: str
    round: int
    ready_seconds: float
    before_mb: float
    after_mb: float
    scenario: str = "memory"


@dataclass(frozen=True, slots=True)
class Running:
    """A target that answers requests; `pid` is None for the upstream itself."""

    port: int
    pid: int | None
    ready_seconds: float = 0.0

    def find_processes(self) -> list[int]:
        """The gateway's own processes."""
        return [] if self.pid is None else find_family(self.pid)


@dataclass(frozen=True, slots=True)
class Bench:
    """The tools of sampling: the command and cores of the generator, and the upstream."""

    generator: Sequence[str]
    cores: set[int]
    upstream_port: int
    upstream_pid: int


@dataclass(frozen=True, slots=True)
class Load:
    """A load for one target: its path, the file of the body, and the options of the generator."""

    target: str
    path: str
    round: int
    body: Path
    options: tuple[str, ...]


def ask_upstream(port: int, path: str) -> dict[str, int]:
    """Read one of the upstream's own pages."""
    with urllib.request.urlopen(f"http://{HOST}:{port}{path}", timeout=10.0) as answer:
        found: dict[str, int] = orjson.loads(answer.read())
        return found


@dataclass(frozen=True, slots=True)
class _Reading:
    """The processor accounts at one moment, in seconds."""

    at: float
    gateway: float
    ours: float
    busy: float
    stolen: float

    @classmethod
    def take(cls, bench: Bench, running: Running) -> "_Reading":
        gateway = read_processor_seconds(running.find_processes())
        upstream = read_processor_seconds([bench.upstream_pid])
        machine = read_machine()
        ours = gateway + upstream + _own_seconds()
        return cls(time.perf_counter(), gateway, ours, machine.busy_seconds, machine.stolen_seconds)


def measure(bench: Bench, running: Running, scenario: Scenario, load: Load, *, attempts: int = ATTEMPTS) -> Sample:
    """Take up to `attempts` samples and return the cleanest; stop at the first one that was not disturbed.

    With a single attempt it does not wait for a quiet machine.
    """

    def take() -> Sample:
        if attempts > 1:
            _wait_for_quiet(bench, running)
        return _take_sample(bench, running, scenario, load)

    return take_cleanest(take, attempts)


def take_cleanest(take: Callable[[], Sample], attempts: int) -> Sample:
    """Repeat any way to take a sample, until one is not disturbed."""
    best = take()
    for _ in range(attempts - 1):
        if best.foreign <= MAX_FOREIGN:
            break
        best = min(best, take(), key=lambda sample: sample.foreign)
    return best


def _take_sample(bench: Bench, running: Running, scenario: Scenario, load: Load) -> Sample:
    if scenario.events:
        ask_upstream(bench.upstream_port, f"/control?events={scenario.events}&pause_us={scenario.pause_us}")
    events = ask_upstream(bench.upstream_port, "/counts")["events"]
    before = _Reading.take(bench, running)
    with pinned(bench.cores):
        command = [*bench.generator, str(running.port), load.path, str(load.body), *load.options]
        printed = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=_GENERATOR_SECONDS).stdout
    after = _Reading.take(bench, running)
    told = orjson.loads(printed)
    units = ask_upstream(bench.upstream_port, "/counts")["events"] - events if scenario.by_event else told["done"]
    seconds = after.at - before.at
    gateway = after.gateway - before.gateway
    foreign = (after.busy - before.busy) - (after.ours - before.ours) + (after.stolen - before.stolen)
    return Sample(
        target=load.target,
        scenario=scenario.name,
        round=load.round,
        answers=told["answers"],
        failed=told["failed"],
        per_second=told["answers"] / told["seconds"] if told["seconds"] else 0.0,
        cost_us=gateway / units * 1e6 if units and running.pid is not None else None,
        first_ms=_read_median_ms(told["first"]),
        last_ms=_read_median_ms(told["last"]),
        gateway_share=gateway / seconds,
        foreign=max(0.0, foreign) / seconds,
    )


def _read_median_ms(times: dict[str, float] | None) -> float | None:
    return times["p50"] / 1000 if times else None


def _own_seconds() -> float:
    """Processor time of this process and of the generators that have ended."""
    used = time.process_time()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used + children.ru_utime + children.ru_stime


def _wait_for_quiet(bench: Bench, running: Running) -> None:
    """Wait until other programs leave the cores alone, but only for some seconds."""
    deadline = time.perf_counter() + _MOST_WAITING_SECONDS
    while time.perf_counter() < deadline:
        before = _Reading.take(bench, running)
        time.sleep(_QUIET_SECONDS)
        after = _Reading.take(bench, running)
        foreign = (after.busy - before.busy) - (after.ours - before.ours)
        if foreign <= MAX_FOREIGN * _QUIET_SECONDS:
            return
