"""How much work something is, by the lines of Python that it takes: the same at every run, on every machine."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_steps(work: Callable[[], object]) -> int:
    """The lines executed, each turn of a loop among them."""
    steps = 0

    def trace(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps
