"""A turn is sent when the proxies are at rest."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.harness.servers import stop
from bench.sessions.replaying import replay
from bench.sessions.replaying.recorder import Recorder
from bench.sessions.replaying.replay import REST_SECONDS, Running, is_at_rest

HAND_OVER = """
import os, threading

def pass_on(source, target):
    while os.read(source, 1):
        os.write(target, b".")

(a_in, a_out), (b_in, b_out) = os.pipe(), os.pipe()
threading.Thread(target=pass_on, args=(a_in, b_out), daemon=True).start()
print("ready", flush=True)
os.write(a_out, b".")
pass_on(b_in, a_out)
"""
SLEEP = """
import sys, threading

threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def run(program: str) -> Iterator[Running]:
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdin is not None
    with process.stdout, process.stdin:
        try:
            assert process.stdout.readline() == b"ready\n"
            yield Running(process, 0)
        finally:
            stop(process)


def look_for_rest(running: Running, most_looks: int) -> bool:
    before = running.look()
    for _ in range(most_looks):
        time.sleep(REST_SECONDS)
        now = running.look()
        if is_at_rest(before, now):
            return True
        before = now
    return False


def test_threads_that_hand_work_to_each_other_are_never_at_rest() -> None:
    with run(HAND_OVER) as running:
        assert not look_for_rest(running, 500)


def test_threads_that_wait_are_at_rest() -> None:
    with run(SLEEP) as running:
        assert look_for_rest(running, 30_000)


def test_a_process_that_has_ended_is_not_at_rest() -> None:
    with run(SLEEP) as running:
        pass
    assert not is_at_rest(running.look(), running.look())


async def test_a_request_that_has_arrived_unread_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this process were so late that each of its pauses is over at once."""
    monkeypatch.setattr(replay, "REST_SECONDS", 0.0)
    nothing: Any = None
    recorder = Recorder(10, failing_summaries=True)
    async with recorder.listen():
        with socket.create_connection(("127.0.0.1", recorder.port)) as client:
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}")
            await replay._Lane(nothing, nothing, Path(), recorder, nothing)._rest()
            assert recorder.failed_summaries == 1
