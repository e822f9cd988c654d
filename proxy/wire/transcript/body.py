"""A body: the elements of its transcript, what is kept of earlier bodies to go on from, and one member replaced.

An agent's next request repeats its last one and adds to it. So of a body that continues an earlier one, only the new
part is read: the bytes up to the end of the last common element were read before and mean the same. An element is an
item of the JSON array that holds the transcript.

Law: nothing in the transcript is decoded. What is kept only saves time and never changes a result; what was forgotten
is read again. What no rule has changed keeps its bytes. In a body that was written again, all bytes but the replaced
value stay: its first piece begins like the client's body, and its last piece ends like it, except for one value that
was replaced before.
"""

import secrets
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import msgspec

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
from trimtab.proxy.wire.transcript.elements import Written
from trimtab.rules.conversation import Decision, Message, Origin
from trimtab.rules.results.work import Allowance, Cache
from trimtab.rules.tokens.scripts import Weights
from trimtab.rules.tokens.sections import Counted

MIN_BYTES = 16 * 1024  # A shorter body is always read whole. Chosen: that takes about 20 microseconds.
HEAD_BYTES = 4 * 1024  # Earlier bodies are looked up by these first bytes. Chosen: they tell agents apart.
MAX_ALIKE = 64  # Bodies kept with the same HEAD_BYTES: sessions and branches. Chosen: bounds the search.
MAX_COMPARED = 4  # Element by element, the newest, if none is continued whole. Chosen: bounds the work.
COPIES = 4  # Times that a body's bytes are held: the body, its elements, their texts, and the forwarded body
ELEMENT_BYTES = 250  # Memory of an element, in bytes, in addition to its characters. An estimate.

T = TypeVar("T")


class Decoded(msgspec.Struct, frozen=True):
    """Messages in the order of the elements that they come from, and the position of each."""

    messages: tuple[Message, ...] = ()
    origins: tuple[Origin, ...] = ()

    @property
    def elements(self) -> int:
        return self.origins[-1].stop if self.origins else 0

    def first(self, elements: int) -> "Decoded":
        if elements >= self.elements:
            return self
        number = bisect_right(self.origins, elements, key=lambda origin: origin.stop)
        return Decoded(self.messages[:number], self.origins[:number])


class Noted(msgspec.Struct, frozen=True):
    """What was found in some of the first `elements` of a body, with their numbers."""

    elements: int = 0
    found: tuple[tuple[int, Any], ...] = ()

    def first(self, elements: int) -> "Noted":
        return Noted(min(self.elements, elements), tuple(each for each in self.found if each[0] < elements))


class CutScale(NamedTuple):
    """By what scale of a model (models/records.py) a session was cut, and how many elements it had before that."""

    ratio: float
    weights: Weights | None
    elements: int


class KeptBody(msgspec.Struct, eq=False):
    """A body that was split into its elements, and what was derived from them.

    parts: upper bound for the strings and commas up to the end of the last element.
    decoded: for each way of counting, the messages of the first elements.
    written: what was last forwarded in place of the transcript.
    noted: what was looked for in the elements, by the function that has looked.
    counted: what the sections of its messages are added up from, by who has counted; also of an earlier body. And the
        same of the messages that were sent in their place.
    cut_by: by what scale the session was cut, by model (models/records.py).
    is_grown: the body continues an earlier one, or most of its elements were known. So later ones may continue it.
    """

    body: bytes
    array: Array
    raws: tuple[bytes, ...]
    parts: int
    decoded: dict[int, Decoded] = msgspec.field(default_factory=dict)
    written: Written | None = None
    is_grown: bool = False
    noted: dict[Callable[[bytes], Any], Noted] = msgspec.field(default_factory=dict)
    counted: dict[tuple[int, tuple[str, ...], bool], Counted] = msgspec.field(default_factory=dict)
    cut_by: dict[str, CutScale] = msgspec.field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return COPIES * len(self.body) + ELEMENT_BYTES * len(self.raws)

    def holds(self, body: bytes, number: int) -> bool:
        """Whether another body begins with the same bytes, up to the end of the first `number` elements, at least 1."""
        return body.startswith(memoryview(self.body)[: self.array.elements[number - 1].stop])

    def count_common(self, body: bytes) -> int:
        """How many of these elements another body begins with. Found by bisection."""
        low, high = 0, len(self.raws)
        while low < high:
            middle = (low + high + 1) // 2
            if self.holds(body, middle):
                low = middle
            else:
                high = middle - 1
        return low


def find_transcript(kept_body: KeptBody | None) -> Span | None:
    """The position of the transcript in a body; None if it is not known."""
    return None if kept_body is None else Span(kept_body.array.start, kept_body.array.stop)


class PrefixMatch(msgspec.Struct, frozen=True):
    """A body shares its first `number` elements with an earlier one; they end at `stop`."""

    kept_body: KeptBody
    number: int

    @property
    def stop(self) -> int:
        return self.kept_body.array.elements[self.number - 1].stop

    @property
    def is_whole(self) -> bool:
        return self.number == len(self.kept_body.raws)


Kept = Cache[tuple[str, bytes], tuple[KeptBody, ...]]  # By dialect and first bytes, newest first


class KeptBodies:
    """The newest bodies of a client. Those with the same first bytes take at most `most_bytes` together.

    Those that no other has continued get a quarter of that, so that one-time requests do not push out sessions.
    """

    def __init__(self, kept: Kept, most_bytes: int) -> None:
        self._kept = kept
        self.most_bytes = most_bytes

    def find(self, dialect: str, body: bytes) -> PrefixMatch | None:
        """The earlier body that shares the longest beginning with this one; None if none shares an element."""
        alike = self._kept.get((dialect, body[:HEAD_BYTES])) or ()
        # The longest that the body continues is best.
        for each in sorted(alike, key=attrgetter("array.stop"), reverse=True):
            if each.holds(body, len(each.raws)):
                return PrefixMatch(each, len(each.raws))
        common = [PrefixMatch(each, each.count_common(body)) for each in alike[:MAX_COMPARED]]
        best = max(common, key=lambda match: match.stop if match.number else 0, default=None)
        return best if best is not None and best.number else None

    def keep(self, dialect: str, kept_body: KeptBody, match: PrefixMatch | None) -> None:
        """Keep a body. It replaces those that it continues, among them that of `match`."""
        if not kept_body.raws:
            return
        key = dialect, kept_body.body[:HEAD_BYTES]
        gone = match.kept_body if match is not None and match.is_whole else None
        alike, left_bytes, left_new_bytes = [kept_body], self.most_bytes - kept_body.size_bytes, self.most_bytes // 4
        for each in self._kept.get(key) or ():
            if each is gone or each is kept_body or each.holds(kept_body.body, len(each.raws)):
                continue
            left_bytes -= each.size_bytes
            left_new_bytes -= 0 if each.is_grown else each.size_bytes
            if left_bytes >= 0 and (each.is_grown or left_new_bytes >= 0):
                alike.append(each)
        self._kept[key] = tuple(alike[:MAX_ALIKE])


def weigh_kept_bodies(key: tuple[str, bytes], kept: Iterable[KeptBody]) -> int:
    """Memory that the bodies of one key take, in bytes, roughly."""
    size = len(key[1])
    for each in kept:
        size += each.size_bytes
    return size


def look_through(
    raws: Sequence[bytes], kept_body: KeptBody | None, look: Callable[[bytes], T]
) -> tuple[tuple[int, T], ...]:
    """The elements in which `look` finds something, by number. Each is looked at once, by its bytes alone."""
    known = Noted() if kept_body is None else kept_body.noted.get(look, Noted())
    new = ((at, look(raws[at])) for at in range(known.elements, len(raws)))
    found = (*known.found, *(each for each in new if each[1]))
    if kept_body is not None:
        kept_body.noted[look] = Noted(len(raws), found)
    return found


def find_all(
    body: bytes, raws: Sequence[bytes], kept_body: KeptBody | None, find: Callable[[bytes], list[bytes]]
) -> list[bytes]:
    """All that is found in a body. What was read before is not read again.

    find: searches a part; it finds nothing beyond the end of an element. Measured: to search 400 kB takes as long as
    all else.
    """
    if kept_body is None:
        return find(body)
    start, stop = kept_body.array.start, kept_body.array.stop
    within = look_through(raws, kept_body, find)
    return [*find(body[:start]), *chain(*(found for _, found in within)), *find(body[stop:])]


MAX_PARTS = 600_000
"""Maximum number of strings and commas between values in a request that is decoded. Chosen: far above real requests.
Measured: 15 million held the event loop for 24 seconds and took 2 GB."""
_STAND_IN = b'"%s"' % secrets.token_hex(16).encode()


class UndecodableError(ValueError):
    """The body is not a request of this dialect. It is forwarded unchanged, so that the upstream decides about it."""


class Form:
    """How a dialect writes its transcript: as the array of member `key`, in quotes.

    decode: of the members of a body; the elements of the array stay JSON. Raises one of DECODE_ERRORS.
    """

    def __init__(
        self,
        transcript: str,
        fixed: Iterable[str],
        others: Iterable[str] = (),
        *,
        long: Sequence[str],
        elements: Any = None,
    ) -> None:
        """`long`: members that are skipped in a search. `elements`: the transcript's type, if not always an array."""
        array = (transcript, list[msgspec.Raw]) if elements is None else (transcript, elements, None)
        values = [(name, Any, None) for name in ("model", "stream", *others)]
        body = msgspec.defstruct("Body", [array, *values, *((name, msgspec.Raw, msgspec.Raw()) for name in fixed)])
        self.key = b'"%b"' % transcript.encode()
        self.decode: Callable[[bytes], Any] = msgspec.json.Decoder(body).decode
        self._transcript, self._long = transcript, long

    def list_raws(self, members: Any) -> tuple[bytes, ...]:
        """The elements of the array; none if the member has another form."""
        listed = getattr(members, self._transcript)
        return tuple(map(bytes, listed)) if isinstance(listed, list) else ()

    def list_long(self, members: Any) -> list[bytes]:
        return [bytes(getattr(members, name)) for name in self._long]


class Split(msgspec.Struct, frozen=True):
    """A body's members, its elements, what is kept. If it continues a body, `members` has only the new elements."""

    members: Any
    raws: tuple[bytes, ...]
    kept_body: KeptBody | None


def split_body(form: Form, body: bytes, match: PrefixMatch | None = None, *, max_chars: int | None = None) -> Split:
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


def find_elements(form: Form, body: bytes, raws: Sequence[bytes]) -> Array:
    """The positions of the elements in a body. Raises UndecodableError if their key is written with escapes."""
    array = find_array(body, form.key, raws)
    if array is None:
        raise UndecodableError(f"the key {form.key.decode()} is written with escapes")
    return array


def _decode(form: Form, body: bytes) -> Any:
    """The body's members. Raises UndecodableError."""
    if len(body) > MAX_PARTS and has_more_parts(body, MAX_PARTS):
        raise UndecodableError("more JSON values than a request has")
    try:
        return form.decode(body)
    except DECODE_ERRORS as error:
        raise UndecodableError(describe_fault(error)) from error


def _begin(form: Form, body: bytes, members: Any, raws: tuple[bytes, ...]) -> KeptBody | None:
    """What is kept of a body for later ones; None if it is short or its elements cannot be found."""
    if len(body) < MIN_BYTES:
        return None
    array = find_array(body, form.key, raws, form.list_long(members))
    if array is None:
        return None
    behind = array.elements[-1].stop if raws else array.start
    return KeptBody(body, array, raws, count_parts(body) - count_parts(body[behind:]))


def _read_on(form: Form, body: bytes, match: PrefixMatch) -> Split | None:
    """Split a body that continues an earlier one; None if it must be read whole.

    One random string replaces the elements that both have in common, and the rest of the body is decoded unchanged.
    So the decoder judges the bytes before and after them as in the whole body. No client can guess that string.
    """
    earlier, start, stop = match.kept_body, match.kept_body.array.start, match.stop
    rest = body[stop:]
    if earlier.parts + len(rest) > MAX_PARTS and earlier.parts + count_parts(rest) > MAX_PARTS:
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
    parts = earlier.parts + count_parts(text[array.elements[0].stop : array.elements[-1].stop])
    kept_body = KeptBody(
        body,
        Array(start, array.stop + shift, [*earlier.array.elements[: match.number], *spans]),
        earlier.raws[: match.number] + new[1:],
        parts,
        {number: decoded.first(match.number) for number, decoded in earlier.decoded.items()},
        earlier.written and earlier.written.within(match.number),
        is_grown=True,
        noted={look: noted.first(match.number) for look, noted in earlier.noted.items()} if earlier.noted else {},
        counted={**earlier.counted},
        cut_by={model: scale for model, scale in earlier.cut_by.items() if scale.elements <= match.number},
    )
    return Split(members, kept_body.raws, kept_body)


class Edit(NamedTuple):
    """A new value, and the place of the old one in the client's body."""

    place: Span
    value: bytes


def read_outside(body: bytes, kept_body: KeptBody | None) -> dict[str, msgspec.Raw]:
    """The members of a body; its transcript is empty if that saves reading it. Raises one of DECODE_ERRORS."""
    if kept_body is not None:
        body = b"".join((body[: kept_body.array.start], b"[]", body[kept_body.array.stop :]))
    return decode_members(body)


def replace_outside(
    body: bytes, array_start: int, pieces: tuple[bytes, ...], edit: Edit, done: Edit | None = None
) -> tuple[bytes, ...]:
    """The pieces with a new value of one member. `array_start`: of the client's transcript. `done`: replaced before."""
    start, stop, value = edit.place.start, edit.place.stop, edit.value
    grown = 0
    if done is not None and (done.place.start < array_start) == (start < array_start):
        grown = len(done.value) - (done.place.stop - done.place.start)
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


class Unsent(msgspec.Struct, frozen=True):
    """What the model must not or need not read. local_items: types of items that belong to the client alone.

    tools: globs of those sent only if the transcript calls them. nonces: what only makes each request different goes.
    """

    local_items: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    nonces: bool = False


class Adapted(msgspec.Struct, frozen=True):
    """A changed body, in pieces. headers: to send in addition; values of lists, beside the client's own."""

    pieces: tuple[bytes, ...]
    headers: tuple[tuple[str, str], ...] = ()
    decisions: tuple[Decision, ...] = ()


def find_edit(body: bytes, key: bytes, array: Span, value: bytes) -> Edit:
    """A new value for a member beside the transcript. Raises UndecodableError if its place is not found."""
    place = find_member(body, key, array)
    if place is None:
        raise UndecodableError("a key is written with escapes")
    return Edit(place, value)
