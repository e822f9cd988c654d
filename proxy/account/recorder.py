"""Takes each request that is over, and tells it to those who keep it: metrics, books, log, and the dashboard's history.

    request over -> ring -> at idle, at MOST_WAITING or after WAIT_SECONDS, together: each observer

Law: a request appends one value. A batch is told when nobody is served, when the ring is full, and before anybody reads
what was told (`drain`), so no reader sees less than what has ended. No decision depends on what observers know. Only a
killed process loses a batch. A fault is recorded by its type only, never by its text. A client's value becomes a label
only if an upstream has answered for it. The program's one broad `except` is here, in `fail_open`.
"""

import threading
import time
from collections.abc import Callable, Iterator
from operator import attrgetter
from types import TracebackType
from typing import Any

from trimtab.proxy.account.books import Books, name_day
from trimtab.proxy.account.outcome import FIGURES, HEAD_REMEDY, Outcome, Prompt, read_head, write_line
from trimtab.proxy.config.values import name_key
from trimtab.proxy.telemetry.families import Histogram, observe_all
from trimtab.proxy.telemetry.logs import together
from trimtab.proxy.telemetry.metrics import Metrics
from trimtab.proxy.wire.codec import UndecodableError
from trimtab.rules.pipeline.exceeded import LimitExceededError

MAX_ERROR_RATIO = 20.0  # Larger ratios are recorded as this one. Chosen: one absurd report must not spoil the mean.
MAX_TOLD_PATHS = 64  # Uncompacted ones that are logged. Chosen: more than real clients use; bounds the memory.
MAX_TOLD_SESSIONS = 1024  # Whose large head was logged; then all are forgotten. Chosen: a megabyte at most.
MOST_WAITING = 64  # Requests that wait in the ring. Chosen: to tell them takes two milliseconds.
WAIT_SECONDS = 0.05  # Chosen: a person sees no difference; a busy worker tells a dozen together
Observer = Callable[[Iterator[Outcome]], None]
"""Keeps requests that are over. If one makes it fail, it is called again with those after it."""
Later = Callable[[float, Callable[[], object]], object]
_Observed = list[tuple[Histogram, str, float]]
_OBSERVED = {name: shown.histogram for name, shown in FIGURES.items() if shown.histogram}
_read_observed = attrgetter(*_OBSERVED)


class Recorder:
    """Tells requests that are over to `observers`, in order. later: calls after some seconds; None: nothing waits."""

    def __init__(self, metrics: Metrics, log: Any, books: Books | None = None, later: Later | None = None) -> None:
        self.metrics = metrics
        self.books = books or Books(metrics)
        self.observers: list[Observer] = [self._count, self._charge, self._write_lines]
        self._histograms = tuple(getattr(metrics, name) for name in _OBSERVED.values())
        self.log = log
        self.tells_arrivals: bool = getattr(log, "is_detailed", True)
        self._later = later
        self._ring: list[Outcome] = []
        self._guard = fail_open(self, "", "tell")
        self._is_due = False
        self._told_paths: set[str] = set()
        self._halved: set[str] = set()
        self._headed: set[str] = set()
        self._used: tuple[str, set[str]] = ("", set())  # the day, and the keys that were used on it
        self._lock = threading.Lock()

    def record(self, outcome: Outcome) -> None:
        self._ring.append(outcome)
        if self._later is None or len(self._ring) >= MOST_WAITING:
            self.drain()
        elif not self._is_due:
            self._is_due = True
            self._later(WAIT_SECONDS, self._drain_due)

    def drain(self) -> None:
        """Tell what waits. Only for the thread that records."""
        batch, self._ring = self._ring, []
        if not batch:
            return
        for observe in self.observers:
            waiting = iter(batch)
            for _ in (*batch, None):  # a fault loses one request at most, but not every fault has taken one
                with self._guard:
                    observe(waiting)
                    break

    def _drain_due(self) -> None:
        self._is_due = False
        self.drain()

    def record_fault(self, request_id: str, phase: str, error: Exception) -> None:
        with self._lock:  # threads have faults, too
            self.metrics.fail_open[phase] += 1
        self.log.error("fail_open", request_id=request_id, phase=phase, error=type(error).__name__)

    def record_key(self, client: str, key: str) -> None:
        """Log, once a day, that a client has used this key; by its ID."""
        today = name_day(time.time())
        if self._used[0] != today:
            self._used = today, set()
        if key not in self._used[1]:
            self._used[1].add(key)
            self.log.info("key_used", client=client, key=name_key(key))

    def _count(self, outcomes: Iterator[Outcome]) -> None:
        metrics = self.metrics
        for outcome in outcomes:
            label = outcome.label
            metrics.requests[label, outcome.endpoint, str(outcome.status), outcome.outcome] += 1
            counted = outcome.counted
            if outcome.client:
                self._record_client(outcome, counted)
            observed: _Observed = [(metrics.overhead, phase, seconds) for phase, seconds in outcome.phase_seconds]
            if outcome.retry:
                metrics.overflow_retries[label, outcome.retry] += 1
            if counted is not None:
                self._record_prompt(outcome, counted, observed)
            self._record_answer(outcome, observed)
            observe_all(observed)

    def _charge(self, outcomes: Iterator[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.bill is not None:
                self.books.charge(outcome.label, outcome.client, outcome.bill, outcome.counted)

    def _write_lines(self, outcomes: Iterator[Outcome]) -> None:
        with together:
            for outcome in outcomes:
                failed = outcome.outcome == "broken" or outcome.status >= 500
                (self.log.warning if failed else self.log.info)("request", **write_line(outcome))
                if outcome.is_uncompacted:
                    self._tell_not_compacted(outcome)
                if outcome.max_tokens and outcome.max_tokens >= outcome.limit_tokens > 0:
                    self._tell_halved(outcome)
                if head := read_head(outcome.original_sections, outcome.limit_tokens):
                    self._tell_head(outcome, head)

    def _record_client(self, outcome: Outcome, counted: Prompt | None) -> None:
        self.metrics.client_requests[outcome.client, outcome.outcome] += 1
        original, sent = counted or (0, 0)
        stages = (("completion", outcome.completion_tokens), ("original", original), ("sent", sent))
        for stage, tokens in stages:
            if tokens:
                self.metrics.client_tokens[outcome.client, stage] += tokens

    def _record_prompt(self, outcome: Outcome, counted: Prompt, observed: _Observed) -> None:
        metrics, label, sent = self.metrics, outcome.label, outcome.sent_tokens
        metrics.answered[label, outcome.outcome] += 1
        original_tokens, sent_tokens = counted
        metrics.prompt_tokens[label, "original"] += original_tokens
        metrics.prompt_tokens[label, "sent"] += sent_tokens
        if not outcome.has_prompt:
            return
        metrics.record_sections(label, "original", outcome.original_sections)
        metrics.record_sections(label, "sent", outcome.sent_sections)
        observed.append((metrics.context_used, label, sent / max(outcome.limit_tokens, 1)))
        if outcome.planned:
            metrics.record_decisions(label, outcome.counted_decisions)
        if outcome.prefix_kept is not None:
            observed.append((metrics.prefix_kept, label, outcome.prefix_kept))
        if outcome.prompt_tokens:
            observed.append((metrics.estimate_error, label, min(outcome.prompt_tokens / sent, MAX_ERROR_RATIO)))

    def _record_answer(self, outcome: Outcome, observed: _Observed) -> None:
        metrics, label = self.metrics, outcome.label
        if outcome.completion_tokens is not None:
            source = "estimated" if outcome.is_estimated else "upstream"
            metrics.completion_tokens[label, source] += outcome.completion_tokens
        if outcome.cached_tokens is not None and outcome.prompt_tokens:
            metrics.cache_reported_tokens[label] += outcome.prompt_tokens
        if outcome.cached_tokens or outcome.written_tokens or outcome.cache_miss:
            metrics.record_cache(label, outcome.cached_tokens, outcome.written_tokens, outcome.cache_miss)
        for histogram, value in zip(self._histograms, _read_observed(outcome), strict=True):
            if value is not None:
                observed.append((histogram, label, value))

    def _tell_not_compacted(self, outcome: Outcome) -> None:
        if outcome.path not in self._told_paths and len(self._told_paths) < MAX_TOLD_PATHS:
            self._told_paths.add(outcome.path)
            meaning = "trimtab does not compact requests at this path, so a prompt may become too long for its model"
            self.log.warning("not_compacted", path=outcome.path, endpoint=outcome.endpoint, meaning=meaning)

    def _tell_halved(self, outcome: Outcome) -> None:
        if outcome.label not in self._halved and len(self._halved) < MAX_TOLD_PATHS:
            self._halved.add(outcome.label)
            meaning = (
                "the client asks for a completion of max_tokens, so half of the window stays free for it; a smaller"
                " max_tokens of the client (Claude Code: CLAUDE_CODE_MAX_OUTPUT_TOKENS) leaves more to the prompt"
            )
            limit, asked = outcome.limit_tokens, outcome.max_tokens
            self.log.warning(
                "window_halved", model=outcome.label, limit_tokens=limit, max_tokens=asked, meaning=meaning
            )

    def _tell_head(self, outcome: Outcome, head: float) -> None:
        """Warn, once for each session, that instructions and tools fill its window; without a dashboard, each model."""
        told = outcome.session or outcome.label  # only the dashboard and recordings have sessions named
        if told in self._headed:
            return
        if len(self._headed) >= MAX_TOLD_SESSIONS:
            self._headed.clear()
        self._headed.add(told)
        meaning = f"the system prompt and the tools take {head:.0%} of the limit: {HEAD_REMEDY}"
        model, limit = outcome.label, outcome.limit_tokens
        self.log.warning("head_large", session=outcome.session, model=model, limit_tokens=limit, meaning=meaning)


class Phases:
    """The `seconds` of each finished phase, in order. One that raises stays the current one, and gets no duration."""

    __slots__ = ("current", "seconds")

    def __init__(self, current: str) -> None:
        self.current = current
        self.seconds: tuple[tuple[str, float], ...] = ()

    def begin(self, name: str) -> tuple[str, float]:
        """Begin a phase; return the one before, and the time, for `end`."""
        before, self.current = self.current, name
        return before, time.monotonic()

    def end(self, begun: tuple[str, float]) -> None:
        self.seconds += ((self.current, time.monotonic() - begun[1]),)
        self.current = begun[0]


class fail_open:  # noqa: N801 - it is used like a function, and a generator costs three times as much
    """Context manager: swallow and count any fault but UndecodableError and LimitExceededError. Reusable."""

    __slots__ = ("_recorder", "_request_id", "phase")

    def __init__(self, recorder: Recorder, request_id: str, phase: Phases | str) -> None:
        self._recorder = recorder
        self._request_id = request_id
        self.phase = phase

    def __enter__(self) -> None:
        """Do nothing: there is nothing to prepare."""

    def __exit__(self, _: object, error: BaseException | None, trace: TracebackType | None) -> bool:
        """Record and swallow a fault: no fault of ours may cost a client its answer."""
        if error is None or isinstance(error, UndecodableError | LimitExceededError):
            return False
        if not isinstance(error, Exception):
            return False
        phase = self.phase
        self._recorder.record_fault(self._request_id, phase if isinstance(phase, str) else phase.current, error)
        return True
