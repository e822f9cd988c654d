"""What compactors remember from request to request, and how much memory each kind may take.

Law: bounded by bytes. Losing an entry costs time and changes nothing. What one tenant has sent is known in its own
share alone: else the time of an answer would tell another tenant of it.
"""

from copy import copy
from sys import getsizeof

from proxy.lru import BytesLRU
from proxy.wire.beginnings import Beginning, Beginnings, weigh_beginnings
from proxy.wire.known import FixedTokens, Known, weigh_element
from rules.conversation import Message
from rules.pipeline.transcript_state import StateKey, TranscriptState
from rules.results.work import ResultKey, Shortened
from rules.text.sketch import Sketch

UNUSED_SHARE = 1 / 8
"""Of most of these, what entries may have that nobody has asked for yet: a transcript that comes once goes soon."""
KNOWN_BYTES = 64 * 1024 * 1024
"""Decoded messages; one that was seen before is not decoded or counted again."""
CHECKSUM_BYTES = 40
"""A line's checksum in a tuple."""
RESULTS_BYTES = 32 * 1024 * 1024
"""What became of tool results, so that each is tidied and truncated once and not at every request."""
SKETCHES_BYTES = 32 * 1024 * 1024
"""What tells whether results are alike, by their texts. Most of these are the cached messages' own."""
DIFFS_BYTES = 8 * 1024 * 1024
BEGINNINGS_BYTES = 64 * 1024 * 1024
"""Bodies that were read last, whole: forty sessions of 400 kB. Of others the messages are known."""
STATES_BYTES = 144 * 1024 * 1024
"""What was worked out of whole transcripts, the ones seen last, so that a grown one costs its new messages only.

They hold the messages of these, nearly always the cached ones, which count again: twice, if results were compared.
"""


ALL_BYTES = (
    KNOWN_BYTES + KNOWN_BYTES // 8 + RESULTS_BYTES + SKETCHES_BYTES + DIFFS_BYTES + STATES_BYTES + BEGINNINGS_BYTES
)


def make_known() -> Known:
    """What codecs remember: nothing yet."""
    return Known(*_make_memos(1.0))


def _make_memos(scale: float) -> "tuple[_Elements, _Fixed]":
    most_bytes = int(scale * KNOWN_BYTES)
    return BytesLRU(most_bytes, weigh_element, unused_share=2 * UNUSED_SHARE), BytesLRU(
        most_bytes // 8, lambda key, _: sum(map(len, key[1]))
    )


_Elements = BytesLRU[tuple[int, bytes], tuple[Message, ...]]
_Fixed = BytesLRU[tuple[int, tuple[bytes, ...]], FixedTokens]


class Caches:
    """What compactors remember, within bounds that they share; `scale` is what they have of the usual ones."""

    def __init__(self, scale: float = 1.0) -> None:
        self.elements, self.fixed = _make_memos(scale)
        self.known = Known(self.elements, self.fixed)
        self.results: BytesLRU[ResultKey, Shortened] = BytesLRU(
            int(scale * RESULTS_BYTES), _weigh_result, unused_share=2 * UNUSED_SHARE
        )
        self.sketches: BytesLRU[str, Sketch] = BytesLRU(
            int(scale * SKETCHES_BYTES),
            lambda text, sketch: getsizeof(text) + CHECKSUM_BYTES * len(sketch.lines),
            unused_share=2 * UNUSED_SHARE,
        )
        self.diffs: BytesLRU[tuple[bytes, bytes], str] = BytesLRU(
            int(scale * DIFFS_BYTES), lambda key, diff: sum(map(len, key)) + getsizeof(diff)
        )
        self.states: BytesLRU[StateKey, TranscriptState] = BytesLRU(
            int(scale * STATES_BYTES), _weigh_state, unused_share=UNUSED_SHARE, is_used=lambda state: state.is_grown
        )
        self.begun: BytesLRU[tuple[str, bytes], tuple[Beginning, ...]] = BytesLRU(
            int(scale * BEGINNINGS_BYTES),
            weigh_beginnings,
            unused_share=UNUSED_SHARE,
            is_used=lambda alike: any(each.is_grown for each in alike),
        )
        self.beginnings = Beginnings(self.begun, int(scale * BEGINNINGS_BYTES) // 2)

    def share(self) -> "Caches":
        """The same for another tenant: nothing is known in it yet, and the bounds are those of all shares together."""
        made = copy(self)
        made.elements, made.fixed = self.elements.share(), self.fixed.share()
        made.known = Known(made.elements, made.fixed)
        made.results, made.sketches = self.results.share(), self.sketches.share()
        made.diffs, made.states = self.diffs.share(), self.states.share()
        made.begun = self.begun.share()
        made.beginnings = Beginnings(made.begun, self.beginnings.most_bytes)
        return made

    def close(self) -> None:
        """Forget everything, and keep nothing from now on."""
        for memo in (self.elements, self.fixed, self.results, self.sketches, self.diffs, self.states, self.begun):
            memo.close()


def _weigh_result(key: ResultKey, shortened: Shortened) -> int:
    """The new texts, and those in the key."""
    _, _, treatment, said, _, name, arguments = key
    texts = (name, arguments, treatment, *shortened.texts, *(said if isinstance(said, tuple) else ()))
    return sum(map(getsizeof, texts))


def _weigh_state(key: StateKey, state: TranscriptState) -> int:
    return sum(map(getsizeof, (key, key[-1], *key[-1]))) + state.size_bytes
