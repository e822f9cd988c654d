"""Reads the recordings in a folder.

Law: it changes nothing. A file that cannot be read is told, and the others are read all the same.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from proxy.account.recordings.format import CALL_ENDING, ENDING, MAX_OPENED_BYTES, BadRecordingError, Recording, decode

LAST = "last"
"""Names the newest recording of a request."""
_NAME = re.compile(rf"(\d{{13}})-([0-9a-f]{{8,64}})(?:{re.escape(ENDING)}|{re.escape(CALL_ENDING)})")
_ID = re.compile(r"[0-9a-f]{1,64}")

OnBroken = Callable[[Path, str], None]
"""Gets each file that cannot be read, and why."""


class NoRecordingError(Exception):
    """What was asked for is not recorded. The message says what to do."""


@dataclass(frozen=True, slots=True)
class RecordingFile:
    """The file of a recording. milliseconds: when its request ended, since 1970."""

    path: Path
    milliseconds: int
    id: str

    def read(self) -> Recording:
        """Read it. Raises BadRecordingError, also if the file is gone or may not be read, or is endless."""
        try:
            if self.path.exists() and not self.path.is_file():  # a pipe would wait, and a device may never end
                message = "it is not a regular file"
                raise BadRecordingError(message)
            with self.path.open("rb") as file:
                return decode(file.read(MAX_OPENED_BYTES))
        except OSError as error:
            message = f"it cannot be read: {error.strerror}"
            raise BadRecordingError(message) from error


def read_name(path: Path) -> RecordingFile | None:
    """The recording's file at a path, by its name alone; None for any other file."""
    found = _NAME.fullmatch(path.name)
    return RecordingFile(path, int(found[1]), found[2]) if found else None


def list_files(folder: Path, *, newest_first: bool = False) -> list[RecordingFile]:
    """The files of all recordings in a folder, ordered by time. Other files are left out.

    Raises NoRecordingError if there is no such folder, or if it may not be read.
    """
    try:
        found = [file for path in folder.iterdir() if (file := read_name(path)) is not None]
    except OSError as error:
        message = f"{folder}: {error.strerror}; name the folder of record.dir with --dir"
        raise NoRecordingError(message) from error
    return sorted(found, key=lambda file: (file.milliseconds, file.id), reverse=newest_first)


def read_all(folder: Path, on_broken: OnBroken, *, newest_first: bool = False) -> Iterator[Recording]:
    """All recordings in a folder, ordered by time, read one after the other. Raises NoRecordingError."""
    for file in list_files(folder, newest_first=newest_first):
        try:
            recording = file.read()
        except BadRecordingError as error:
            on_broken(file.path, str(error))
        else:
            yield recording


def read_one(folder: Path, name: str, on_broken: OnBroken) -> Recording:
    """The recording whose id begins with `name`; for `last` the newest one of a request.

    Raises NoRecordingError if there is none, or more than one; BadRecordingError if its file is broken.
    """
    if name == LAST:
        return _read_last(folder, on_broken)
    files = list_files(folder, newest_first=True)
    name = name.lower()
    found = [file for file in files if file.id.startswith(name)] if _ID.fullmatch(name) else []
    if not found:
        message = f"{folder}: no recording has the id {name}; trimtab inspect lists the newest"
        raise NoRecordingError(message)
    if len({file.id for file in found}) > 1:
        ids = ", ".join(file.id for file in found[:5])
        message = f"{folder}: {len(found)} recordings have an id that begins with {name}: {ids}; write more of it"
        raise NoRecordingError(message)
    try:
        return found[0].read()
    except BadRecordingError as error:
        message = f"{found[0].path}: {error}; delete the file, or choose another request"
        raise BadRecordingError(message) from error


def _read_last(folder: Path, on_broken: OnBroken) -> Recording:
    for recording in read_all(folder, on_broken, newest_first=True):
        if recording.call is None:
            return recording
    message = f"{folder}: nothing is recorded yet"
    raise NoRecordingError(message)
