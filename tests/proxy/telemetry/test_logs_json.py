"""Lines of JSON, which may be written together."""

import io
import threading
from datetime import datetime, timedelta

import orjson
import pytest

from trimtab.proxy.telemetry.logs import WHOLE_BYTES, JsonLines, together


def _read(stream: io.BytesIO) -> list[str]:
    return [orjson.loads(line)["n"] for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("event", ["request", "draining"])
def test_lines_of_a_block_are_written_together_at_its_end(event: str) -> None:
    """All others are written at once. Lines keep their order."""
    stream = io.BytesIO()
    lines = JsonLines(stream)
    lines.write("info", event, {"n": 1})
    assert _read(stream) == [1]
    with together:
        lines.write("info", event, {"n": 2})
        lines.write("warning", event, {"n": 3})
        assert _read(stream) == [1]
    assert _read(stream) == [1, 2, 3]


def test_another_threads_line_does_not_wait_for_the_block() -> None:
    """The block may already be over when that thread looks for it."""
    stream = io.BytesIO()
    lines = JsonLines(stream)
    with together:
        other = threading.Thread(target=lines.write, args=("info", "request", {"n": 1}))
        other.start()
        other.join()
        assert _read(stream) == [1]


def test_lines_are_written_whole_for_other_processes_write_to_the_same_pipe() -> None:
    """A write has whole lines, at most what a pipe takes as one write. A longer line is written alone."""
    pieces: list[bytes] = []

    class Stream(io.BytesIO):
        def write(self, piece: bytes) -> int:
            pieces.append(piece)
            return len(piece)

    lines = JsonLines(Stream())
    with together:
        for length in (10, 900, 5000, 1000, 1000, 1000, 1000, 1000, 1):
            lines.write("info", "request", {"n": "x" * length})
    assert all(piece.endswith(b"\n") for piece in pieces)
    assert all(len(piece) <= WHOLE_BYTES or piece.count(b"\n") == 1 for piece in pieces)
    assert [len(orjson.loads(line)["n"]) for line in b"".join(pieces).splitlines()] == [
        10, 900, 5000, 1000, 1000, 1000, 1000, 1000, 1
    ]  # fmt: skip
    assert 4 <= len(pieces) < 9


def test_a_line_has_its_event_its_level_and_its_time() -> None:
    """The time is UTC."""
    stream = io.BytesIO()
    JsonLines(stream).write("warning", "draining", {"n": 1})
    line = orjson.loads(stream.getvalue())
    told = datetime.fromisoformat(line.pop("timestamp"))
    assert line == {"n": 1, "event": "draining", "level": "warning"}
    assert told.utcoffset() == timedelta(0)


def test_threads_lose_no_line() -> None:
    """They write whole lines, so the lines of two threads never mix; also while a block is open."""
    stream = io.BytesIO()
    lines = JsonLines(stream)
    threads = [threading.Thread(target=lines.write, args=("info", "request", {"n": n})) for n in range(8)]
    with together:
        for thread in threads[:4]:
            thread.start()
    for thread in threads[4:]:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(_read(stream)) == list(range(8))


def test_a_stream_that_takes_nothing_any_more_fails_nobody() -> None:
    """The request of that line has been served already."""
    stream = io.BytesIO()
    lines = JsonLines(stream)
    stream.close()
    lines.write("warning", "request", {"n": 1})
