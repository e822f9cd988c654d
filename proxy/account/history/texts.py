"""The text of the newest requests, packed, and what was erased: in a database that is never the store.

Law: bounded by bytes. It is in memory, or in the private folder in which several workers share their metrics. What was
erased does not come back, even if it is still being written.
"""

import os
import sqlite3
import zlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from trimtab.proxy.account.outcome import OutcomeText
from trimtab.proxy.store.sqlite import DamagedError, is_broken, writing
from trimtab.rules.pipeline.changes import Change

ENTRY_BYTES = 1000  # What an entry takes beside its packed text. Chosen: the row and the sentences, generously.
_TABLES = """
CREATE TABLE IF NOT EXISTS private.texts (request_id TEXT PRIMARY KEY, session TEXT NOT NULL, sentences BLOB NOT NULL,
  pack BLOB NOT NULL, size_bytes INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS private.texts_by_session ON texts (session);
CREATE INDEX IF NOT EXISTS private.texts_by_size ON texts (size_bytes);
CREATE TABLE IF NOT EXISTS private.titles (session TEXT PRIMARY KEY, title TEXT NOT NULL, header TEXT NOT NULL,
  folded TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS private.notes (worker INTEGER PRIMARY KEY, notes BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS private.erased (session TEXT NOT NULL, text_only INTEGER NOT NULL, at REAL NOT NULL,
  PRIMARY KEY (session, text_only));
"""
MAX_TITLES = 10_000  # Of sessions, the newest. Chosen: as many as there may be requests; they take some megabytes.
_encoder = msgspec.json.Encoder()
_head_decoder, _change_decoder = msgspec.json.Decoder(OutcomeText), msgspec.json.Decoder(Change)


class Packed(msgspec.Struct, frozen=True):
    """The text of one request. `sentences` are at hand; `pack` has everything."""

    sentences: tuple[str, ...]
    pack: bytes

    @property
    def size_bytes(self) -> int:
        return ENTRY_BYTES + len(self.pack) + sum(map(len, self.sentences))


class Title(NamedTuple):
    """What a session is called: the beginning of its first user text, if texts are kept; and what headers call it."""

    text: str
    header: str


def pack_text(text: OutcomeText) -> Packed:
    # A line for each change: decoding lets no other thread run, so it is done in pieces.
    lines = _encoder.encode_lines([replace(text, changes=()), *text.changes])
    return Packed(text.sentences, zlib.compress(lines, 1))


def unpack_text(pack: bytes) -> OutcomeText:
    """As `pack_text` got it. Slow."""
    head, *changes = zlib.decompress(pack).splitlines()
    return replace(_head_decoder.decode(head), changes=tuple(map(_change_decoder.decode, changes)))


def attach(connection: sqlite3.Connection, place: str) -> None:
    """Attach the database of texts, a file or `:memory:`, as `private`. A new one takes the place of a damaged file."""
    try:
        _attach(connection, place)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if not is_broken(error):
            raise
        with suppress(sqlite3.Error):
            connection.execute("DETACH private")
        for suffix in ("", "-wal", "-shm"):
            Path(place + suffix).unlink(missing_ok=True)
        _attach(connection, place)


def _attach(connection: sqlite3.Connection, place: str) -> None:
    if place != ":memory:":
        with suppress(FileExistsError):
            os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    connection.execute("ATTACH ? AS private", (place,))
    if connection.execute("PRAGMA private.quick_check(1)").fetchone() != ("ok",):  # it is new, or small, mostly
        raise DamagedError
    connection.execute("PRAGMA private.journal_mode = WAL")
    connection.execute("PRAGMA private.synchronous = OFF")  # nobody reads it after the processes
    for statement in _TABLES.split(";"):
        connection.execute(statement)


def keep_text(
    connection: sqlite3.Connection, request_id: str, session: str, at: float, packed: Packed, max_bytes: int
) -> None:
    """Keep the text of a request that ended at a time, unless its session was erased since; drop the oldest ones."""
    sentences = _encoder.encode(packed.sentences)
    with writing(connection):
        connection.execute(
            "INSERT OR REPLACE INTO private.texts SELECT ?, ?, ?, ?, ?"
            " WHERE NOT EXISTS (SELECT 1 FROM private.erased WHERE session = ? AND at >= ?)",
            (request_id, session, sentences, packed.pack, packed.size_bytes, session, at),
        )
        (total_bytes,) = connection.execute("SELECT COALESCE(SUM(size_bytes), 0) FROM private.texts").fetchone()
        while total_bytes > max_bytes:
            oldest = "SELECT rowid FROM private.texts ORDER BY rowid LIMIT 1"
            statement = f"DELETE FROM private.texts WHERE rowid = ({oldest}) RETURNING size_bytes"  # noqa: S608 - our own
            total_bytes -= connection.execute(statement).fetchone()[0]


def keep_title(connection: sqlite3.Connection, session: str, at: float, title: Title) -> None:
    """Keep what a session is called, unless it was erased since the request that ended at this time."""
    with connection:
        connection.execute(
            "INSERT OR REPLACE INTO private.titles SELECT ?, ?, ?, ?"
            " WHERE NOT EXISTS (SELECT 1 FROM private.erased WHERE session = ? AND at >= ?)",
            (session, *title, " ".join(title).casefold(), session, at),
        )
        newest = "SELECT MAX(rowid) FROM private.titles"
        connection.execute(f"DELETE FROM private.titles WHERE rowid <= ({newest}) - ?", (MAX_TITLES,))  # noqa: S608 - our own


def find_text(connection: sqlite3.Connection, request_id: str) -> bytes | None:
    row: tuple[bytes] | None = connection.execute(
        "SELECT pack FROM private.texts WHERE request_id = ?", (request_id,)
    ).fetchone()
    return None if row is None else row[0]


def erase_texts(connection: sqlite3.Connection) -> None:
    for table in ("texts", "titles"):
        connection.execute(f"DELETE FROM private.{table}")  # noqa: S608 - our own names


def write_notes(connection: sqlite3.Connection, worker: int, notes: bytes) -> None:
    connection.execute("INSERT OR REPLACE INTO private.notes VALUES (?, ?)", (worker, notes))


def read_notes(connection: sqlite3.Connection, but: int) -> list[bytes]:
    return [notes for (notes,) in connection.execute("SELECT notes FROM private.notes WHERE worker != ?", (but,))]
