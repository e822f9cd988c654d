"""Summaries of measurements, a description of the machine, and tables that are also Markdown."""

import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

MILLISECONDS = 1000.0
_TABLE_WIDTH = 400
"""Chosen: wide enough that no line is wrapped, so a table can be pasted into a page."""


def median_ms(seconds: Sequence[float]) -> float:
    """The median, in milliseconds."""
    return statistics.median(seconds) * MILLISECONDS


def p95_ms(seconds: Sequence[float]) -> float:
    """The 95th percentile, in milliseconds."""
    return statistics.quantiles(seconds, n=20)[-1] * MILLISECONDS


def p99_ms(seconds: Sequence[float]) -> float:
    """The 99th percentile, in milliseconds."""
    return statistics.quantiles(seconds, n=100)[-1] * MILLISECONDS


def describe_machine() -> str:
    """Processor, cores, Python, and the load averages of the machine."""
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    return f"{_read_processor()}, {os.cpu_count()} cores, Python {platform.python_version()}, load {load}"


def judge(value: float, goal: float, unit: str) -> str:
    """The goal, which is a maximum, and whether it was met."""
    return f"goal {goal:g} {unit}: {'met' if value <= goal else 'MISSED'}"


def print_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a title and a table. The first column is text, the others are figures."""
    table = Table(box=box.MARKDOWN)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    print(f"\n{title}\n")
    console = Console(width=_TABLE_WIDTH, no_color=True)
    with console.capture() as captured:
        console.print(table, end="")
    # Console pads lines with spaces and adds an empty line before and after.
    print("\n".join(line.rstrip() for line in captured.get().strip().splitlines()), flush=True)


def _read_processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "?")
