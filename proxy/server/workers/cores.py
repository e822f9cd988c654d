"""How many processes there are to be.

Law: `auto` counts what this process may use, not what the machine has.
"""

import os
from contextlib import suppress
from math import ceil
from pathlib import Path

from proxy.config.schema import MIN_MEMORY_BYTES, Config

CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Of a container: microseconds, and in how many. Source: Linux, Control Group v2, cpu.max."""


def count_workers(config: Config, quota_file: Path = CPU_QUOTA) -> int:
    """As many as the configuration says; for `auto` one for each core, but no more than there is memory for."""
    if config.workers != "auto":
        return config.workers
    return max(1, min(count_cores(quota_file), config.limits.max_memory_bytes // MIN_MEMORY_BYTES))


def count_cores(quota_file: Path = CPU_QUOTA) -> int:
    """The cores that this process may run on, and has processor time for; a part of one counts as one."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        cores = os.cpu_count() or 1
    with suppress(OSError, ValueError, ZeroDivisionError):  # no such file; `max` is no number
        quota, period = map(int, quota_file.read_text("ascii").split())
        cores = min(cores, ceil(quota / period))
    return max(cores, 1)
