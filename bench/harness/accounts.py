"""What processes cost, by the kernel's account: processor time, memory, and what all others took meanwhile.

Law: Linux, /proc; nothing is asked of the process itself. A process that has ended counts nothing.
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
    """Seconds of processor time since the machine was started: of all programs, and taken by other machines."""

    busy_seconds: float
    stolen_seconds: float


def read_machine() -> Machine:
    """The account of the whole machine."""
    figures = [int(figure) for figure in _read("/proc/stat").partition("\n")[0].split()[1:]]
    return Machine(sum(figures[:3]) * _TICK_SECONDS, figures[7] * _TICK_SECONDS)


def find_family(pid: int) -> list[int]:
    """The process and all that descend from it."""
    children: dict[int, list[int]] = defaultdict(list)
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are all that is wanted
        if name.isdigit() and (fields := _read_fields(int(name))):
            children[int(fields[1])].append(int(name))
    family = [pid]
    for member in family:
        family.extend(children[member])
    return family


def read_processor_seconds(pids: Iterable[int]) -> float:
    """Seconds of processor time, user's and system's, of these processes so far; in steps of ten milliseconds."""
    accounts = filter(None, map(_read_fields, pids))
    return sum(int(fields[11]) + int(fields[12]) for fields in accounts) * _TICK_SECONDS


def read_thread_seconds(pids: Iterable[int]) -> float:
    """The same to the nanosecond, of the threads that live: what a thread used that has ended is missing."""
    threads = (thread for pid in pids for thread in Path(f"/proc/{pid}/task").glob("*"))
    accounts = (_read(f"{thread}/schedstat").split() for thread in threads)
    return sum(int(fields[0]) for fields in accounts if fields) / 1e9


def read_resident_mb(pids: Iterable[int]) -> float:
    """Megabytes of memory of these processes; what they share counts for each."""
    found = (_RESIDENT.search(_read(f"/proc/{pid}/smaps_rollup")) for pid in pids)
    return sum(int(one.group(1)) for one in found if one) / KIB_PER_MB


@contextmanager
def pinned(cores: set[int]) -> Iterator[None]:
    """What is started within the block runs on these cores only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def share_cores() -> tuple[set[int], set[int]]:
    """One core for what is measured, and those for all else; the same one if there is only one."""
    first, *others = sorted(os.sched_getaffinity(0))
    return {first}, set(others) or {first}


def _read_fields(pid: int) -> list[str]:
    """The fields behind the name, which may hold blanks and parentheses."""
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except OSError:
        return ""
