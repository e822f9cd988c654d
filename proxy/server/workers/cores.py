"""The number of worker processes.

Law: `auto` counts the cores that this process may use, not those of the machine.
"""

import os
from contextlib import suppress
from math import ceil
from pathlib import Path

from proxy.config.schema import MIN_MEMORY_BYTES, Config

CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""A container's quota and period, in microseconds. Source: Linux, Control Group v2, cpu.max."""


def count_workers(config: Config, quota_file: Path = CPU_QUOTA) -> int:
    """The configured number; for `auto`, one for each core, but no more than the memory allows."""
    if config.workers != "auto":
        return config.workers
    return max(1, min(count_cores(quota_file), config.limits.max_memory_bytes // MIN_MEMORY_BYTES))


def count_cores(quota_file: Path = CPU_QUOTA) -> int:
    """Cores that this process may run on, within its processor quota; a fraction counts as a whole core."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        cores = os.cpu_count() or 1
    with suppress(OSError, ValueError, ZeroDivisionError):  # no such file, or the word `max`
        quota, period = map(int, quota_file.read_text("ascii").split())
        cores = min(cores, ceil(quota / period))
    return max(cores, 1)
