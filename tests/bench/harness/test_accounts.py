"""Processor time and memory of processes, as the kernel reports them."""

import os
import subprocess
import sys
import time

from bench.harness.accounts import find_family, pinned, read_processor_seconds, read_resident_mb, share_cores


def test_what_a_process_computes_is_on_its_account() -> None:
    before, own = read_processor_seconds([os.getpid()]), time.process_time()
    while time.process_time() < own + 0.2:
        pass
    assert read_processor_seconds([os.getpid()]) - before >= 0.15


def test_a_process_that_is_gone_has_no_account() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert read_processor_seconds([process.pid]) == 0
    assert read_resident_mb([process.pid]) == 0


def test_children_belong_to_the_family_and_run_where_they_were_started() -> None:
    cores, _ = share_cores()
    before = os.sched_getaffinity(0)
    with pinned(cores):
        process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        assert process.pid in find_family(os.getpid())
        assert os.sched_getaffinity(process.pid) == cores
        assert os.sched_getaffinity(0) == before
    finally:
        process.communicate()
