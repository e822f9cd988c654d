"""What compactors remember between requests, and how much memory each kind may take.

Law: bounded by bytes. Losing an entry costs time and changes no result. Each tenant has its own share: otherwise the
time of an answer would show what other tenants have sent.

All bounds below are chosen: together they fit `limits.max_memory_bytes` at its default (proxy/memory.py).
"""

from collections.abc import Callable
from copy import copy
from sys import getsizeof
from typing import Any

from trimtab.proxy.lru import BytesLRU
from trimtab.proxy.wire.tools import Listed, ListKey
from trimtab.proxy.wire.transcript.body import KeptBodies, KeptBody, weigh_kept_bodies
from trimtab.proxy.wire.transcript.decoding import FixedTokens, Known, weigh_element
from trimtab.rules.conversation import CountTokens, Message
from trimtab.rules.pipeline.plan import StateKey
from trimtab.rules.pipeline.transcript_state import TranscriptState
from trimtab.rules.results.work import ResultKey, Shortened, Sketch
from trimtab.rules.tokens.sections import SHORT_CHARS, FindMarks, Marks, find_marks

UNUSED_SHARE = 1 / 8
"""Share of most caches for entries that were never used again. Chosen: an entry that is never used again is evicted
soon."""
KNOWN_BYTES = 64 * 1024 * 1024
"""Decoded messages. A message that is known is not decoded or counted again."""
CHECKSUM_BYTES = 40
"""Memory of one line's checksum in a tuple, in CPython."""
RESULTS_BYTES = 32 * 1024 * 1024
"""Tool results after tidying and truncation, so that each is treated once and not at every request."""
SKETCHES_BYTES = 32 * 1024 * 1024
"""Sketches of texts, by which similar results are found. Most of these texts belong to cached messages."""
DIFFS_BYTES = 8 * 1024 * 1024
"""Diffs between similar results."""
MARKS_BYTES = 4 * 1024 * 1024
"""Long texts of users and systems, with the memory and the summaries in them."""
KEPT_BODIES_BYTES = 64 * 1024 * 1024
"""The newest bodies, whole: enough for some forty sessions of 400 kB. Of other bodies only the messages are known."""
STATES_BYTES = 144 * 1024 * 1024
"""States of the newest transcripts, so that a grown transcript costs only its new messages.

A state holds the messages of its transcript. The cache of decoded messages holds most of them too, and both caches
count their bytes.
"""


TOOL_LISTS_BYTES = 8 * 1024 * 1024
"""Lists of tools, and which of their declarations may be left out."""
TOOL_BYTES = 400
"""Memory of one declaration in such a list: its place and its names. Measured: 303 bytes in CPython, rounded up."""
ALL_BYTES = (
    TOOL_LISTS_BYTES
    + KNOWN_BYTES
    + KNOWN_BYTES // 8
    + RESULTS_BYTES
    + SKETCHES_BYTES
    + DIFFS_BYTES
    + STATES_BYTES
    + MARKS_BYTES
    + KEPT_BODIES_BYTES
)


def make_known() -> Known:
    return Known(*_make_memos())


def _make_memos() -> "tuple[_Elements, _Fixed]":
    return BytesLRU(KNOWN_BYTES, weigh_element, unused_share=2 * UNUSED_SHARE), BytesLRU(
        KNOWN_BYTES // 8, lambda key, _: sum(map(len, key[1]))
    )


MarksKey = tuple[int, tuple[str, ...], str]
"""The counter, the memory tags, the text."""
_Elements = BytesLRU[tuple[int, bytes], tuple[Message, ...]]
_Fixed = BytesLRU[tuple[int, tuple[bytes, ...]], FixedTokens]


class Caches:
    """The caches of compactors, with common bounds. `scale`: their share of the usual bounds."""

    def __init__(self, scale: float = 1.0) -> None:
        self.elements, self.fixed = _make_memos()
        self.known = Known(self.elements, self.fixed)
        self.results: BytesLRU[ResultKey, Shortened] = BytesLRU(
            RESULTS_BYTES, _weigh_result, unused_share=2 * UNUSED_SHARE
        )
        self.sketches: BytesLRU[str, Sketch] = BytesLRU(
            SKETCHES_BYTES,
            lambda text, sketch: getsizeof(text) + CHECKSUM_BYTES * len(sketch.lines),
            unused_share=2 * UNUSED_SHARE,
        )
        self.diffs: BytesLRU[tuple[bytes, bytes], str] = BytesLRU(
            DIFFS_BYTES, lambda key, diff: sum(map(len, key)) + getsizeof(diff)
        )
        self.states: BytesLRU[StateKey, TranscriptState] = BytesLRU(
            STATES_BYTES, _weigh_state, unused_share=UNUSED_SHARE, is_used=lambda state: state.is_grown
        )
        self.marks: BytesLRU[MarksKey, Marks] = BytesLRU(
            MARKS_BYTES, lambda key, _: getsizeof(key[2]), unused_share=2 * UNUSED_SHARE
        )
        self.begun: BytesLRU[tuple[str, bytes], tuple[KeptBody, ...]] = BytesLRU(
            KEPT_BODIES_BYTES,
            weigh_kept_bodies,
            unused_share=UNUSED_SHARE,
            is_used=lambda alike: any(each.is_grown for each in alike),
        )
        self.kept_bodies = KeptBodies(self.begun, KEPT_BODIES_BYTES // 2)
        self.tool_lists: BytesLRU[ListKey, Listed] = BytesLRU(TOOL_LISTS_BYTES, _weigh_tools)
        self.scale(scale)

    def share(self) -> "Caches":
        """Make empty caches for another tenant, within the same common bounds."""
        made = copy(self)
        made.elements, made.fixed = self.elements.share(), self.fixed.share()
        made.known = Known(made.elements, made.fixed)
        made.results, made.sketches = self.results.share(), self.sketches.share()
        made.diffs, made.states = self.diffs.share(), self.states.share()
        made.begun, made.tool_lists, made.marks = self.begun.share(), self.tool_lists.share(), self.marks.share()
        made.kept_bodies = KeptBodies(made.begun, self.kept_bodies.most_bytes)
        return made

    def scale(self, scale: float) -> None:
        """Bound all shares by this share of the usual bounds, at once."""
        self.kept_bodies.most_bytes = int(scale * KEPT_BODIES_BYTES) // 2
        for memo in self._memos:
            memo.scale(scale)

    def close(self) -> None:
        for memo in self._memos:
            memo.close()

    @property
    def _memos(self) -> "tuple[BytesLRU[Any, Any], ...]":
        found = (self.results, self.sketches, self.diffs, self.states, self.marks)
        return (self.elements, self.fixed, *found, self.begun, self.tool_lists)

    def marks_by(
        self, tags: tuple[str, ...], count: CountTokens, number: int, spend: Callable[[int], None]
    ) -> FindMarks:
        """A `find_marks` for these tags that remembers long texts.

        number: identifies `count` among all users of these caches.
        spend: called with the characters of a long text that is not known, before they are read; it may raise.
        """
        marks = self.marks

        def find(text: str) -> Marks:
            if len(text) < SHORT_CHARS:
                return find_marks(text, tags, count)
            key = number, tags, text
            found = marks.get(key)
            if found is None:
                spend(len(text))
                found = marks[key] = find_marks(text, tags, count)
            return found

        return find


def _weigh_result(key: ResultKey, shortened: Shortened) -> int:
    _, _, treatment, said, _, name, arguments = key
    texts = (name, arguments, treatment, *shortened.texts, *(said if isinstance(said, tuple) else ()))
    return sum(map(getsizeof, texts))


def _weigh_tools(key: ListKey, listed: Listed) -> int:
    return len(key[0]) + TOOL_BYTES * sum([1 + len(tool.inner) for tool in listed.tools])


def _weigh_state(key: StateKey, state: TranscriptState) -> int:
    _, _, _, _, digests = key
    return sum(map(getsizeof, (key, digests, *digests))) + state.size_bytes
