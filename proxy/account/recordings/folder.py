"""The folder of recordings: reads them, adds files, and keeps it within its bounds.

Law: reading changes nothing; a file that cannot be read is told, and the others are read all the same. Several
processes may write to one folder. Everything is done while holding the folder's lock, so a half-written file that
somebody finds belongs to a process that is gone.

The file that is locked is also a log of the files that came and went, so that no process lists the folder because of
another one. It begins with a random number that names it and with its end in bytes, which is 0 while a change is under
way, so a process that dies is noticed. A line follows for each change: a name and a size, or only the name of a deleted
file. The log is never synced to the disk: after a crash of the machine every process lists the folder.
"""

import errno
import fcntl
import os
import re
import stat
from bisect import bisect_left, insort
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

LOCK = ".lock"  # The name of the file that is locked, and that contains the log of changes
DRAFT = ".draft"  # The ending of a file that is being written
LOG_BYTES = 1024 * 1024
"""A longer log is emptied, and the others list the folder. Chosen: some 9,000 recordings, read as fast as listed."""
_LOG_BYTES_PER_FILE = 128  # The log of a large folder may be longer. Chosen: about two lines, so listing stays rare.
_NUMBER_BYTES = 8  # chosen: no random number of this size comes twice
_HEAD_BYTES = 2 * _NUMBER_BYTES
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
        self._log_id = b""
        self._end = 0
        self._sizes: dict[str, int] = {}
        self._names: list[str] = []
        self._bytes = 0
        self._requests = 0

    def add(self, milliseconds: int, request_id: str, content: bytes, *, is_call: bool = False) -> None:
        """Add a recording that only its owner can read, and delete the oldest that are too many. Raises OSError."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = f"{milliseconds:013}-{request_id}{CALL_ENDING if is_call else ENDING}"
        with self._locked() as lock:
            self._catch_up(lock)
            os.pwrite(lock, self._log_id + bytes(_NUMBER_BYTES), 0)  # an error below leaves open what is in the folder
            self._write(name, content)
            self._note(name, len(content))
            deleted = self._delete_oldest(lock)
            self._append(lock, "".join((f"{name} {len(content)}\n", *(f"{one}\n" for one in deleted))).encode())

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Hold the lock of the folder in the block; a process that dies releases it."""
        lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock
        finally:
            os.close(lock)

    def _catch_up(self, lock: int) -> None:
        """Learn what other processes have changed: from their log, or else by listing the folder."""
        head = os.pread(lock, _HEAD_BYTES, 0)
        log_id, end = head[:_NUMBER_BYTES], int.from_bytes(head[_NUMBER_BYTES:])
        if not _HEAD_BYTES <= end <= os.fstat(lock).st_size:
            self._list()
            self._start_log(lock)
        elif log_id != self._log_id:
            self._list()
            self._log_id, self._end = log_id, end
        elif end != self._end:
            if not self._read_log(lock, end):
                self._list()
                self._start_log(lock)
            else:
                self._end = end

    def _read_log(self, lock: int, end: int) -> bool:
        if end < self._end:
            return False
        for line in os.pread(lock, end - self._end, self._end).decode(errors="replace").splitlines():
            name, _, size_bytes = line.partition(" ")
            if not _is_ours(name) or (size_bytes and not (size_bytes.isascii() and size_bytes.isdigit())):
                return False
            if size_bytes:
                self._note(name, int(size_bytes))
            elif name in self._sizes:
                self._forget(name)
                del self._names[bisect_left(self._names, name)]
        return True

    def _start_log(self, lock: int) -> None:
        os.ftruncate(lock, 0)
        self._log_id, self._end = os.urandom(_NUMBER_BYTES), _HEAD_BYTES

    def _append(self, lock: int, lines: bytes) -> None:
        if self._end + len(lines) > max(LOG_BYTES, _LOG_BYTES_PER_FILE * len(self._names)):
            self._start_log(lock)
        elif os.pwrite(lock, lines, self._end) == len(lines):
            self._end += len(lines)
        else:
            return  # the disk is full; as no end is written, the next one lists the folder
        os.pwrite(lock, self._log_id + self._end.to_bytes(_NUMBER_BYTES), 0)

    def _list(self) -> None:
        """Read again what is in the folder, and remove what a process that is gone has left half-written."""
        self._log_id = b""  # an error below leaves open what is in the folder
        self._sizes, self._bytes = {}, 0
        with os.scandir(self.path) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # its owner may delete files
                    if entry.name.endswith(DRAFT) and _is_ours(entry.name.removesuffix(DRAFT)):
                        Path(entry.path).unlink()
                    elif _is_ours(entry.name):
                        self._sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
        self._names, self._bytes = sorted(self._sizes), sum(self._sizes.values())
        self._requests = sum(map(_is_request, self._names))

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
        if name in self._sizes:
            self._bytes -= self._sizes[name]
        else:
            insort(self._names, name)
            self._requests += _is_request(name)
        self._sizes[name] = size_bytes
        self._bytes += size_bytes

    def _forget(self, name: str) -> None:
        self._bytes -= self._sizes.pop(name)
        self._requests -= _is_request(name)

    def _delete_oldest(self, lock: int) -> list[str]:
        number, deleted = 0, []
        while self._bytes > self.max_bytes or (self._keep is not None and self._requests > self._keep):
            name = self._names[number]
            try:
                (self.path / name).unlink()
            except FileNotFoundError:  # its owner may delete files, and perhaps deleted more of them
                self._list()
                self._start_log(lock)
                number = 0
                continue
            self._forget(name)
            deleted.append(name)
            number += 1
        del self._names[:number]
        return deleted


def _is_request(name: str) -> bool:
    return not name.endswith(CALL_ENDING)


def _is_ours(name: str) -> bool:
    return read_name(Path(name)) is not None


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
