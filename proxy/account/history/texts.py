"""The text of the newest requests, packed.

Law: bounded by bytes, in memory only. What was erased does not come back, even if it is still being written.
"""

import zlib
from collections import Counter, OrderedDict
from dataclasses import dataclass, replace

import msgspec

from proxy.account.history.event import EventText
from rules.pipeline.changes import Change

MAX_EXPECTED = 1000
"""Texts that are still being written. Chosen: more than the writer's queue holds."""
_encoder = msgspec.json.Encoder()
_head_decoder, _change_decoder = msgspec.json.Decoder(EventText), msgspec.json.Decoder(Change)
ENTRY_BYTES = 1000
"""What an entry takes beside its packed text. Chosen: the objects and the sentences, generously."""


@dataclass(frozen=True, slots=True)
class Packed:
    """The text of one request. `sentences` are at hand; `pack` has everything."""

    session: str
    sentences: tuple[str, ...]
    pack: bytes

    @property
    def size_bytes(self) -> int:
        """The memory that it takes."""
        return ENTRY_BYTES + len(self.pack) + sum(map(len, self.sentences))


def pack_text(session: str, text: EventText) -> Packed:
    """Pack a text; slow. It must not hold surrogates."""
    # A line for each change: decoding lets no other thread run, so it is done in pieces.
    lines = _encoder.encode_lines([replace(text, changes=()), *text.changes])
    return Packed(session, text.sentences, zlib.compress(lines, 1))


def unpack_text(packed: Packed) -> EventText:
    """The text of `pack_text`; slow."""
    head, *changes = zlib.decompress(packed.pack).splitlines()
    return replace(_head_decoder.decode(head), changes=tuple(map(_change_decoder.decode, changes)))


class Texts:
    """The packed texts by the id of their request, oldest first; at most `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._total_bytes = 0
        self._kept: OrderedDict[str, Packed] = OrderedDict()
        self._expected: OrderedDict[str, str] = OrderedDict()
        self._by_session: Counter[str] = Counter()

    def expect(self, request_id: str, session: str) -> None:
        """Announce a text: without this, or after it was erased, it is not kept."""
        self._expected[request_id] = session
        if len(self._expected) > MAX_EXPECTED:
            self._expected.popitem(last=False)

    def keep(self, request_id: str, packed: Packed) -> None:
        """Keep a text that is expected; drop the oldest ones beyond the bound."""
        if self._expected.pop(request_id, None) is None:
            return
        self._drop(request_id)
        self._kept[request_id] = packed
        self._total_bytes += packed.size_bytes
        self._by_session[packed.session] += 1
        while self._total_bytes > self._max_bytes:
            self._drop(next(iter(self._kept)))

    def find(self, request_id: str) -> Packed | None:
        """The text of a request; None if it is not kept."""
        return self._kept.get(request_id)

    def has(self, session: str) -> bool:
        """Whether text of a session is kept."""
        return session in self._by_session

    def erase(self, session: str | None = None) -> None:
        """Erase the texts of a session, or all."""
        for request_id in [each for each, packed in self._kept.items() if session in {None, packed.session}]:
            self._drop(request_id)
        for request_id in [each for each, whose in self._expected.items() if session in {None, whose}]:
            del self._expected[request_id]

    def _drop(self, request_id: str) -> None:
        packed = self._kept.pop(request_id, None)
        if packed is None:
            return
        self._total_bytes -= packed.size_bytes
        self._by_session[packed.session] -= 1
        if not self._by_session[packed.session]:
            del self._by_session[packed.session]
