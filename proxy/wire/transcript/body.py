"""A body: the elements of its transcript, the members beside it, and one of these replaced.

Law: nothing in the transcript is decoded. A body that continues an earlier one is split exactly like any other body;
only its new part is read. What no rule has changed keeps its bytes. In a body that was written again, all bytes but the
replaced value stay: its first piece begins like the client's body, and its last piece ends like it, except for one
value that was replaced before.
"""

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from trimtab.proxy.wire.content import replace_texts
from trimtab.proxy.wire.json import (
    DECODE_ERRORS,
    Array,
    Span,
    count_parts,
    decode_members,
    describe_fault,
    find_array,
    find_member,
    has_more_parts,
    match_array,
    mend,
)
from trimtab.proxy.wire.transcript.beginnings import MIN_BYTES, Beginning, PrefixMatch
from trimtab.proxy.wire.transcript.elements import Placed, Shares
from trimtab.rules.conversation import Conversation, Decision, Origin
from trimtab.rules.results.work import Allowance

MAX_PARTS = 600_000
"""Maximum number of strings and commas between values in a request that is decoded. Chosen: far above real requests.
Measured: 15 million held the event loop for 24 seconds and took 2 GB."""
_STAND_IN = b'"%s"' % secrets.token_hex(16).encode()

B = TypeVar("B")


class UndecodableError(ValueError):
    """The body is not a request of this dialect. It is forwarded unchanged, so that the upstream decides about it."""


@dataclass(frozen=True, slots=True)
class Form(Generic[B]):
    """How a dialect writes its transcript: as the JSON array of one member of the body.

    key: the member's name, in quotes.
    decode: decodes the members of a body; the elements of the array stay JSON. Raises one of DECODE_ERRORS.
    list_elements: the elements of the array; none if the member has another form.
    list_long: the JSON of other members that may be long; each is skipped when the array is searched.
    """

    key: bytes
    decode: Callable[[bytes], B]
    list_elements: Callable[[B], Sequence[msgspec.Raw]]
    list_long: Callable[[B], Sequence[msgspec.Raw]]

    def list_raws(self, members: B) -> tuple[bytes, ...]:
        return tuple(map(bytes, self.list_elements(members)))


class Split(NamedTuple, Generic[B]):
    """A body's members, the bytes of its elements, and the beginning for later bodies; None if there can be none.

    If the body continues an earlier one, the array in `members` does not have the common elements.
    """

    members: B
    raws: tuple[bytes, ...]
    beginning: Beginning | None


def split_body(
    form: Form[B], body: bytes, match: PrefixMatch | None = None, *, max_chars: int | None = None
) -> Split[B]:
    """Split a body without decoding its elements. Raises UndecodableError.

    Lone surrogates, NaN, Infinity and a byte order mark are repaired for decoding, because most upstreams accept them;
    the elements keep their bytes. A repair takes up to 0.3 s per megabyte: raises LargeWorkError if the body needs one
    and is longer than `max_chars`.
    """
    split = None if match is None else _read_on(form, body, match)
    if split is not None:
        return split
    try:
        members = _decode(form, body)
    except UndecodableError:
        Allowance(max_chars).spend(len(body))
        clean = mend(body)
        members = _decode(form, clean)
        raws = form.list_raws(members)
        spans = find_elements(form, clean, raws).elements if raws else []
        return Split(members, tuple(body[span.start : span.stop] for span in spans), None)
    raws = form.list_raws(members)
    return Split(members, raws, _begin(form, body, members, raws))


def find_elements(form: Form[B], body: bytes, raws: Sequence[bytes]) -> Array:
    """The positions of the elements in a body. Raises UndecodableError if their key is written with escapes."""
    array = find_array(body, form.key, raws)
    if array is None:
        problem = f"the key {form.key.decode()} is written with escapes"
        raise UndecodableError(problem)
    return array


def _decode(form: Form[B], body: bytes) -> B:
    """The body's members. Raises UndecodableError."""
    if len(body) > MAX_PARTS and has_more_parts(body, MAX_PARTS):
        message = "more JSON values than a request has"
        raise UndecodableError(message)
    try:
        return form.decode(body)
    except DECODE_ERRORS as error:
        raise UndecodableError(describe_fault(error)) from error


def _begin(form: Form[B], body: bytes, members: B, raws: tuple[bytes, ...]) -> Beginning | None:
    """The beginning that a later body may continue; None if the body is short or its elements cannot be found."""
    if len(body) < MIN_BYTES:
        return None
    array = find_array(body, form.key, raws, list(map(bytes, form.list_long(members))))
    if array is None:
        return None
    behind = array.elements[-1].stop if raws else array.start
    return Beginning(body, array, raws, count_parts(body) - count_parts(body[behind:]))


def _read_on(form: Form[B], body: bytes, match: PrefixMatch) -> Split[B] | None:
    """Split a body that continues an earlier one; None if it must be read whole.

    One random string replaces the elements that both have in common, and the rest of the body is decoded unchanged.
    So the decoder judges the bytes before and after them as in the whole body. No client can guess that string.
    """
    earlier, start, stop = match.beginning, match.beginning.array.start, match.stop
    rest = body[stop:]
    parts = earlier.parts + count_parts(rest)
    if parts > MAX_PARTS:
        return None
    text = b"".join((body[:start], b"[", _STAND_IN, rest))
    try:
        members = form.decode(text)
    except DECODE_ERRORS:
        return None
    new = form.list_raws(members)
    array = match_array(text, start, new) if new[:1] == (_STAND_IN,) else None
    if array is None:
        return None
    shift = stop - array.elements[0].stop
    spans = [Span(span.start + shift, span.stop + shift) for span in array.elements[1:]]
    parts -= count_parts(text[array.elements[-1].stop :])
    beginning = Beginning(
        body,
        Array(start, array.stop + shift, [*earlier.array.elements[: match.number], *spans]),
        earlier.raws[: match.number] + new[1:],
        parts,
        {number: decoded.first(match.number) for number, decoded in earlier.decoded.items()},
        earlier.written and earlier.written.within(match.number),
        is_grown=True,
        noted={look: noted.first(match.number) for look, noted in earlier.noted.items()},
        counted={**earlier.counted},
    )
    return Split(members, beginning.raws, beginning)


class Edit(NamedTuple):
    """A new value, and the place of the old one in the client's body."""

    place: Span
    value: bytes

    @property
    def growth_bytes(self) -> int:
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


def find_flaw(name: str, raws: Sequence[bytes], decode: Callable[[bytes], object], error: Exception) -> str:
    """What is wrong with a transcript: the place of the first element that cannot be decoded, or else the error."""
    for at, raw in enumerate(raws):
        if not raw.lstrip().startswith(b"{"):
            return f"{name}[{at}] is no JSON object"
        try:
            decode(raw)
        except (UndecodableError, *DECODE_ERRORS) as found:
            return f"{name}[{at}]: {found if isinstance(found, UndecodableError) else describe_fault(found)}"
    return str(error) if isinstance(error, UndecodableError) else describe_fault(error)


OUTSIDE = Origin(0, 0)
"""The position of a message that is in no element: before all of them."""


class Asked(NamedTuple):
    """What the members of a body ask for; `max_tokens` is as it was decoded. The others are as in `Request`."""

    max_tokens: Any
    is_reasoning: bool = False
    asks_usage: bool = True


@dataclass(frozen=True, slots=True)
class Unsent:
    """What clients put into a request although the model must not or need not read it.

    local_items: types of items that belong to the client alone.
    tools: globs of the names of tools whose declarations are not sent unless the transcript calls them.
    nonces: whether texts are removed that only make each request different from the one before.
    """

    local_items: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    nonces: bool = False


@dataclass(frozen=True, slots=True)
class Adapted:
    """A changed body, in pieces, with what its provider must be told about the change.

    headers: to send in addition; their values are lists, to which the client's own values belong, too.
    """

    pieces: tuple[bytes, ...]
    headers: tuple[tuple[str, str], ...] = ()
    decisions: tuple[Decision, ...] = ()


def make_form(
    transcript: str, fixed: Iterable[str], others: Iterable[str] = (), *, long: Sequence[str], elements: Any = None
) -> Form[Any]:
    """The form of a body with these members. Those of `fixed` stay JSON; some of them may be `long`.

    elements: the type of the transcript if it is not always an array, and may be missing.
    """
    array = (transcript, list[msgspec.Raw]) if elements is None else (transcript, elements, None)
    values = [(name, Any, None) for name in ("model", "stream", *others)]
    body = msgspec.defstruct("Body", [array, *values, *((name, msgspec.Raw, msgspec.Raw()) for name in fixed)])

    def list_elements(members: Any) -> Sequence[msgspec.Raw]:
        listed = getattr(members, transcript)
        return listed if isinstance(listed, list) else ()

    return Form(
        b'"%b"' % transcript.encode(),
        msgspec.json.Decoder(body).decode,
        list_elements,
        lambda members: [getattr(members, name) for name in long],
    )


def take_off_outside(conversation: Conversation) -> Conversation:
    number = sum(1 for _ in takewhile(lambda origin: origin == OUTSIDE, conversation.origins))
    if not number:
        return conversation
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
    """The value of the message in no element with shortened texts; None if no rule has changed it.

    read_value: finds the value in the JSON of the message.
    """
    if after.origins[:1] != (OUTSIDE,) or not after.messages[0].edited:
        return None
    message = after.messages[0]
    return replace_texts(read_value(message.raw), iter(message.texts))


def find_edit(body: bytes, key: bytes, array: Span, value: bytes) -> Edit:
    """A new value for a member beside the transcript. Raises UndecodableError if its place is not found."""
    place = find_member(body, key, array)
    if place is None:
        problem = "a key is written with escapes"
        raise UndecodableError(problem)
    return Edit(place, value)
