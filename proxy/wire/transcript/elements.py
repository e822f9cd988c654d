"""Writes a changed transcript back into its body, as the elements of a JSON array.

Law: an element that no rule touched keeps its bytes. So do the bytes between two such elements that are still next to
each other.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from sys import maxsize

import msgspec
from msgspec import structs

from trimtab.proxy.wire.content import replace_texts
from trimtab.proxy.wire.json import Array
from trimtab.rules.conversation import Conversation, Message, Origin

Placed = tuple[Message, Origin | None]  # A message and its origin in the request; None if a rule made the message
WriteElement = Callable[[Sequence[Placed]], bytes]
"""The JSON of an element that holds these messages; never called for one that is unchanged."""
Shares = Callable[[Message, Message], bool]
"""Whether two neighbouring messages must be in one element of the JSON array. One of them has changed."""


class _Group(msgspec.Struct, frozen=True):
    """Messages [first, last), in place of elements [start, stop); -1 if a rule made them. is_kept: copied unchanged."""

    first: int
    last: int
    start: int
    stop: int
    is_kept: bool


CHANGING_ELEMENTS = 3
"""At the end, that the next body may change. Chosen: clients move cache markers off their last two user messages."""
MAX_PIECES = 16  # Of an earlier body; more are joined. Chosen: so each byte is copied a few times in a session.


class Written(msgspec.Struct, frozen=True):
    """A forwarded body up to the end of its last element, in pieces, and the transcript in it.

    last: number of the client's elements up to the last one that was written.
    stop: the same if the last element written is the client's; -1 if a rule made it.
    before: the same without the last elements, for a body that changes these; None if nothing is before them.
    """

    messages: tuple[Message, ...]
    origins: tuple[Origin | None, ...]
    pieces: tuple[bytes, ...]
    last: int
    stop: int
    before: "Written | None" = None

    def within(self, elements: int) -> "Written | None":
        """What was written of the first `elements` of the client's elements; None if that is not known."""
        if self.last > elements:
            return self.before and self.before.within(elements)
        return self if self.before is None else structs.replace(self, before=None)

    def is_beginning_of(self, after: Conversation) -> bool:
        """Whether the transcript `after`, of a body that continues this one, begins with these messages."""
        number = len(self.messages)
        return self.messages == after.messages[:number] and self.origins == after.origins[:number]


class Source(msgspec.Struct, frozen=True):
    """A body, the `array` in it that holds a transcript, and that transcript."""

    body: bytes
    array: Array
    transcript: Conversation


def write_elements(
    source: Source,
    after: Conversation,
    write: WriteElement,
    shares: Shares | None = None,
    *,
    written: Written | None = None,
) -> tuple[Written, bytes]:
    """Write the source's body with the transcript `after`.

    Returns the body up to the last element, and the bytes after it. `written` is the result for an earlier body, if
    this body begins with all of its elements. It is continued if its messages are the beginning of `after`.
    """
    if written is not None and not (written.is_beginning_of(after) and _ends_there(written, after, shares)):
        written = None
    begun = 0 if written is None else len(written.messages)
    grouped = _group(source.transcript, after, begun)
    groups = [*_coalesce(grouped if shares is None else _join(grouped, after.messages, shares))]
    body, array = source.body, source.array
    spans = array.elements
    lasting = len(spans) - CHANGING_ELEMENTS
    # The groups up to the last one that ends within the first elements, and those after it.
    at = next((at for at in range(len(groups), 0, -1) if 0 <= groups[at - 1].stop <= lasting), 0)
    early, late = groups[:at], groups[at:]
    before = _go_on(source, early, after, write, written) if early else written
    kept = None if before is None else before.within(lasting)
    made = _go_on(source, late, after, write, before, kept)
    return made, body[spans[-1].stop :] if made.stop == len(spans) > 0 else b"]" + body[array.stop :]


def _ends_there(written: Written, after: Conversation, shares: Shares | None) -> bool:
    """Whether the next message of `after` begins an element, so that the last one written stays as it is."""
    at = len(written.messages)
    if shares is None or at == 0 or at == len(after.messages):
        return True
    origin = after.origins[at]
    is_apart = origin is not None and 0 <= written.stop <= origin.start
    return is_apart or not shares(after.messages[at - 1], after.messages[at])


def _group(before: Conversation, after: Conversation, first: int) -> Iterator[_Group]:
    """The messages from `first` on, those of one element together."""
    messages, origins = after.messages, after.origins
    number = len(messages)
    # Nothing is asked of the elements before those that are left to group, which are few in a long session.
    least = min([origin.start for origin in origins[first:] if origin is not None], default=maxsize)
    last_parts: dict[int, int] = {}
    for origin in reversed(before.origins):
        if origin is None or origin.start < least:
            break
        if origin.part:
            last_parts.setdefault(origin.start, origin.part)
    while first < number:
        origin = origins[first]
        last = first + 1
        if origin is None:
            yield _Group(first, last, -1, -1, is_kept=False)
        else:
            start, stop, _ = origin
            last, is_kept = first, True
            while last < number and (other := origins[last]) is not None and other.start == start:
                is_kept = is_kept and other.part == last - first and not messages[last].edited
                last += 1
            is_kept = is_kept and last - first == last_parts.get(start, 0) + 1  # all are there, in their order
            yield _Group(first, last, start, stop, is_kept)
        first = last


def _coalesce(groups: Iterator[_Group]) -> Iterator[_Group]:
    """Join unchanged neighbours into one group, which is copied in one piece."""
    run: _Group | None = None
    for group in groups:
        if run is not None and run.is_kept and group.is_kept and group.start == run.stop:
            run = _Group(run.first, group.last, run.start, group.stop, is_kept=True)
            continue
        if run is not None:
            yield run
        run = group
    if run is not None:
        yield run


def _join(groups: Iterator[_Group], messages: Sequence[Message], shares: Shares) -> Iterator[_Group]:
    """Join messages that a rule made with the neighbours with which they must share an element."""
    joined: _Group | None = None
    for group in groups:
        if joined is None:
            joined = group
            continue
        is_apart = joined.start >= 0 and joined.stop <= group.start
        if is_apart or not shares(messages[joined.last - 1], messages[group.first]):
            yield joined
            joined = group
        elif joined.start < 0:
            joined = _Group(joined.first, group.last, group.start, group.stop, is_kept=False)
        else:
            joined = _Group(joined.first, group.last, joined.start, max(joined.stop, group.stop), is_kept=False)
    if joined is not None:
        yield joined


def _go_on(
    source: Source,
    groups: Sequence[_Group],
    after: Conversation,
    write: WriteElement,
    written: Written | None,
    before: Written | None = None,
) -> Written:
    """Write the groups as the continuation of `written`; from the beginning of the body if that is None."""
    body, array = source.body, source.array
    spans = array.elements
    if written is None:
        opening = body[array.start : spans[0].start] if groups and groups[0].start == 0 else b"["
        pieces, last, stop = [body[: array.start], opening], 0, -1
    else:
        pieces, last, stop = [], written.last, written.stop
    is_first = written is None or not written.messages
    for group in groups:
        if not is_first:
            follows = last > 0 and group.start == last
            pieces.append(body[spans[last - 1].stop : spans[last].start] if follows else b",")
        if group.is_kept:
            pieces.append(body[spans[group.start].start : spans[group.stop - 1].stop])
        else:
            pairs = zip(after.messages[group.first : group.last], after.origins[group.first : group.last], strict=True)
            pieces.append(write(list(pairs)))
        last, stop, is_first = last if group.start < 0 else group.stop, group.stop, False
    new = (b"".join(pieces),) if pieces else ()
    earlier = () if written is None else written.pieces
    if len(earlier) >= MAX_PIECES:
        earlier = (b"".join(earlier),)
    number = groups[-1].last if groups else len(written.messages) if written is not None else 0
    return Written(after.messages[:number], after.origins[:number], (*earlier, *new), last, stop, before)


OUTSIDE = Origin(0, 0)  # The position of a message that is in no element: before all of them


def take_off_outside(conversation: Conversation) -> Conversation:
    if conversation.origins[:1] != (OUTSIDE,):
        return conversation
    number = sum(1 for _ in takewhile(lambda origin: origin == OUTSIDE, conversation.origins))
    return replace(conversation, messages=conversation.messages[number:], origins=conversation.origins[number:])


def group_elements(placed: Sequence[Placed], shares: Shares | None) -> list[list[Placed]]:
    """The messages of each element. A message that a rule made joins a neighbour with which it must share one."""
    groups: list[list[Placed]] = []
    for message, origin in placed:
        before, start = groups[-1][-1] if groups else (None, None)
        is_apart = origin is not None and start is not None and origin.start != start.start
        if before is None or is_apart or shares is None or not shares(before, message):
            groups.append([])
        groups[-1].append((message, origin))
    return groups


def write_outside(after: Conversation, read_value: Callable[[bytes], bytes]) -> bytes | None:
    """The value of the message in no element with shortened texts; None if unchanged. read_value: finds it in JSON."""
    if after.origins[:1] != (OUTSIDE,) or not after.messages[0].edited:
        return None
    message = after.messages[0]
    return replace_texts(read_value(message.raw), iter(message.texts))
