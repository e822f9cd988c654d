"""The writer is bounded, waits for nobody, and counts everything."""

import asyncio
import threading

import pytest
from support.model_learning import ListLog

from trimtab.proxy.account.recordings import writing
from trimtab.proxy.account.recordings.folder import list_files
from trimtab.proxy.account.recordings.writing import Draft, Recordings, measure_recordings
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.schema import RecordConfig
from trimtab.proxy.telemetry.metrics import Metrics


class Counted:
    """A writer with its metrics and its log."""

    def __init__(self, folder, **settings) -> None:
        self.log, self.metrics = ListLog(), Metrics()
        self.recordings = Recordings(RecordConfig(dir=str(folder), **settings), self.metrics, self.log)

    def add(self, number: int, make=lambda: b"content", size_bytes: int = 10) -> None:
        self.recordings.add(Draft(1_700_000_000 + number, f"{number:024x}", make, size_bytes))

    def results(self) -> dict[str, int]:
        samples = self.metrics.recordings.read().samples
        return {one.labels["result"]: int(one.value) for one in samples if one.name.endswith("_total")}


async def test_what_was_taken_is_written_when_it_closes(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    counted, threads = Counted(f"~/{tmp_path.name}"), set()
    for number in range(20):
        counted.add(number, lambda: threads.add(threading.current_thread().name) or b"content")
    await counted.recordings.close()
    assert len(list_files(tmp_path)) == 20
    assert counted.results() == {"written": 20}
    assert threads == {"trimtab-recordings"}


@pytest.mark.parametrize("limit", ["MAX_WAITING", "MAX_WAITING_BYTES", "most_bytes"])
async def test_what_is_too_much_is_dropped_and_counted(limit, tmp_path, monkeypatch):
    counted, go_on = Counted(tmp_path), threading.Event()
    if limit == "most_bytes":  # its share of the memory
        counted.recordings.most_bytes = 30
    else:
        monkeypatch.setattr(writing, limit, 3 if limit == "MAX_WAITING" else 30)
    counted.add(0, lambda: go_on.wait(30) and b"content")
    for number in range(1, 10):
        counted.add(number)
    assert counted.results() == {"dropped": 7}
    go_on.set()
    await counted.recordings.settle()
    assert counted.results() == {"dropped": 7, "written": 3}
    counted.add(10)
    await counted.recordings.close()
    assert counted.results() == {"dropped": 7, "written": 4}


async def test_closing_waits_only_so_long_and_counts_what_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "CLOSE_SECONDS", 0.01)
    counted, go_on, begun = Counted(tmp_path), threading.Event(), threading.Event()
    counted.add(0, lambda: begun.set() or (go_on.wait(30) and b"content"))
    counted.add(1)
    counted.add(2)
    assert await asyncio.to_thread(begun.wait, 30)  # the first one is being written, so it is not dropped
    await counted.recordings.close()
    assert counted.results() == {"dropped": 2}
    counted.add(3)
    assert counted.results() == {"dropped": 3}
    go_on.set()


async def test_a_recording_that_cannot_be_made_or_is_too_large_is_counted_and_deletes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "MAX_WAITING_BYTES", 5)
    counted = Counted(tmp_path, max_bytes=1024 * 1024)
    for number, make in enumerate((lambda: b"content", lambda: b"x" * (1024 * 1024 + 1), lambda: None)):
        counted.add(number, make, size_bytes=1000)  # more than may wait, but nothing waits
        await counted.recordings.settle()
    await counted.recordings.close()
    assert counted.results() == {"failed": 1, "written": 1, "dropped": 1}
    assert len(list_files(tmp_path)) == 1


async def test_a_folder_that_cannot_be_written_is_told_once_and_when_it_works_again(tmp_path):
    (tmp_path / "file").write_text("no folder")
    counted = Counted(tmp_path / "file" / "below")
    for number in range(3):
        counted.add(number)
    await counted.recordings.settle()
    assert counted.results() == {"failed": 3}
    assert [line["event"] for line in counted.log.lines] == ["recordings_fail"]
    assert counted.log.lines[0]["reason"] == "Not a directory"

    odd = Counted(f"{tmp_path}/\0")  # no system has such a path
    odd.add(0)
    await odd.recordings.close()
    assert odd.results() == {"failed": 1}

    (tmp_path / "file").unlink()
    for number in range(2):
        counted.add(number)
    await counted.recordings.close()
    assert counted.results() == {"failed": 3, "written": 2}
    assert [line["event"] for line in counted.log.lines] == ["recordings_fail", "recordings_work_again"]


def test_without_recordings_no_memory_is_set_aside():
    assert measure_recordings(load_config("", environment={})) == 0
    recording = load_config("record: {dir: x}\nlimits: {max_memory_bytes: 536870912}", environment={})
    assert measure_recordings(recording) == 32 * 1024 * 1024
