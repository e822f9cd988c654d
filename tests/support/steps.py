"""Measures work. The number of Python lines executed is the same in every run and on every machine.

What a library does in C is compared with the same on less, by the thread's processor time, with much room.
"""

import gc
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_steps(work: Callable[[], object]) -> int:
    """The number of lines executed. A line counts each time it runs."""
    steps = 0

    def trace(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        return trace

    before = sys.gettrace()
    gc.disable()  # what a collection ends may run lines of its own
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return steps


def check_linear(work: Callable[[int], object], size: int) -> None:
    """Twenty times the size takes less than a hundred times as long: work that is quadratic takes four hundred."""
    limit = 100 * min(_measure(work, size) for _ in range(3))
    assert any(_measure(work, 20 * size) < limit for _ in range(3))


def _measure(work: Callable[[int], object], size: int) -> float:
    """The seconds of this thread."""
    started = time.thread_time()
    work(size)
    return time.thread_time() - started
