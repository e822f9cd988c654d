"""A request's transcript as the elements of a JSON array: where messages came from, and how an altered one is written.

Law: an element that no rule touched goes out as the bytes it came in, and so does what stood between two of them that
are still neighbours.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from proxy.wire.json.spans import Array
from rules.conversation import Conversation, Message, Origin

Placed = tuple[Message, Origin | None]
"""A message, and where the request says it; None for one that a rule made."""
WriteElement = Callable[[Sequence[Placed]], bytes]
"""The JSON of an element that holds these messages; never called for one that is unchanged."""
Shares = Callable[[Message, Message], bool]
"""Whether two neighbours, of which one has changed, must stand in one element."""


class _Group(NamedTuple):
    """Messages [first, last) that stand in one element, or in several that are as they came: [start, stop).

    Made messages have no elements: their `start` is -1.
    """

    first: int
    last: int
    start: int
    stop: int
    is_kept: bool


MAX_PIECES = 16
"""Of what was written before: then they are joined, so that each byte is copied a few times in a session."""


@dataclass(frozen=True, slots=True)
class Written:
    """A body from its beginning to the end of its transcript's last element, in `pieces`, and that transcript.

    `last` is where the last element that came from the client stops; `stop` the same of the very last element, -1 if
    that is a made one.
    """

    messages: tuple[Message, ...]
    origins: tuple[Origin | None, ...]
    pieces: tuple[bytes, ...]
    last: int
    stop: int

    def is_beginning_of(self, after: Conversation) -> bool:
        """Whether a transcript of a body that goes on from this one's begins with these messages."""
        number = len(self.messages)
        return self.messages == after.messages[:number] and self.origins == after.origins[:number]


class Source(NamedTuple):
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
    """The source's body with the messages `after` in the place of its transcript, up to the last of them; and its end.

    `written` is what was made of an earlier body, all of whose elements this one begins with. It is gone on from if it
    is the beginning of `after`.
    """
    if written is not None and (shares is not None or not written.is_beginning_of(after)):
        written = None
    begun = 0 if written is None else len(written.messages)
    groups = _group(source.transcript, after, begun, in_runs=shares is None)
    if shares is not None:
        groups = _coalesce(_join(groups, after.messages, shares))
    made = _go_on(source, list(groups), after, write, written)
    body, array, _ = source
    spans = array.elements
    return made, body[spans[-1].stop :] if made.stop == len(spans) > 0 else b"]" + body[array.stop :]


def _group(before: Conversation, after: Conversation, first: int, *, in_runs: bool) -> Iterator[_Group]:
    """The messages from `first` on by their elements; `in_runs` joins unchanged neighbours of one message each."""
    last_parts = {origin.start: origin.part for origin in before.origins if origin is not None and origin.part}
    messages, origins = after.messages, after.origins
    number = len(messages)
    while first < number:
        origin = origins[first]
        last = first + 1
        if origin is None:
            yield _Group(first, last, -1, -1, is_kept=False)
        else:
            start, stop, _ = origin
            while last < number and (other := origins[last]) is not None and other.start == start:
                last += 1
            is_kept = _is_whole(origins[first:last], last_parts.get(start, 0))
            is_kept = is_kept and not any(message.edited for message in messages[first:last])
            if is_kept and in_runs:
                last, stop = _end_run(after, last, stop, last_parts)
            yield _Group(first, last, start, stop, is_kept)
        first = last


def _end_run(after: Conversation, at: int, stop: int, last_parts: Mapping[int, int]) -> tuple[int, int]:
    """Where a run ends that has reached message `at` and element `stop`: most of a long transcript is one."""
    messages, origins = after.messages, after.origins
    while at < len(origins) and (origin := origins[at]) is not None:
        if origin.start != stop or stop in last_parts or messages[at].edited:
            break
        stop = origin.stop
        at += 1
    return at, stop


def _is_whole(origins: Sequence[Origin | None], last_part: int) -> bool:
    """Whether all parts of an element are there, in their order."""
    return [origin.part for origin in origins if origin is not None] == list(range(last_part + 1))


def _coalesce(groups: Iterator[_Group]) -> Iterator[_Group]:
    """Neighbours that are as they came, as one group: they are copied in one piece."""
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
    """Made messages joined with the neighbours that they share an element with."""
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
    source: Source, groups: Sequence[_Group], after: Conversation, write: WriteElement, written: Written | None
) -> Written:
    """What was written before, and these groups behind it."""
    body, array, _ = source
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
    return Written(after.messages, after.origins, (*earlier, *new), last, stop)
