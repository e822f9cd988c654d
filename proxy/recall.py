"""Recall: a request gets the tool to search what was cut of it, its transcript what was found, a model the answer.

Law of the search: what is found depends only on the transcript and the query. It is in an index in memory: SQLite's
full text search, ranked by BM25. Nothing is written to a disk, and nothing outlives the exchange that asked. A passage
is quoted, and nothing in it looks like a text of ours. A name with signs in it (a path, an id) is found only as it is
written, as neighbouring words in their order.

Law of the tool: the declaration is the first of the client's tools, always with the same bytes. A request that forces a
call does not get it, nor one for several answers or for one that is fetched later, nor one without tools unless that is
wanted. All other bytes stay. A server whose chat template leaves out tools does not get it; its prompt is the same with
it.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from trimtab.proxy.wire.answers.recall import NAME
from trimtab.proxy.wire.codec import Codec, Counting, Request
from trimtab.proxy.wire.json import DECODE_ERRORS, Span, find_member, splice
from trimtab.proxy.wire.transcript.body import (
    PrefixMatch,
    UndecodableError,
    find_elements,
    find_transcript,
    read_outside,
)
from trimtab.rules.conversation import Conversation, CountTokens, Decision, Role, count_leading
from trimtab.rules.pipeline.appended import RECALL, Passage, Pin, find_fitting, read_passages
from trimtab.rules.pipeline.plan import Plan
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
        """The numbers of the best passages with one of these terms, best first. is_rare: leave out frequent terms."""
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


MAX_TERMS = 64  # Words of a query that count. Chosen: above the longest useful query.
MAX_FOUND = 200  # Passages that are looked at, best first. Chosen: more than fit any budget.
NOTHING_REMOVED = f"{START}nothing was removed from this conversation: all of it is above]"
NOTHING_FOUND = f"{START}nothing in the removed part of this conversation has any of these words]"
NO_ROOM = f"{START}no room is left in the context window for what was found]"


class Lookup(msgspec.Struct):
    """The search in one request's transcript; its index is made when needed. forwarded: what the model has of it."""

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


RECALL_TOOL = "recall_tool"  # Name of the decision
_NAME = f'"{NAME}"'.encode()


def name_outcome(decisions: Iterable[Decision]) -> str:
    """What was done to a request, by the decisions about it: RECALL if all of them only add what is fetched back."""
    rules = {decision.rule for decision in decisions}
    return "unchanged" if not rules else RECALL if rules <= {RECALL, RECALL_TOOL} else "compacted"


class Place(NamedTuple):
    """Where a text stands: the hash of the model's answer, and the client's last call, whose id alone may repeat."""

    before: bytes
    call_id: str


def declare(
    request: Request,
    counting: Counting,
    find_match: Callable[[str, bytes], PrefixMatch | None],
    *,
    without_tools: bool = False,
) -> Request:
    """The request with the tool, or itself. without_tools: also if it has no others. Raises UndecodableError."""
    if counting.costs.drops_tools:
        return request
    codec = request.codec
    body = _splice_tool(request, without_tools=without_tools)
    if body is request.body:
        return request
    left = codec.read(body, find_match(codec.name, body))
    tokens = codec.count_outside(left, counting).tools_tokens - codec.count_outside(request, counting).tools_tokens
    return request.reduce_to(left, (Decision(RECALL_TOOL, "the tool to search what was cut", 0, tokens, 0, 0),))


def _splice_tool(request: Request, *, without_tools: bool) -> bytes:
    codec, body = request.codec, request.body
    tools = next(iter(codec.list_tools(request)), None)
    if not codec.recall_tool or tools is None or _NAME in tools.raw:
        return body
    transcript = find_transcript(request.kept_body)
    try:
        request.find_array()  # the answers to calls must find their place
        is_forced = bool(tools.choice) and codec.forces_call("tool_choice", msgspec.Raw(tools.choice))
        if is_forced or not _gets_one_answer(request):
            return body
        place = find_member(body, tools.key, *([] if transcript is None else [transcript]))
    except (*DECODE_ERRORS, UndecodableError):
        return body
    if place is None:
        start = body.index(b"{") + 1
        added = tools.key + b":[" + codec.recall_tool + b"],"
        return splice(body, [(Span(start, start), added)]) if without_tools and not tools.raw else body
    is_empty = tools.raw[1:].lstrip()[:1] in {b"]", b""}
    if tools.raw[:1] != b"[" or body[place.start : place.stop] != tools.raw or (is_empty and not without_tools):
        return body
    start = place.start + 1
    return splice(body, [(Span(start, start), codec.recall_tool + (b"" if is_empty else b","))])


def _gets_one_answer(request: Request) -> bool:
    lone = request.codec.one_answer
    members = read_outside(request.body, request.kept_body) if lone else {}
    return all(bytes(members[key]) in values for key, values in lone.items() if key in members)


def append(codec: Codec, pieces: Iterable[bytes], elements: Sequence[bytes]) -> bytes:
    body = b"".join(pieces)
    request = codec.read(body)
    end = find_elements(codec.form, body, request.raws).stop - 1
    comma = b"," if request.raws else b""
    return splice(body, [(Span(end, end), comma + b",".join(elements))])


def find_head(plan: Plan) -> bytes:
    """The hash of how a session begins: up to its first message that is not the system's."""
    messages = plan.conversation.messages
    return plan.hashes[min(count_leading(messages) + 1, len(messages))]


def find_answers(plan: Plan, find: Callable[[Place], str | None]) -> list[tuple[int, str]]:
    """What was found, each with the message behind which it stands; the newest first. find: None for nothing."""
    found: list[tuple[int, str]] = []
    asked = len(plan.conversation.messages)
    for at in range(asked - 1, -1, -1):
        message = plan.conversation.messages[at]
        if message.role is not Role.TOOL or not message.answers or not message.texts:
            continue
        asked = min(asked, at)
        while asked and plan.conversation.messages[asked].role is not Role.ASSISTANT:
            asked -= 1
        line = find(Place(plan.hashes[asked], message.answers))
        if line is not None:
            found.append((at, line))
    return found


def add_answers(plan: Plan, found: Sequence[tuple[int, str]], count: CountTokens) -> Plan:
    """The plan with what `find_answers` has found. Of more than fits, the newest."""
    pins: list[Pin] = []
    left_tokens = plan.fitting - plan.reserved_tokens
    for at, line in found:
        if (tokens := count(f"\n{line}")) <= left_tokens:
            left_tokens -= tokens
            pins.insert(0, Pin(at, line, tokens))
    return replace(plan, recalled=(*plan.recalled, *pins), is_empty=False) if pins else plan
