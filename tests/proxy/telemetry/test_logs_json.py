"""Lines of JSON that are gathered for a moment."""

import asyncio
import io
import subprocess
import sys
import threading
from datetime import datetime, timedelta

import orjson
import pytest

from trimtab.proxy.telemetry.logs import MAX_WAITING_BYTES, WAIT_SECONDS, WHOLE_BYTES, JsonLines


class _Told(io.BytesIO):
    """A stream that reports when it has been written to."""

    def __init__(self) -> None:
        super().__init__()
        self.written = asyncio.Event()

    def flush(self) -> None:
        super().flush()
        self.written.set()


def _read(stream: io.BytesIO) -> list[str]:
    return [orjson.loads(line)["n"] for line in stream.getvalue().splitlines()]


async def test_the_lines_of_requests_wait_and_are_written_together_in_time() -> None:
    """A request writes nothing itself. Its lines are written when the wait is over. Then a new wait begins."""
    stream = _Told()
    lines = JsonLines(stream)
    for number in (1, 2):
        lines.write("info", "request", {"n": number})
    assert _read(stream) == []
    for expected in ([1, 2], [1, 2, 3]):
        await asyncio.wait_for(stream.written.wait(), WAIT_SECONDS + 5)
        assert _read(stream) == expected
        stream.written.clear()
        lines.write("info", "request", {"n": 3})


@pytest.mark.parametrize(("level", "event"), [("info", "draining"), ("warning", "request"), ("error", "request")])
async def test_everything_else_is_written_at_once_and_in_order(level: str, event: str) -> None:
    """A line that is written at once takes the waiting lines with it, so no line overtakes another."""
    stream = io.BytesIO()
    lines = JsonLines(stream)
    lines.write("info", "request", {"n": 1})
    lines.write(level, event, {"n": 2})
    assert _read(stream) == [1, 2]


async def test_lines_are_written_whole_for_other_processes_write_to_the_same_pipe() -> None:
    """A write has whole lines, at most what a pipe takes as one write. A longer line is written alone."""
    pieces: list[bytes] = []

    class Stream(io.BytesIO):
        def write(self, piece: bytes) -> int:
            pieces.append(piece)
            return len(piece)

    lines = JsonLines(Stream())
    for length in (10, 900, 5000, 1000, 1000, 1000, 1000, 1000, 1):
        lines.write("info", "request", {"n": "x" * length})
    lines.flush()
    assert all(piece.endswith(b"\n") for piece in pieces)
    assert all(len(piece) <= WHOLE_BYTES or piece.count(b"\n") == 1 for piece in pieces)
    assert [len(orjson.loads(line)["n"]) for line in b"".join(pieces).splitlines()] == [
        10, 900, 5000, 1000, 1000, 1000, 1000, 1000, 1
    ]  # fmt: skip
    assert 4 <= len(pieces) < 9


async def test_what_waits_is_bounded() -> None:
    """Not more bytes wait than a pipe takes."""
    stream = io.BytesIO()
    lines = JsonLines(stream)
    for _ in range(3):
        lines.write("info", "request", {"n": "x" * (MAX_WAITING_BYTES // 2)})
    assert len(_read(stream)) >= 2


def test_a_line_has_its_event_its_level_and_its_time() -> None:
    """The time is UTC."""
    stream = io.BytesIO()
    JsonLines(stream).write("warning", "draining", {"n": 1})
    line = orjson.loads(stream.getvalue())
    told = datetime.fromisoformat(line.pop("timestamp"))
    assert line == {"n": 1, "event": "draining", "level": "warning"}
    assert told.utcoffset() == timedelta(0)


def test_without_a_loop_nothing_waits() -> None:
    """Nothing would write the lines later."""
    stream = io.BytesIO()
    JsonLines(stream).write("info", "request", {"n": 1})
    assert _read(stream) == [1]


async def test_a_thread_without_a_loop_writes_at_once() -> None:
    """It writes whole lines, so the lines of two threads never mix."""
    stream = io.BytesIO()
    lines = JsonLines(stream)
    threads = [threading.Thread(target=lines.write, args=("info", "request", {"n": n})) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(_read(stream)) == list(range(8))


def test_a_wait_that_a_closed_loop_has_left_is_begun_anew() -> None:
    """The next loop writes the lines that the closed loop has left."""
    stream = io.BytesIO()
    lines = JsonLines(stream)

    async def log(number: int, seconds: float) -> None:
        lines.write("info", "request", {"n": number})
        await asyncio.sleep(seconds)

    asyncio.run(log(1, 0))
    assert _read(stream) == []
    asyncio.run(log(2, 2 * WAIT_SECONDS))
    assert _read(stream) == [1, 2]


def test_a_process_that_ends_has_written_everything() -> None:
    """The law holds even if an error ends its loop before the wait is over."""
    program = (
        "import asyncio, sys\n"
        "from trimtab.proxy.telemetry.logs import configure_log, get_log\n"
        "configure_log('info', 'json')\n"
        "async def main():\n"
        "    get_log().info('request', n=1)\n"
        "    raise SystemExit(3)\n"
        "asyncio.run(main())\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert ended.returncode == 3
    assert [orjson.loads(line)["n"] for line in ended.stderr.splitlines()] == [1]


async def test_a_stream_that_takes_nothing_any_more_fails_nobody() -> None:
    """The request of that line has been served already."""
    stream = io.BytesIO()
    lines = JsonLines(stream)
    stream.close()
    lines.write("warning", "request", {"n": 1})
