"""Requests that are over wait in a ring until they are told together."""

from collections.abc import Callable, Iterator

import pytest
from msgspec import structs
from support.model_learning import ListLog

from trimtab.proxy.account.outcome import Outcome
from trimtab.proxy.account.recorder import MOST_WAITING, WAIT_SECONDS, Recorder
from trimtab.proxy.telemetry.metrics import Metrics

OUTCOME = Outcome("0", 1000.0, "chat", "POST", "/v1/chat/completions", 200, "unchanged", 1.0, label="m")


class Timers:
    """Timers that a test fires."""

    def __init__(self) -> None:
        self.set: list[tuple[float, Callable[[], object]]] = []

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        self.set.append((seconds, call))

    def fire(self) -> None:
        (_, call) = self.set.pop()
        call()


@pytest.fixture
def timers() -> Timers:
    return Timers()


@pytest.fixture
def told() -> list[list[str]]:
    """The batches that an observer got."""
    return []


@pytest.fixture
def recorder(timers: Timers, told: list[list[str]], log: ListLog) -> Recorder:
    recorder = Recorder(Metrics(), log, later=timers.later)
    recorder.observers.append(lambda outcomes: told.append([one.request_id for one in outcomes]))
    return recorder


def record(recorder: Recorder, *numbers: int) -> None:
    for number in numbers:
        recorder.record(structs.replace(OUTCOME, request_id=str(number)))


def test_requests_wait_and_are_told_together_in_order(
    recorder: Recorder, timers: Timers, told: list[list[str]], log: ListLog
) -> None:
    record(recorder, 1, 2)
    assert (told, log.lines) == ([], [])
    assert [seconds for seconds, _ in timers.set] == [WAIT_SECONDS]
    timers.fire()
    assert told == [["1", "2"]]
    assert [line["request_id"] for line in log.lines] == ["1", "2"]
    record(recorder, 3)
    timers.fire()
    assert told == [["1", "2"], ["3"]]
    assert recorder.metrics.requests["m", "chat", "200", "unchanged"] == 3


def test_a_full_ring_is_told_at_once(recorder: Recorder, told: list[list[str]]) -> None:
    """So what waits is bounded, and no request waits for it."""
    record(recorder, *range(MOST_WAITING + 1))
    assert [len(batch) for batch in told] == [MOST_WAITING]


def test_a_fault_loses_one_request_for_one_observer(recorder: Recorder, told: list[list[str]], log: ListLog) -> None:
    kept: list[str] = []

    def fail(outcomes: Iterator[Outcome]) -> None:
        for one in outcomes:
            if one.request_id == "2":
                raise ValueError
            kept.append(one.request_id)

    recorder.observers.insert(0, fail)
    record(recorder, 1, 2, 3)
    recorder.drain()
    assert (kept, told) == (["1", "3"], [["1", "2", "3"]])
    assert [line["phase"] for line in log.lines if line["event"] == "fail_open"] == ["tell"]
