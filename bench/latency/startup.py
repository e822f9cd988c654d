"""Measures how long `trimtab serve` takes from exec until it is ready, and its memory at that moment.

    python -m bench.latency.startup --runs 10

One start before the first measured one compiles the modules and warms the disk's cache.
"""

import argparse
import statistics
import time
from pathlib import Path

from bench.figures import describe_machine, judge
from bench.harness.servers import find_free_port, start_proxy, stop, wait_until_ready

GOAL_SECONDS = 1.0
GOAL_MB = 160.0


def measure_start() -> tuple[float, float]:
    """Seconds until ready, and resident memory in MB (10^6 bytes) at that moment."""
    port = find_free_port()
    started = time.perf_counter()
    process = start_proxy(port)
    try:
        wait_until_ready(port, process)
        return time.perf_counter() - started, read_resident_mb(process.pid)
    finally:
        stop(process)


def read_resident_mb(pid: int) -> float:
    """VmRSS of a process, from /proc (Linux)."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    kibibytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(kibibytes) * 1024 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    arguments = parser.parse_args()
    print(describe_machine())
    measure_start()
    runs = [measure_start() for _ in range(arguments.runs)]
    for name, values, goal, unit in (
        ("ready", [seconds for seconds, _ in runs], GOAL_SECONDS, "s"),
        ("resident", [megabytes for _, megabytes in runs], GOAL_MB, "MB"),
    ):
        median = statistics.median(values)
        spread = f"median {median:.3g} {unit}, min {min(values):.3g}, max {max(values):.3g}"
        print(f"{name:9} {spread}; {judge(median, goal, unit)}")


if __name__ == "__main__":
    main()
