"""An index of passages in memory: SQLite's full text search, ranked by BM25.

Law: what is found depends only on the passages and their order. Nothing is written to a disk, and nothing outlives the
object. A name with signs in it (a path, an id) is found only as it is written, as neighbouring words in their order.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence

RARE_SHARE = 0.02
RARE_PASSAGES = 8
"""A term that stands in more passages, and in more than this share of them, is no name but a common word. Chosen: what
an agent works on is in dozens of passages; what it has to be reminded of, in a few."""
_CREATE = "CREATE VIRTUAL TABLE passages USING fts5(text, content='', tokenize='unicode61')"
_FIND = "SELECT rowid FROM passages WHERE passages MATCH ? ORDER BY rank, rowid LIMIT ?"


class Archive:
    """Passages that can be searched, numbered from 0 on. One thread at a time may use it."""

    def __init__(self) -> None:
        self._db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._db.execute(_CREATE)
        self._number = 0

    def __del__(self) -> None:
        self._db.close()

    def add(self, passages: Sequence[str]) -> None:
        rows = ((number, _clean(text)) for number, text in enumerate(passages, self._number + 1))
        self._db.execute("BEGIN")
        self._db.executemany("INSERT INTO passages(rowid, text) VALUES (?, ?)", rows)
        self._db.execute("COMMIT")
        self._number += len(passages)

    def search(self, terms: Iterable[str], *, most: int, is_rare: bool = True) -> list[int]:
        """The numbers of the best passages that have one of these terms, best first.

        is_rare: leave out terms that stand in many passages.
        """
        limit = max(RARE_PASSAGES, int(RARE_SHARE * self._number)) if is_rare else self._number
        asked = [phrase for phrase in map(_quote, terms) if 0 < self._count(phrase, limit + 1) <= limit]
        return list(self._find(" OR ".join(asked), most)) if asked else []

    def _count(self, phrase: str, most: int) -> int:
        return sum(1 for _ in self._db.execute("SELECT 1 FROM passages WHERE passages MATCH ? LIMIT ?", (phrase, most)))

    def _find(self, query: str, most: int) -> Iterator[int]:
        for (row,) in self._db.execute(_FIND, (query, most)):
            yield row - 1


def _quote(term: str) -> str:
    """A term as a phrase of the query language; words of other scripts and signs lose their meaning in it."""
    inside = _clean(term).replace('"', '""').replace("\0", " ")
    return f'"{inside}"'


def _clean(text: str) -> str:
    """The text without halves of surrogate pairs, which SQLite cannot store."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
