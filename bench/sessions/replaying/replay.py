"""Replays sessions through a proxy that runs as a process, turn by turn.

Law: a lane (an upstream with its own proxies) replays one session at a time, so that all requests at the upstream
belong to that session. A turn is sent when summaries are written and the proxies are idle, because a model's turn takes
seconds; `eager` does not wait.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory

import aiohttp

from bench.harness.servers import HOST, stop
from bench.material.workload import Session
from bench.sessions.caches.cache import CacheKind
from bench.sessions.ledger import Call, Request, SessionLedger
from bench.sessions.prompts import Part
from bench.sessions.replaying.recorder import TURN_HEADER, Recorder

LANES = 2
"""Sessions at the same time, each with its own proxies. Chosen for two cores."""
REST_SECONDS = 0.001
REST_TURNS = 20
"""Turns of the event loop in which a request that has arrived at the upstream begins. Chosen: it takes about five."""
REST_LIMIT_SECONDS = 10.0
"""Chosen: after this time the replay no longer waits for a proxy."""
ANSWER_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Replayed:
    """A session and its result. `complete` is false if it took too long; `refused` turns got an error.

    `prompts` are the forwarded prompts of each turn, `requests` all that were sent, if they were to be kept.
    """

    session: Session
    calls: tuple[Call, ...]
    refused: int = 0
    failed_summaries: int = 0
    complete: bool = True
    prompts: tuple[Sequence[Part], ...] = ()
    requests: tuple[Request, ...] = ()


Threads = Mapping[str, tuple[bytes, ...]]
"""The threads of a process, by their number."""


@dataclass(frozen=True, slots=True)
class Running:
    """The process of a proxy that is ready, and its port. `advance` moves its clock, if it has one of its own."""

    process: Popen[bytes]
    port: int
    advance: Callable[[float], None] | None = None

    def look(self) -> Threads:
        """What each thread of the process does at this moment. Linux."""
        try:
            return {task.name: _look_at(task) for task in Path(f"/proc/{self.process.pid}/task").iterdir()}
        except (FileNotFoundError, ProcessLookupError):
            return {"": (b"R",)}  # a thread has just ended


def _look_at(task: Path) -> tuple[bytes, ...]:
    """A thread's state (`R` runs, `D` waits for the disk), and how often it has stopped running, of both kinds."""
    lines = task.joinpath("status").read_bytes().splitlines()
    values = (line.split()[1] for line in lines if line.startswith((b"State:", b"voluntary_", b"nonvoluntary_")))
    return tuple(values)


def is_at_rest(before: Threads, now: Threads) -> bool:
    """Whether no thread ran between two looks at a process, and none runs or waits for the disk.

    One look is not enough: it takes the threads one after the other. On a busy machine one may hand its work to another
    meanwhile, and both seem to sleep.
    """
    return before == now and not any(state in {b"R", b"D"} for state, *_ in now.values())


Start = Callable[[int, Path], Running]
"""Starts a proxy for the upstream at a port and waits until it is ready. It may keep files in the folder."""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How sessions are replayed.

    `replicas` proxies take turns; `restart` restarts them in the middle of each session; a summary has about
    `note_tokens`. With `keep_prompts`, the forwarded prompts are kept. `moments` are the times of each session's turns,
    by its id. Nobody waits for them: the ledger and the clocks of the proxies are moved.
    """

    rules: CacheKind
    note_tokens: int = 700
    eager: bool = False
    failing_summaries: bool = False
    restart: bool = False
    replicas: int = 1
    keep_prompts: bool = False
    moments: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(slots=True)
class _Lane:
    """An upstream and its proxies."""

    options: ReplayOptions
    start: Start
    folder: Path
    recorder: Recorder
    client: aiohttp.ClientSession
    proxies: list[Running] = field(default_factory=list)

    async def start_proxies(self) -> None:
        for _ in range(self.options.replicas):
            self.proxies.append(await asyncio.to_thread(self.start, self.recorder.port, self.folder))

    async def stop_proxies(self) -> None:
        while self.proxies:
            await asyncio.to_thread(stop, self.proxies.pop().process)

    async def replay(self, session: Session) -> Replayed:
        ledger = self.recorder.ledger = SessionLedger(self.options.rules)
        failed_before = self.recorder.failed_summaries
        refused, moments = 0, self.options.moments.get(session.id, ())
        for turn, length in enumerate(session.stops):
            if self.options.restart and turn and turn == len(session.stops) // 2:
                await self.stop_proxies()
                await self.start_proxies()
            self._move_clocks(ledger, moments[turn] if moments else 0.0)
            proxy = self.proxies[turn % len(self.proxies)]
            refused += await self._ask(proxy, session, length) != 200
            ledger.end_turn(turn)
            if not self.options.eager:
                await self._rest()
        # A summary that is still being written belongs to this session.
        await self._rest()
        return Replayed(
            session,
            tuple(ledger.calls),
            refused,
            self.recorder.failed_summaries - failed_before,
            prompts=tuple(ledger.prompts) if self.options.keep_prompts else (),
            requests=tuple(ledger.requests) if self.options.keep_prompts else (),
        )

    def _move_clocks(self, ledger: SessionLedger, moment: float) -> None:
        passed, ledger.now_seconds = moment - ledger.now_seconds, moment
        # Proxies of one lane that have a clock share it.
        advance = next((proxy.advance for proxy in self.proxies if proxy.advance), None)
        if advance is not None and passed > 0:
            advance(passed)

    async def _ask(self, proxy: Running, session: Session, length: int) -> int:
        headers = {
            "Authorization": f"Bearer sk-{session.id}",
            "Content-Type": "application/json",
            TURN_HEADER: session.id,
        }
        url = f"http://{HOST}:{proxy.port}/v1/chat/completions"
        async with self.client.post(url, data=session.body(length), headers=headers) as answer:
            await answer.read()
            return answer.status

    async def _rest(self) -> None:
        # What a proxy has sent before the first of two equal looks has arrived here, perhaps unread. By the second look
        # the upstream has begun with it, however late this process runs.
        deadline = asyncio.get_running_loop().time() + REST_LIMIT_SECONDS
        seen: Sequence[Threads] = [{} for _ in self.proxies]
        while asyncio.get_running_loop().time() < deadline:
            await self.recorder.wait_until_idle()
            await asyncio.sleep(REST_SECONDS)
            for _ in range(REST_TURNS):
                await asyncio.sleep(0)
            before, seen = seen, [proxy.look() for proxy in self.proxies]
            if self.recorder.is_idle and all(map(is_at_rest, before, seen)):
                return


async def replay_through(start: Start, sessions: Sequence[Session], options: ReplayOptions) -> list[Replayed]:
    """Replay sessions through proxies that `start` starts, the longest first, so that the lanes end together."""
    waiting = deque(sorted(sessions, key=lambda session: -_weigh(session)))
    replayed: list[Replayed] = []

    async def work() -> None:
        async with _open_lane(start, options) as lane:
            while waiting:
                replayed.append(await lane.replay(waiting.popleft()))

    async with asyncio.TaskGroup() as group:
        for _ in range(min(LANES, len(waiting))):
            group.create_task(work())
    return replayed


@asynccontextmanager
async def _open_lane(start: Start, options: ReplayOptions) -> AsyncIterator[_Lane]:
    recorder = Recorder(options.note_tokens, options.failing_summaries)
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="trimtab-bench-")))
        await stack.enter_async_context(recorder.listen())
        client = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))
        lane = _Lane(options, start, folder, recorder, client)
        stack.push_async_callback(lane.stop_proxies)
        await lane.start_proxies()
        yield lane


def _weigh(session: Session) -> int:
    return len(session.stops) * sum(map(len, session.messages))
