"""Decodes the elements of a transcript, unit by unit, and goes on from what was decoded of an earlier body.

A unit is a run of elements that are decoded together, to one or more messages.

Law: what is remembered only saves time. The result is the same as if every element were decoded.
"""

from collections.abc import Callable, Iterable, Sequence

from proxy.wire.transcript.beginnings import Beginning, Decoded
from proxy.wire.transcript.known import Decode, KnownView
from proxy.wire.transcript.written_results import recognise
from rules.conversation import Message, Origin, whole_elements

FindUnits = Callable[[Sequence[bytes], int], Iterable[tuple[int, int]]]
"""Finds the units from the element with this index on, where a unit begins: the half-open range of each, in order.

If elements are added, only the last unit may change: it grows, or its last elements go to the unit after it, together
with at least one of those that were added.
"""


def decode_units(
    raws: tuple[bytes, ...],
    beginning: Beginning | None,
    known: KnownView,
    decode: Decode,
    find_units: FindUnits | None = None,
) -> Decoded:
    """Decode elements to messages, and note the result in `beginning` for the body that continues this one.

    Tool results that are written as text become tool results; see written_results.py.

    decode: decodes the JSON of a unit; its elements are separated by commas. Its errors are raised.
    find_units: None if each element is a unit.
    """
    recalled = recall(raws, beginning, known, find_units)
    start = recalled.elements
    if start == len(raws):
        return recalled
    units = [(at, at + 1) for at in range(start, len(raws))] if find_units is None else list(find_units(raws, start))
    new = join_units(raws, units) if find_units is not None else raws[start:]
    if beginning is not None and not beginning.is_grown:
        beginning.is_grown = 2 * known.count_unknown_bytes(new) < len(beginning.body)
    found = recognise(recalled.messages, new, known.decode(new, decode), known)
    decoded = Decoded(
        recalled.messages + tuple([message for messages in found for message in messages]),
        _place(recalled.origins, units, found),
    )
    if beginning is not None:
        beginning.decoded[known.number] = decoded
    return decoded


def recall(
    raws: Sequence[bytes], beginning: Beginning | None, known: KnownView, find_units: FindUnits | None = None
) -> Decoded:
    """What was decoded of the first elements for an earlier body, without a last unit that may have grown."""
    recalled = Decoded() if beginning is None else beginning.decoded.get(known.number, Decoded())
    if recalled.elements > len(raws):
        recalled = recalled.first(len(raws))
    messages, origins = recalled
    if find_units is None or not origins or origins[-1].stop == len(raws):
        return recalled
    kept = len(origins)
    while kept and origins[kept - 1].start == origins[-1].start:
        kept -= 1
    return Decoded(messages[:kept], origins[:kept])


def join_units(raws: Sequence[bytes], units: Iterable[tuple[int, int]]) -> list[bytes]:
    """The JSON of each unit, its elements separated by commas."""
    return [raws[start] if stop == start + 1 else b",".join(raws[start:stop]) for start, stop in units]


def _place(
    earlier: tuple[Origin, ...], units: Sequence[tuple[int, int]], found: Sequence[tuple[Message, ...]]
) -> tuple[Origin, ...]:
    """The position of each message. The tuple is shared if every element is one message."""
    number = len(earlier) + len(units)
    if units[-1][1] == number and set(map(len, found)) == {1} and earlier == whole_elements(len(earlier)):
        return whole_elements(number)
    return earlier + tuple(
        [Origin(*unit, part) for unit, messages in zip(units, found, strict=True) for part in range(len(messages))]
    )
