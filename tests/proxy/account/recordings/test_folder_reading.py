"""Recordings are found by time and by id, whatever else is in their folder."""

import os

import pytest
from msgspec.structs import replace
from support.recordings import keep, make_recording

from trimtab.proxy.account.recordings.folder import NoRecordingError, list_files, read_all, read_one
from trimtab.proxy.account.recordings.format import BadRecordingError, RecordedCall

IDS = [f"{number:024x}" for number in (0xA1, 0xB2, 0xC3)]


@pytest.fixture
def folder(tmp_path):
    """Three recordings, the newest last, and files of others."""
    for number, name in enumerate(IDS):
        keep(tmp_path, make_recording(name[::-1], at=1_700_000_000 + number))
    for foreign in (".draft", "notes.txt", "1700000000000-.json.gz", "17-abcdef01.json.gz"):
        (tmp_path / foreign).write_text("foreign")
    (tmp_path / "1700000000000-abcdef01").mkdir()
    return tmp_path


def refuse(path, reason):
    pytest.fail(f"{path}: {reason}")


@pytest.mark.parametrize("newest_first", [True, False])
def test_recordings_are_listed_by_time_and_other_files_are_left_out(folder, newest_first):
    ids = [name[::-1] for name in IDS]
    wanted = ids[::-1] if newest_first else ids
    assert [file.id for file in list_files(folder, newest_first=newest_first)] == wanted
    assert [one.id for one in read_all(folder, refuse, newest_first=newest_first)] == wanted


def test_one_is_found_by_the_beginning_of_its_id(folder):
    """The last is the newest request, no call for a summary. What is not there, or means several, says so."""
    call = RecordedCall("m", "inline", "written", 1.0, 1, 1)
    keep(folder, replace(make_recording("f" * 24, at=1_800_000_000), call=call))
    for name, number in (("1A", 0), (IDS[1][::-1], 1), ("last", 2)):
        assert read_one(folder, name, refuse).id == IDS[number][::-1]
    for name in ("ee", "", "../x", "zz", "*"):
        with pytest.raises(NoRecordingError, match="no recording has the id"):
            read_one(folder, name, refuse)
    keep(folder, make_recording("1a" + "f" * 22))
    with pytest.raises(NoRecordingError, match="2 recordings"):
        read_one(folder, "1a", refuse)


def test_a_broken_file_is_told_and_the_others_are_read(folder):
    broken = list_files(folder)[1].path
    broken.write_bytes(broken.read_bytes()[:50])
    told = []
    assert len(list(read_all(folder, lambda path, reason: told.append((path, reason))))) == 2
    assert told == [(broken, "it ends too early")]
    with pytest.raises(BadRecordingError):
        read_one(folder, "2b", refuse)


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_regular_file_is_told_and_never_waited_for(kind, folder):
    odd = folder / f"1800000000000-{'d4' * 12}.json.gz"
    if kind == "pipe":
        os.mkfifo(odd)
    elif kind == "folder":
        odd.mkdir()
    else:
        odd.symlink_to("/dev/zero")
    told = []

    assert [one.id for one in read_all(folder, lambda *one: told.append(one))] == [name[::-1] for name in IDS]
    assert told == [(odd, "it is not a regular file")]
    with pytest.raises(BadRecordingError, match=f"{odd.name}: it is not a regular file; delete the file"):
        read_one(folder, "d4d4", refuse)


def test_a_folder_that_is_not_there_or_empty_says_what_to_do(tmp_path):
    with pytest.raises(NoRecordingError, match="--dir"):
        list_files(tmp_path / "absent")
    with pytest.raises(NoRecordingError, match="nothing is recorded yet"):
        read_one(tmp_path, "last", refuse)
