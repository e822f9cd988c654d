"""The folder of recordings stays within its bounds, whoever writes to it and whatever happened before."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.account.recordings.folder import DRAFT, LOCK, Folder, list_files

KILOBYTE = b"x" * 1000


def name(number: int) -> str:
    return f"{number:024x}"


def list_ids(path: Path) -> list[int]:
    return [int(file.id, 16) for file in list_files(path)]


def add(folder: Folder, *numbers: int, content: bytes = KILOBYTE) -> None:
    for number in numbers:
        folder.add(1_700_000_000_000 + number, name(number), content)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_the_owner_can_read_the_folder_and_its_files(tmp_path):
    before = os.umask(0)
    try:
        add(Folder(tmp_path / "new" / "folder", 9, 10_000), 1)
    finally:
        os.umask(before)
    path = tmp_path / "new" / "folder"
    assert mode_of(path) == 0o700
    assert {mode_of(file) for file in path.iterdir()} == {0o600}
    assert len(list(path.iterdir())) == 2  # the recording and the lock


def test_the_oldest_are_deleted_by_time_and_not_by_the_order_of_writing(tmp_path):
    add(Folder(tmp_path, 3, 10_000), 5, 1, 4, 2, 3)
    assert list_ids(tmp_path) == [3, 4, 5]


def test_a_restart_counts_what_is_there_and_leaves_files_of_others(tmp_path):
    add(Folder(tmp_path, 5, 10_000), *range(5))
    (tmp_path / "notes.txt").write_text("mine")
    add(Folder(tmp_path, 3, 10_000), 5)
    assert list_ids(tmp_path) == [3, 4, 5]
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_file_that_a_crash_left_half_written_is_never_read_and_is_removed(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            add(Folder(tmp_path, 3, 10_000), 1)
    (left,) = tmp_path.glob(f"*{DRAFT}")
    assert list_files(tmp_path) == []
    add(Folder(tmp_path, 3, 10_000), 2)
    assert not left.exists()
    assert list_ids(tmp_path) == [2]


def test_a_full_disk_leaves_no_part_of_a_file_and_the_folder_stays_usable(tmp_path, monkeypatch):
    folder = Folder(tmp_path, 3, 10_000)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space"):
            add(folder, 1)
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]
    add(folder, 2)
    assert list_ids(tmp_path) == [2]


def test_the_lock_is_not_followed_elsewhere(tmp_path):
    """Another user of a shared folder cannot have a file of ours overwritten."""
    target = tmp_path / "target"
    target.write_bytes(b"mine")
    (tmp_path / LOCK).symlink_to(target)
    with pytest.raises(OSError, match="symbolic"):
        add(Folder(tmp_path, 3, 10_000), 1)
    assert target.read_bytes() == b"mine"


@given(
    steps=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5), st.booleans()), min_size=1, max_size=30),
    most=st.none() | st.integers(1, 6),
)
def test_several_writers_keep_exactly_the_newest_within_the_bytes(steps, most, tmp_path_factory):
    """Each of them knows what the others have added since, also if one of them restarts."""
    path = tmp_path_factory.mktemp("recordings")
    folders = [Folder(path, most, 9000) for _ in range(3)]
    kept = {}
    for number, (writer, kilobytes, restarts) in enumerate(steps):
        if restarts:
            folders[writer] = Folder(path, most, 9000)
        add(folders[writer], number, content=KILOBYTE * kilobytes)
        kept[number] = kilobytes
        while sum(kept.values()) > 9 or len(kept) > (most or 30):
            del kept[min(kept)]
        assert list_ids(path) == sorted(kept)


def test_what_a_process_changed_before_it_died_is_known_to_the_others(tmp_path, monkeypatch):
    others = Folder(tmp_path, 3, 10_000)
    add(others, 1, 2, 3)
    with monkeypatch.context() as patch:
        patch.setattr(Folder, "_delete_oldest", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            add(Folder(tmp_path, 3, 10_000), 4)
    assert list_ids(tmp_path) == [1, 2, 3, 4]
    add(others, 5)
    assert list_ids(tmp_path) == [3, 4, 5]


WRITE_MANY = """
import sys
from pathlib import Path
from trimtab.proxy.account.recordings.folder import Folder
folder, first = Folder(Path(sys.argv[1]), 20, 10**9), int(sys.argv[2])
for number in range(first, first + 100, 2):
    folder.add(1_700_000_000_000 + number, f"{number:024x}", b"x" * 1000)
"""


def test_several_processes_keep_exactly_the_newest(tmp_path):
    writers = [subprocess.Popen([sys.executable, "-c", WRITE_MANY, str(tmp_path), str(first)]) for first in (0, 1)]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert len(list_files(tmp_path)) == 20
    assert not list(tmp_path.glob(f"*{DRAFT}"))


def test_what_its_owner_deletes_is_noticed_by_every_process(tmp_path):
    folders = [Folder(tmp_path, 4, 10_000) for _ in range(2)]
    add(folders[0], 1, 2)
    add(folders[1], 3, 4)
    for file in list_files(tmp_path):
        if int(file.id, 16) in {1, 3}:
            file.path.unlink()
    add(folders[0], 5)
    add(folders[1], 6)
    assert list_ids(tmp_path) == [2, 4, 5, 6]
    (tmp_path / LOCK).unlink()
    add(folders[0], 7)
    assert list_ids(tmp_path) == [4, 5, 6, 7]


@pytest.mark.parametrize("content", [b"", b"\0\0\0\0\0\0\0\x05", b"x" * 100])
def test_a_lock_that_another_program_has_written_is_not_believed(tmp_path, content):
    folder = Folder(tmp_path, 3, 10_000)
    add(folder, 1, 2, 3)
    (tmp_path / LOCK).write_bytes(content)
    add(folder, 4)
    add(Folder(tmp_path, 3, 10_000), 5)
    assert list_ids(tmp_path) == [3, 4, 5]


def test_calls_for_summaries_do_not_take_the_places_of_requests(tmp_path):
    folder = Folder(tmp_path, 3, 100_000)
    for number in range(10):
        folder.add(1_700_000_000_000 + number, name(number), KILOBYTE, is_call=number % 2 == 0)
    assert list_ids(tmp_path) == [4, 5, 6, 7, 8, 9]
    again = Folder(tmp_path, 3, 100_000)
    add(again, 10)
    assert list_ids(tmp_path) == [6, 7, 8, 9, 10]
    folder.add(1_700_000_000_011, name(11), KILOBYTE)
    assert list_ids(tmp_path) == [8, 9, 10, 11]
