"""Writes recordings in a thread of its own.

Law: bounded. A request never waits for a recording, and a recording that cannot be written is only counted. What was
taken is written, or counted as dropped, before `close` returns.
"""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Literal, NamedTuple

from proxy.account.recordings.folder import Folder
from proxy.config.schema import Config
from proxy.config.sections.observability import RecordConfig
from proxy.memory import MAX_RECORDINGS_BYTES, bound_recordings
from proxy.telemetry.metrics import Metrics

MAX_WAITING = 1024
"""Recordings that wait to be written. Chosen: some seconds of a busy proxy."""
MAX_WAITING_BYTES = MAX_RECORDINGS_BYTES
"""The most memory that waiting recordings hold, whatever the share of the whole memory is."""
CLOSE_SECONDS = 5.0
"""Time for the recordings that wait when the proxy stops. Chosen: a full queue takes about as long."""

Make = Callable[[], bytes | None]
"""Makes the content of a recording's file; None if that failed. It runs in the writer's thread."""
Result = Literal["written", "dropped", "failed"]


def measure_recordings(config: Config) -> int:
    """The memory that recordings may take until they are written, in bytes."""
    return 0 if config.record is None else bound_recordings(config.limits.max_memory_bytes)


class Draft(NamedTuple):
    """A recording to be made.

    at: when its request ended, in seconds since 1970. size_bytes: about what `make` holds in memory.
    is_call: it is of a call for a summary.
    """

    at: float
    request_id: str
    size_bytes: int
    make: Make
    is_call: bool = False


class Recordings:
    """The recordings of this process. Close it at the end.

    most_bytes: the memory that waiting recordings may hold. A larger one is only taken if nothing else waits.
    """

    def __init__(
        self, config: RecordConfig, metrics: Metrics, log: Any, *, most_bytes: int = MAX_RECORDINGS_BYTES
    ) -> None:
        self.most_bytes = most_bytes
        self._folder = Folder(Path(config.dir).expanduser(), config.keep, config.max_bytes)
        self._results = metrics.recordings
        self._log = log
        self._is_failing = False
        self._lock = threading.RLock()
        self._waiting = 0
        self._waiting_bytes = 0
        self._queue: SimpleQueue[Draft | threading.Event] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def add(self, draft: Draft) -> None:
        """Have a recording made and written. It is dropped if too much waits already."""
        with self._lock:
            most_bytes = min(self.most_bytes, MAX_WAITING_BYTES)
            is_full = self._waiting >= MAX_WAITING or self._waiting_bytes + draft.size_bytes > most_bytes
            if self._is_closed or (is_full and self._waiting):
                self._count("dropped")
                return
            self._waiting += 1
            self._waiting_bytes += draft.size_bytes
            self._start()
        self._queue.put(draft)

    async def settle(self) -> None:
        """Wait until everything that was taken is written."""
        await asyncio.to_thread(self._mark().wait)

    async def close(self) -> None:
        """Write what waits, for at most CLOSE_SECONDS; what is left then is dropped."""
        with self._lock:
            self._is_closed = True
        if self._thread is None:
            return
        await asyncio.to_thread(self._mark().wait, CLOSE_SECONDS)
        while True:
            try:
                left = self._queue.get_nowait()
            except Empty:
                return
            if isinstance(left, Draft):
                self._count("dropped")

    def _start(self) -> None:
        """Start the thread with the first recording: a thread would not survive the fork of workers."""
        if self._thread is None:
            # A daemon: a disk that hangs must not keep the process from ending.
            self._thread = threading.Thread(target=self._run, name="trimtab-recordings", daemon=True)
            self._thread.start()

    def _mark(self) -> threading.Event:
        """An event that is set once everything before it is written. After closing, the thread ends with it."""
        mark = threading.Event()
        with self._lock:
            self._start()
        self._queue.put(mark)
        return mark

    def _run(self) -> None:
        while True:
            draft = self._queue.get()
            if isinstance(draft, Draft):
                self._count(self._write(draft))
                continue
            draft.set()
            if self._is_closed:
                return

    def _write(self, draft: Draft) -> Result:
        try:
            content = draft.make()
            return "failed" if content is None else self._keep(draft, content)
        finally:
            with self._lock:
                self._waiting -= 1
                self._waiting_bytes -= draft.size_bytes

    def _keep(self, draft: Draft, content: bytes) -> Result:
        if len(content) > self._folder.max_bytes:
            return "dropped"  # else it would be the only one, and then deleted
        try:
            self._folder.add(round(draft.at * 1000), draft.request_id, content, is_call=draft.is_call)
        except (OSError, ValueError) as error:  # ValueError: no path has a NUL character
            self._tell_failure(error)
            return "failed"
        if self._is_failing:
            self._is_failing = False
            self._log.info("recordings_work_again", dir=str(self._folder.path))
        return "written"

    def _tell_failure(self, error: OSError | ValueError) -> None:
        if self._is_failing:
            return
        self._is_failing = True
        reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        meaning = "requests are served, but not recorded; further failures are only counted"
        self._log.warning("recordings_fail", dir=str(self._folder.path), reason=reason, meaning=meaning)

    def _count(self, result: Result) -> None:
        with self._lock:  # requests and the thread count
            self._results[result] += 1
