"""Processor time and memory of processes, as the kernel counts them, and what all others used meanwhile.

Law: Linux, /proc; the process itself is not asked. A process that has ended counts as zero.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
_RESIDENT = re.compile(r"^Rss:\s+(\d+) kB", re.MULTILINE)
KIB_PER_MB = 1000 / 1.024


@dataclass(frozen=True, slots=True)
class Machine:
    """Seconds of processor time since the start: used by all programs, and taken by other virtual machines."""

    busy_seconds: float
    stolen_seconds: float


def read_machine() -> Machine:
    """Read the account of the whole machine."""
    figures = [int(figure) for figure in _read("/proc/stat").partition("\n")[0].split()[1:]]
    return Machine(sum(figures[:3]) * _TICK_SECONDS, figures[7] * _TICK_SECONDS)


def find_family(pid: int) -> list[int]:
    """The process and all its descendants."""
    children: dict[int, list[int]] = defaultdict(list)
    for name in os.listdir("/proc"):  # noqa: PTH208 - only names are needed
        if name.isdigit() and (fields := _read_fields(int(name))):
            children[int(fields[1])].append(int(name))
    family = [pid]
    for member in family:
        family.extend(children[member])
    return family


def read_processor_seconds(pids: Iterable[int]) -> float:
    """Seconds of processor time (user and system) of these processes so far, in steps of 10 ms."""
    accounts = filter(None, map(_read_fields, pids))
    return sum(int(fields[11]) + int(fields[12]) for fields in accounts) * _TICK_SECONDS


def read_thread_seconds(pids: Iterable[int]) -> float:
    """As `read_processor_seconds`, but to the nanosecond, and without the time of threads that have ended."""
    threads = (thread for pid in pids for thread in Path(f"/proc/{pid}/task").glob("*"))
    accounts = (_read(f"{thread}/schedstat").split() for thread in threads)
    return sum(int(fields[0]) for fields in accounts if fields) / 1e9


def read_resident_mb(pids: Iterable[int]) -> float:
    """Resident megabytes of these processes; memory that they share counts for each."""
    found = (_RESIDENT.search(_read(f"/proc/{pid}/smaps_rollup")) for pid in pids)
    return sum(int(one.group(1)) for one in found if one) / KIB_PER_MB


@contextmanager
def pinned(cores: set[int]) -> Iterator[None]:
    """Processes that the block starts run on these cores only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def share_cores() -> tuple[set[int], set[int]]:
    """One core for the measured program and the others for everything else; the same core if there is only one."""
    first, *others = sorted(os.sched_getaffinity(0))
    return {first}, set(others) or {first}


def _read_fields(pid: int) -> list[str]:
    """The fields after the name. The name may contain spaces and parentheses."""
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except OSError:
        return ""
