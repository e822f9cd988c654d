"""Measures work as the number of Python lines executed: it is the same in every run and on every machine."""

import gc
import sys
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
