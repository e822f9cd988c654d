"""What is said of a series of measurements, and of the machine that they come from."""

import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path

MILLISECONDS = 1000.0


def median_ms(seconds: Sequence[float]) -> float:
    """The median, in milliseconds."""
    return statistics.median(seconds) * MILLISECONDS


def p95_ms(seconds: Sequence[float]) -> float:
    """What 95 of 100 stay below, in milliseconds."""
    return statistics.quantiles(seconds, n=20)[-1] * MILLISECONDS


def p99_ms(seconds: Sequence[float]) -> float:
    """What 99 of 100 stay below, in milliseconds."""
    return statistics.quantiles(seconds, n=100)[-1] * MILLISECONDS


def describe_machine() -> str:
    """Processor, cores, Python, and how busy the machine is with other work."""
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    return f"{_read_processor()}, {os.cpu_count()} cores, Python {platform.python_version()}, load {load}"


def judge(value: float, goal: float, unit: str) -> str:
    """A goal beside what was reached."""
    return f"goal {goal:g} {unit}: {'met' if value <= goal else 'MISSED'}"


def _read_processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "?")
