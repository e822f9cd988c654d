"""The folder of recordings: reads them, adds files, and keeps it within its bounds.

Law: reading changes nothing; a file that cannot be read is told, and the others are read all the same. Several
processes may write to one folder. Everything is done while holding the folder's lock, so a half-written file that
somebody finds belongs to a process that is gone.

The file that is locked begins with a random number, which each change replaces before it is made. A process that finds
another number than its own last one lists the folder, so it also notices a process that died. Only names are compared,
because a file never changes.
"""

import errno
import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from trimtab.proxy.account.recordings.format import (
    CALL_ENDING,
    ENDING,
    MAX_OPENED_BYTES,
    BadRecordingError,
    Recording,
    decode,
)

LOCK = ".lock"  # The name of the file that is locked
DRAFT = ".draft"  # The ending of a file that is being written
_NUMBER_BYTES = 8  # chosen: no random number of this size comes twice
LAST = "last"  # Names the newest recording of a request
_NAME = re.compile(rf"(\d{{13}})-([0-9a-f]{{8,64}})(?:{re.escape(ENDING)}|{re.escape(CALL_ENDING)})")
_ID = re.compile(r"[0-9a-f]{1,64}")

OnBroken = Callable[[Path, str], None]  # Gets each file that cannot be read, and why


def find_fault(path: Path) -> str:
    """Why recordings cannot be written to a folder, or it cannot be made; empty if they can. Nothing is changed."""
    for place in (path, *path.parents):
        try:
            is_folder = stat.S_ISDIR(place.stat().st_mode)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:  # ValueError: no path has a NUL character
            return name_fault(error)
        if not is_folder:
            return os.strerror(errno.ENOTDIR)
        return "" if os.access(place, os.W_OK | os.X_OK) else os.strerror(errno.EACCES)
    return ""


def name_fault(error: OSError | ValueError) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__


class Folder:
    """A folder's files, as this process knows them. Not thread-safe.

    keep: the most requests; None for no limit. Calls for summaries do not count; they go with the requests of their
    time. max_bytes: of all files together.
    """

    def __init__(self, path: Path, keep: int | None, max_bytes: int) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self._keep = keep
        self._change = b""  # the number of the last change, if it was ours; else empty
        self._sizes: dict[str, int] = {}
        self._bytes = 0
        self._requests = 0

    def add(self, milliseconds: int, request_id: str, content: bytes, *, is_call: bool = False) -> None:
        """Add a recording that only its owner can read, and delete the oldest that are too many. Raises OSError."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = f"{milliseconds:013}-{request_id}{CALL_ENDING if is_call else ENDING}"
        with self._locked() as lock:
            if not self._change or os.pread(lock, _NUMBER_BYTES, 0) != self._change:
                self._list()
            change, self._change = os.urandom(_NUMBER_BYTES), b""  # an error below leaves open what is in the folder
            os.pwrite(lock, change, 0)
            self._write(name, content)
            self._note(name, len(content))
            self._delete_oldest()
            self._change = change

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Hold the lock of the folder in the block; a process that dies releases it."""
        lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock
        finally:
            os.close(lock)

    def _list(self) -> None:
        """Learn what came and went, and remove what a process that is gone has left half-written."""
        found = set(os.listdir(self.path))  # noqa: PTH208 - a Path for each of 10,000 names takes much longer
        for name in self._sizes.keys() - found:
            self._forget(name)
        for name in found - self._sizes.keys():
            with suppress(FileNotFoundError):  # its owner may delete files
                if name.endswith(DRAFT) and _NAME.fullmatch(name.removesuffix(DRAFT)):
                    (self.path / name).unlink()
                elif _NAME.fullmatch(name):
                    self._note(name, (self.path / name).lstat().st_size)

    def _write(self, name: str, content: bytes) -> None:
        """Write the file under another name, and rename it: a reader never sees a part of it."""
        draft = self.path / f"{name}{DRAFT}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            draft.rename(self.path / name)
        except OSError:
            with suppress(OSError):
                draft.unlink()
            raise

    def _note(self, name: str, size_bytes: int) -> None:
        self._requests += _is_request(name) and name not in self._sizes
        self._bytes += size_bytes - self._sizes.get(name, 0)
        self._sizes[name] = size_bytes

    def _forget(self, name: str) -> None:
        self._bytes -= self._sizes.pop(name)
        self._requests -= _is_request(name)

    def _delete_oldest(self) -> None:
        for name in sorted(self._sizes):
            if self._bytes <= self.max_bytes and (self._keep is None or self._requests <= self._keep):
                return
            try:
                (self.path / name).unlink()
            except FileNotFoundError:  # its owner may delete files, and perhaps deleted more of them
                self._list()
            else:
                self._forget(name)


def _is_request(name: str) -> bool:
    return not name.endswith(CALL_ENDING)


class NoRecordingError(Exception):
    """What was asked for is not recorded. The message says what to do."""


class RecordingFile(msgspec.Struct, frozen=True):
    """The file of a recording. milliseconds: when its request ended, since 1970."""

    path: Path
    milliseconds: int
    id: str

    def read(self) -> Recording:
        """Read it. Raises BadRecordingError, also if the file is gone or may not be read, or is endless."""
        try:
            if self.path.exists() and not self.path.is_file():  # a pipe would wait, and a device may never end
                raise BadRecordingError("it is not a regular file")
            with self.path.open("rb") as file:
                return decode(file.read(MAX_OPENED_BYTES))
        except OSError as error:
            raise BadRecordingError(f"it cannot be read: {error.strerror}") from error


def read_name(path: Path) -> RecordingFile | None:
    found = _NAME.fullmatch(path.name)
    return RecordingFile(path, int(found[1]), found[2]) if found else None


def list_files(folder: Path, *, newest_first: bool = False) -> list[RecordingFile]:
    """The files of all recordings in a folder, ordered by time. Raises NoRecordingError if it cannot be read."""
    try:
        found = [file for path in folder.iterdir() if (file := read_name(path)) is not None]
    except OSError as error:
        raise NoRecordingError(f"{folder}: {error.strerror}; name the folder of record.dir with --dir") from error
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
        every = read_all(folder, on_broken, newest_first=True)
        if (last := next((one for one in every if one.call is None), None)) is None:
            raise NoRecordingError(f"{folder}: nothing is recorded yet")
        return last
    files = list_files(folder, newest_first=True)
    name = name.lower()
    found = [file for file in files if file.id.startswith(name)] if _ID.fullmatch(name) else []
    if not found:
        raise NoRecordingError(f"{folder}: no recording has the id {name}; trimtab inspect lists the newest")
    if len({file.id for file in found}) > 1:
        ids = ", ".join(file.id for file in found[:5])
        message = f"{folder}: {len(found)} recordings have an id that begins with {name}: {ids}; write more of it"
        raise NoRecordingError(message)
    try:
        return found[0].read()
    except BadRecordingError as error:
        raise BadRecordingError(f"{found[0].path}: {error}; delete the file, or choose another request") from error
