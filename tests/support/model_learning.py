"""Processes that learn of models, each with its own metrics and log, and a time that only the test moves."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from proxy.http.client import UpstreamClient
from proxy.state.models.calibration import Report
from proxy.state.models.facts import Facts
from proxy.state.models.records import ModelName
from proxy.state.models.service import Models
from proxy.state.stores import SummaryStore
from proxy.state.stores.memory import MemoryStore
from proxy.telemetry.metrics import Metrics

NAME = ModelName("http://127.0.0.1:9/v1", "secret-model", "auto")
LIMIT = 40_000
"""What a prompt may have; TOKENS is not far below it."""
NOW = 1_700_000_000.0
"""Seconds since 1970, at which all is learned."""
TOKENS = 10_000


def report(counted_tokens: int, reported_tokens: int) -> Report:
    """What an upstream reports of a prompt that is not far below the limit."""
    return Report(counted_tokens, reported_tokens, LIMIT)


class ListLog:
    """Keeps log lines for tests to look at, as they are logged unless more is asked for: those for debugging go."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.warned: list[str] = []

    def _add(self, event: str, **fields: Any) -> None:
        self.lines.append({"event": event, **fields})

    def warning(self, event: str, **fields: Any) -> None:
        """Keep a line, and that it was a warning."""
        self.warned.append(event)
        self._add(event, **fields)

    info = error = _add

    def debug(self, event: str, **fields: Any) -> None:
        """Not kept."""


class Clock:
    """A time that stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Process:
    """One process's models, what it counts and what it logs."""

    models: Models
    metrics: Metrics
    log: ListLog

    async def settle(self) -> None:
        """Wait until nothing is under way."""
        await self.models.settle()

    async def look_up(self, name: ModelName = NAME, label: str = "other") -> Facts:
        """The facts, once what the question sets off has come to its end, too."""
        await self.models.look_up(name, label)
        self.models.vouch_for(name)
        await self.settle()
        return await self.models.look_up(name, label)

    async def feed(self, ratios: Iterable[float], name: ModelName = NAME) -> float:
        """Answers in which the upstream reports so many tokens for one of ours, and the ratio found thereby."""
        for ratio in ratios:
            self.models.vouch_for(name)
            self.models.observe(name, report(TOKENS, round(ratio * TOKENS)))
            await self.settle()
        return self.models.recall(name).ratio

    @property
    def changes(self) -> dict[str, float]:
        """How often which cause has changed something."""
        samples = [sample for metric in self.metrics.policy_changes.collect() for sample in metric.samples]
        return {one.labels["cause"]: one.value for one in samples if one.name.endswith("_total")}


Start = Callable[..., Process]


@asynccontextmanager
async def run_processes(clock: Clock) -> AsyncIterator[Start]:
    """A function that starts processes, on a store that they share unless they are given another."""
    shared = MemoryStore()
    async with AsyncExitStack() as stack:

        def start(store: SummaryStore = shared) -> Process:
            client, metrics, log = UpstreamClient(), Metrics(), ListLog()
            models = Models(store, client, metrics, log, clock, lambda: NOW)
            stack.push_async_callback(client.close)
            stack.push_async_callback(models.close)
            return Process(models, metrics, log)

        yield start
