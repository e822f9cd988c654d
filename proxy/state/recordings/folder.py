"""The folder of recordings: adds files to it, and keeps it within its bounds.

Law: several processes may write to one folder. Everything is done while holding the folder's lock, so a half-written
file that somebody finds belongs to a process that is gone.
"""

import fcntl
import os
from bisect import insort
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from proxy.state.recordings.format import ENDING
from proxy.state.recordings.reading import read_name

LOCK = ".lock"
"""The name of the file that is locked. It contains the number of changes so far, so that a process knows whether it
was the last one that wrote."""
DRAFT = ".draft"
"""The ending of a file that is being written."""
_NUMBER_BYTES = 8  # chosen: such a number is never used up


class Folder:
    """The files of a folder, as this process knows them. Not thread-safe.

    keep: the most files; None for no limit. max_bytes: of all files together.
    """

    def __init__(self, path: Path, keep: int | None, max_bytes: int) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self._keep = keep
        self._changes = -1
        self._sizes: dict[str, int] = {}
        self._names: list[str] = []
        self._bytes = 0

    def add(self, milliseconds: int, request_id: str, content: bytes) -> None:
        """Add a recording, and delete the oldest ones that are too many. Raises OSError.

        The folder is made if it does not exist. Only the owner may read it and its files.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = f"{milliseconds:013}-{request_id}{ENDING}"
        with self._locked() as lock:
            changes = int.from_bytes(os.pread(lock, _NUMBER_BYTES, 0))
            if changes != self._changes:
                self._list()
            self._changes = -1  # an error below leaves open what is in the folder
            self._write(name, content)
            self._note(name, len(content))
            self._delete_oldest()
            os.pwrite(lock, (changes + 1).to_bytes(_NUMBER_BYTES), 0)
            self._changes = changes + 1

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
        """Read again what is in the folder, and remove what a process that is gone has left half-written."""
        self._sizes, self._bytes = {}, 0
        with os.scandir(self.path) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # its owner may delete files
                    if entry.name.endswith(DRAFT) and _is_ours(entry.name.removesuffix(DRAFT)):
                        Path(entry.path).unlink()
                    elif _is_ours(entry.name):
                        self._sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
        self._names, self._bytes = sorted(self._sizes), sum(self._sizes.values())

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
        self._sizes[name] = size_bytes
        self._bytes += size_bytes

    def _delete_oldest(self) -> None:
        number = 0
        while self._bytes > self.max_bytes or (self._keep is not None and len(self._names) - number > self._keep):
            name = self._names[number]
            with suppress(FileNotFoundError):
                (self.path / name).unlink()
            self._bytes -= self._sizes.pop(name)
            number += 1
        del self._names[:number]


def _is_ours(name: str) -> bool:
    return read_name(Path(name)) is not None
