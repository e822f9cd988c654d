"""The thread that works with one SQLite file, so that the event loop never waits for the disk.

Law: each operation is one function that runs to its end in the thread, even if its caller leaves. Every fault becomes a
StoreError.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from proxy.state.stores.sqlite_file import ForeignFileError, SqliteFile, Work
from proxy.state.stores.store import StoreError, describe_fault

T = TypeVar("T")

OPERATION_SECONDS = 2.0
"""The longest wait of a caller; a slower disk counts as gone. Chosen: longer than BUSY_SECONDS of sqlite_file.py."""
PRIMARY_CODE = 0xFF
"""The bits of the primary code in an extended result code. Source: SQLite, Result and Error Codes."""
_FAULTS = {
    sqlite3.SQLITE_BUSY: "another process has locked the file",
    sqlite3.SQLITE_LOCKED: "another process has locked the file",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened",
    sqlite3.SQLITE_CORRUPT: "the file is damaged",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk cannot be read or written",
    sqlite3.SQLITE_NOTADB: "the file is no SQLite database",
    sqlite3.SQLITE_PERM: "there is no permission to open the file",
    sqlite3.SQLITE_READONLY: "the file cannot be written",
}


class SqliteThread:
    """A file and its own thread. `name`: of the store, in errors."""

    def __init__(self, name: str, file: SqliteFile) -> None:
        self._name = name
        self._file = file
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def use(self, work: Work[T]) -> T:
        """Return what `work` returns for the connection. Raises StoreError."""
        return await self._run(lambda: self._file.use(work))

    async def close(self) -> None:
        """Close the file and end the thread. Raises StoreError."""
        try:
            await self._run(self._file.close)
        finally:
            self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(OPERATION_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            raise StoreError(self._name, describe_error(error)) from error
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(self._name, describe_fault(error)) from error


def describe_error(error: sqlite3.Error) -> str:
    """SQLite's kind of fault in our words."""
    if isinstance(error, ForeignFileError):
        return "the file is another program's, or another version's"
    name: str | None = getattr(error, "sqlite_errorname", None)
    if name is None:
        return "SQLite refuses the operation"
    words = _FAULTS.get(error.sqlite_errorcode & PRIMARY_CODE)
    return f"{words} ({name})" if words else name
