"""Processes that learn facts about models, each with its own metrics and log, and a clock that only the test moves."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from trimtab.proxy.http.client import UpstreamClient
from trimtab.proxy.models.calibration import Report
from trimtab.proxy.models.records import Facts, ModelName
from trimtab.proxy.models.service import Models
from trimtab.proxy.store.store import MemoryStore, SummaryStore
from trimtab.proxy.telemetry.metrics import Metrics
from trimtab.rules.tokens.scripts import EVEN, NO_CHARS, Chars

NAME = ModelName("http://127.0.0.1:9/v1", "secret-model", "auto")
LIMIT = 40_000
"""The prompt limit. TOKENS is not far below it."""
NOW = 1_700_000_000.0
"""The time of every observation, in seconds since 1970."""
TOKENS = 10_000


def report(counted_tokens: int, reported_tokens: int) -> Report:
    """An upstream's report of a prompt that is not far below the limit."""
    return Report(counted_tokens, reported_tokens, LIMIT)


class ListLog:
    """A log that keeps its lines for tests, except debug lines.

    fill: called before the lines are read, so that what waits to be told is among them.
    """

    def __init__(self) -> None:
        self.fill: list[Callable[[], None]] = []
        self.warned: list[str] = []
        self._lines: list[dict[str, Any]] = []

    @property
    def lines(self) -> list[dict[str, Any]]:
        """All lines so far."""
        for tell in self.fill:
            tell()
        return self._lines

    def _add(self, event: str, **fields: Any) -> None:
        self._lines.append({"event": event, **fields})

    def warning(self, event: str, **fields: Any) -> None:
        """Keep a line, and its event in `warned`."""
        self.warned.append(event)
        self._add(event, **fields)

    info = error = _add

    def debug(self, event: str, **fields: Any) -> None:
        """Drop the line, as the default log level does."""


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Process:
    """The models of one process, its metrics and its log."""

    models: Models
    metrics: Metrics
    log: ListLog

    async def settle(self) -> None:
        """Wait until nothing is in progress."""
        await self.models.settle()

    async def look_up(self, name: ModelName = NAME, label: str = "other") -> Facts:
        """The facts about a model, after everything that the first lookup started has ended."""
        await self.models.look_up(name, label)
        self.models.note_answer(name, 0)
        await self.settle()
        return await self.models.look_up(name, label)

    async def feed(self, ratios: Iterable[float], name: ModelName = NAME, chars: Chars = NO_CHARS) -> float:
        """Report responses in which the upstream counts `ratio` tokens for each of ours. Returns the learned ratio.

        chars: for each token of ours.
        """
        found = Chars(*[TOKENS * each for each in chars])
        for ratio in ratios:
            weights = self.models.recall(name).weights or EVEN
            counted = round(TOKENS + weights.weigh(found))
            self.models.note_answer(name, 0)
            sent = Report(counted, round(ratio * TOKENS), LIMIT, chars=found, weights=weights)
            self.models.observe(name, sent)
            await self.settle()
        return self.models.recall(name).ratio

    @property
    def changes(self) -> dict[str, float]:
        """The number of changes of the policy by cause."""
        samples = self.metrics.policy_changes.read().samples
        return {one.labels["cause"]: one.value for one in samples if one.name.endswith("_total")}


Start = Callable[..., Process]


@asynccontextmanager
async def run_processes(clock: Clock) -> AsyncIterator[Start]:
    """A function that starts processes. They share a store unless another one is given."""
    shared = MemoryStore()
    async with AsyncExitStack() as stack:

        def start(store: SummaryStore = shared) -> Process:
            client, metrics, log = UpstreamClient(), Metrics(), ListLog()
            models = Models(store, client, metrics, log, clock, lambda: NOW)
            stack.push_async_callback(client.close)
            stack.push_async_callback(models.close)
            return Process(models, metrics, log)

        yield start
