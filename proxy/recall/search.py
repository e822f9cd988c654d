"""What a model gets for a query: the best passages of what its prompt does not have of the client's transcript.

The passages are in an index in memory: SQLite's full text search, ranked by BM25.

Law: what is found depends only on the passages and their order, and on the query. A passage is quoted, and nothing in
it looks like a text of ours. Nothing is written to a disk, and nothing outlives the object. A name with signs in it (a
path, an id) is found only as it is written, as neighbouring words in their order.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from trimtab.rules.conversation import Conversation, CountTokens
from trimtab.rules.pipeline.appended import Passage, find_fitting, read_passages
from trimtab.rules.summary.names import find_names
from trimtab.rules.text.markers import QUOTE_END, QUOTE_START, START

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


MAX_TERMS = 64
"""Words of a query that count. Chosen: above the longest useful query."""
MAX_FOUND = 200
"""Passages that are looked at, best first. Chosen: more than fit any budget."""
NOTHING_REMOVED = f"{START}nothing was removed from this conversation: all of it is above]"
NOTHING_FOUND = f"{START}nothing in the removed part of this conversation has any of these words]"
NO_ROOM = f"{START}no room is left in the context window for what was found]"


class Lookup(msgspec.Struct):
    """The search in one request's transcript; its index is made once, when it is first needed.

    original: the client's transcript. forwarded: what the model has of it.
    """

    original: Conversation
    forwarded: Conversation
    count: CountTokens
    _passages: list[Passage] = msgspec.field(default_factory=list)
    _archive: Archive | None = None

    def _removed(self) -> Iterator[int]:
        whole = [message for message in self.forwarded.messages if message.saved_tokens <= 0]
        same, raws = {id(message) for message in whole}, {message.raw for message in whole if message.raw}
        for at, message in enumerate(self.original.messages):
            if id(message) not in same and message.raw not in raws:
                yield at

    def find(self, query: str, first: int, last: int | None, max_tokens: int) -> str:
        """The best passages for a query from the messages [first, last), as the text of the tool's result."""
        if self._archive is None:
            self._archive = Archive()
            self._passages = [each for at in self._removed() for each in read_passages(at, self.original.messages[at])]
            self._archive.add([each.text for each in self._passages])
        if not self._passages:
            return NOTHING_REMOVED
        terms = [*sorted(find_names(query)), *query.split()][:MAX_TERMS]
        found = (self._passages[each] for each in self._archive.search(terms, most=MAX_FOUND, is_rare=False))
        fitting = [each for each in found if first <= each.at and (last is None or each.at < last)]
        return self._write(fitting, max_tokens) if fitting else NOTHING_FOUND

    def _write(self, found: Sequence[Passage], max_tokens: int) -> str:
        """As many passages as fit, in the order of the transcript. A passage that does not fit is left out."""
        fitting = find_fitting(found, max_tokens - self.count(f"{QUOTE_START}\n{QUOTE_END}"), self.count)
        if not fitting:
            return NO_ROOM
        written = "\n".join(passage.write() for passage in sorted(found[rank] for rank in fitting))
        return f"{QUOTE_START}\n{written}\n{QUOTE_END}"
