"""Reads the members beside the transcript, and replaces the value of one in a body that was written again.

Law: all other bytes stay. The first piece of such a body begins like the client's body, and its last piece ends like
it, except for one value that was replaced before.
"""

from typing import NamedTuple

import msgspec

from proxy.wire.json.members import decode_members
from proxy.wire.json.spans import Span
from proxy.wire.transcript.beginnings import Beginning


class Edit(NamedTuple):
    """A new value, and the place of the old one in the client's body."""

    place: Span
    value: bytes

    @property
    def growth_bytes(self) -> int:
        """How much longer the new value is."""
        return len(self.value) - (self.place.stop - self.place.start)


def read_outside(body: bytes, beginning: Beginning | None) -> dict[str, msgspec.Raw]:
    """The members of a body; its transcript is empty if that saves reading it. Raises one of DECODE_ERRORS."""
    if beginning is not None:
        body = b"".join((body[: beginning.array.start], b"[]", body[beginning.array.stop :]))
    return decode_members(body)


def replace_outside(
    body: bytes, array_start: int, pieces: tuple[bytes, ...], edit: Edit, done: Edit | None = None
) -> tuple[bytes, ...]:
    """The pieces with a new value of one member.

    body: the client's. Its transcript begins at `array_start`. `done`: what was replaced in the pieces already.
    """
    (start, stop), value = edit
    grown = 0 if done is None or (done.place.start < array_start) != (start < array_start) else done.growth_bytes
    if start < array_start:
        first, shift = pieces[0], grown if done is not None and done.place.start < start else 0
        return (first[: start + shift] + value + first[stop + shift :], *pieces[1:])
    last, behind = pieces[-1], grown if done is not None and done.place.start > start else 0
    left = len(last) - len(body) - behind
    return (*pieces[:-1], last[: left + start] + value + last[left + stop :])
