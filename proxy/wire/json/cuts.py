"""Takes items out of a JSON array, or members out of an object, as bytes.

Law: with each item goes one comma. All other bytes stay.
"""

from collections.abc import Iterable, Iterator, Sequence

from proxy.wire.json.spans import Span

Edit = tuple[Span, bytes]
"""A range of bytes, and what replaces it."""


def find_cuts(text: bytes, spans: Sequence[Span], gone: Sequence[int]) -> Iterator[Span]:
    """What to take out: each item, and the comma after it; the comma before it if no item stays after it.

    spans: all items, in order. gone: the indexes of those that are taken out, in order.
    """
    removed = frozenset(gone)
    last = next((at for at in range(len(spans) - 1, -1, -1) if at not in removed), -1)
    for at in gone:
        comma = at if at < last else at - 1
        found = [] if comma < 0 else [text.index(b",", spans[comma].stop)]
        yield from sorted((spans[at], *(Span(place, place + 1) for place in found)))


def splice(text: bytes, edits: Iterable[Edit]) -> bytes:
    """The text with each range replaced. The ranges do not overlap."""
    pieces: list[bytes] = []
    stop = 0
    for span, new in sorted(edits):
        pieces += (text[stop : span.start], new)
        stop = span.stop
    return b"".join((*pieces, text[stop:]))


def cut(text: bytes, spans: Sequence[Span], gone: Sequence[int]) -> bytes:
    """The text without these items."""
    return splice(text, ((span, b"") for span in find_cuts(text, spans, gone)))
