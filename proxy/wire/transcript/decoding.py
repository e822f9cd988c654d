"""Decodes the elements of a transcript, unit by unit, and goes on from what was decoded of an earlier body.

A unit is a run of elements that are decoded together, to one or more messages. Units are known by their bytes, in
caches that the caller provides.

Tool results that a client has written as text are recognised, in messages of the user or of the system. Frameworks
write them for models without tool calls, and for results whose call is gone. The text begins with a header that names
the tool. These headers are recognised, in upper or lower case; arguments in parentheses may follow the name:

    [tool: NAME]
    [tool result: NAME]      also with an underscore or a hyphen
    [tool result for NAME]   the same
    [tool NAME result]
    EXECUTION RESULT of [NAME]:

Law: what is remembered only saves time. The result is the same as if every element were decoded. Only a message after
the first one of the user or the assistant is recognised as a result, so never a leading system message or the task
statement. What comes later changes nothing. The size and the digest of the message stay.

Source: the code of public agents; the last header is that of OpenHands. Headers of Cline and Roo Code (`[NAME for
'...'] Result:`) are left alone, because the user's own words follow some of them.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import count
from operator import attrgetter
from typing import NamedTuple

from trimtab.proxy.lru import BytesLRU
from trimtab.proxy.wire.transcript.body import Decoded, KeptBody
from trimtab.rules.conversation import WRITTEN_ROLES, Message, Origin, Role, whole_elements
from trimtab.rules.results.work import weigh_message
from trimtab.rules.text.markers import KEEP, asks_to_keep
from trimtab.rules.tokens.scripts import NO_CHARS, Chars

Decode = Callable[[bytes], tuple[Message, ...]]


class FixedTokens(NamedTuple):
    """Tokens of the response format and the prompt's frame, and of the tools. chars: of both, by kind."""

    format_tokens: int
    tools_tokens: int
    has_functions: bool = False
    chars: Chars = NO_CHARS


class KnownView:
    __slots__ = ("_elements", "_first", "_fixed", "number")

    def __init__(self, elements: "Elements", fixed: "Fixed", number: int) -> None:
        self._first: tuple[Message, int] | None = None
        self._elements = elements
        self._fixed = fixed
        self.number = number

    def count_unknown_bytes(
        self, raws: Sequence[bytes], fixed: tuple[bytes, ...] = (), *, fixed_factor: int = 1, element_bytes: int = 0
    ) -> int:
        """The bytes of the elements that are not known, each with `element_bytes` more.

        `fixed`, if not known, counts `fixed_factor` times.
        """
        number = self.number
        unknown = 0
        for _, raw in self._elements.find_missing([(number, raw) for raw in raws]):
            unknown += element_bytes + len(raw)
        fixed_bytes = sum(map(len, fixed)) * fixed_factor
        return unknown + (fixed_bytes * len(self._fixed.find_missing([(number, fixed)])) if fixed_bytes else 0)

    def decode(self, raws: Sequence[bytes], decode: Decode) -> list[tuple[Message, ...]]:
        """The messages of each element, the same objects for equal ones. Raises the errors of `decode`."""
        number = self.number
        found = self._elements.get_many([(number, raw) for raw in raws])
        decoded = [messages for messages in found if messages]
        if len(decoded) == len(raws):
            return decoded  # fast path: every element is known
        new: dict[bytes, tuple[Message, ...]] = {}
        decoded = []
        for raw, known in zip(raws, found, strict=True):
            messages = new.get(raw) if known is None else known
            if messages is None:
                messages = decode(raw)
                if _KEEP in raw:
                    messages = tuple([replace(message, keep=_asks_to_keep(message)) for message in messages])
                new[raw] = self._elements[number, raw] = messages
            decoded.append(messages)
        return decoded

    def count_fixed(
        self, raws: tuple[bytes, ...], count_fixed: Callable[[tuple[bytes, ...]], FixedTokens]
    ) -> FixedTokens:
        """The tokens of what is outside the messages, by `count_fixed` if they are not known."""
        fixed = self._fixed.get((self.number, raws))
        if fixed is None:
            fixed = self._fixed[self.number, raws] = count_fixed(raws)
        return fixed

    def count_first(self, first: Message, count_first: Callable[[Message], int]) -> int:
        """What `count_first` says of a transcript's first message; the newest one is remembered."""
        known = self._first
        if known is None or known[0] is not first:
            known = self._first = first, count_first(first)
        return known[1]


_KEEP = KEEP.encode()


def _asks_to_keep(message: Message) -> bool:
    """Of what tools and the model say, only the ends can ask that."""
    at_ends = message.role in {Role.TOOL, Role.ASSISTANT}
    return any(asks_to_keep(text, at_ends=at_ends) for text in message.texts)


class Known:
    """The messages of elements, and the tokens of what is outside them, for each dialect and way of counting."""

    def __init__(self, elements: "Elements", fixed: "Fixed") -> None:
        self._elements = elements
        self._fixed = fixed
        self._views: dict[tuple[str, int], KnownView] = {}
        self._numbers = count()

    def view(self, dialect: str, number: int) -> KnownView:
        view = self._views.get((dialect, number))
        if view is None:
            made = KnownView(self._elements, self._fixed, next(self._numbers))
            view = self._views.setdefault((dialect, number), made)
        return view


Elements = BytesLRU[tuple[int, bytes], tuple[Message, ...]]
Fixed = BytesLRU[tuple[int, tuple[bytes, ...]], FixedTokens]


def weigh_element(key: tuple[int, bytes], messages: tuple[Message, ...]) -> int:
    """Memory that a cached element takes, in bytes, roughly. Most are one message, which holds the key's bytes."""
    size = 0 if len(messages) == 1 and messages[0].raw is key[1] else len(key[1])
    for message in messages:
        size += weigh_message(message)
    return size


HEADER_CHARS = 64
"""A longer one is text, and may be shortened. Chosen: the longest name of a tool, in short form, and a placeholder."""
_NAME = r"\w[\w.:/-]{0,99}"
_CALL = rf"[`'\"]?({_NAME}?)[`'\"]?(?:\([^\n]{{0,400}}?\))?"
_HEADERS = (
    rf"\[tool:[ ]{{0,2}}{_CALL}\]",
    rf"\[tool[ _-]result:[ ]{{0,2}}{_CALL}\]",
    rf"\[tool[ _-]result for {_CALL}\]",
    rf"\[tool {_CALL} result\]",
    rf"EXECUTION RESULT of \[{_CALL}\]",
)
_HEADER = re.compile(rf"(?:{'|'.join(_HEADERS)})(?!\():?\s{{0,4}}", re.IGNORECASE | re.ASCII)
_STARTS = frozenset({"[", "E", "e"})  # by far the most messages begin otherwise
_KEY = b"written:"  # Begins the key of a recognised unit, so that it is not taken for the same unit elsewhere


def recognise(
    earlier: Sequence[Message], raws: Sequence[bytes], units: Sequence[tuple[Message, ...]], known: KnownView
) -> Sequence[tuple[Message, ...]]:
    """The messages of new units, with written results as tool results. earlier: those before. raws: of the units."""
    candidates = [
        at
        for at, messages in enumerate(units)
        for message in messages
        if message.texts and message.texts[0][:1] in _STARTS and _is_candidate(message)
    ]
    if not candidates:
        return units
    speaking = (at for at, messages in enumerate(units) if any(map(_speaks, messages)))
    first = -1 if any(map(_speaks, earlier)) else next(speaking, len(units))
    plain = {_KEY + raws[at]: units[at] for at in candidates if at > first}
    keys = list(plain)
    found = dict(zip(keys, known.decode(keys, lambda key: tuple(map(_as_result, plain[key]))), strict=True))
    return [found.get(_KEY + raws[at], messages) if at > first else messages for at, messages in enumerate(units)]


def _speaks(message: Message) -> bool:
    return message.role is not Role.SYSTEM


def _is_candidate(message: Message) -> bool:
    """Whether each text of a message begins with a header. More than one may, if the client writes one per result."""
    texts = message.texts
    return bool(texts) and message.role_name in WRITTEN_ROLES and all(map(_HEADER.match, texts))


def _as_result(message: Message) -> Message:
    found = _HEADER.match(message.texts[0]) if _is_candidate(message) else None
    if found is None:
        return message
    text, *others = message.texts
    header, rest = found.group(), text[found.end() :]
    result = replace(message, role=Role.TOOL, wire_role=message.role_name, name=next(filter(None, found.groups())))
    if len(header) > HEADER_CHARS or not rest.strip():
        return result
    return replace(result, header=header, texts=(rest, *others))


_NOTHING = Decoded()
FindUnits = Callable[[Sequence[bytes], int], Iterable[tuple[int, int]]]
"""Finds the units from the element with this index on, where a unit begins: the half-open range of each, in order.

If elements are added, only the last unit may change: it grows, or its last elements go to the unit after it, together
with at least one of those that were added.
"""


def decode_units(
    raws: tuple[bytes, ...],
    kept_body: KeptBody | None,
    known: KnownView,
    decode: Decode,
    find_units: FindUnits | None = None,
) -> Decoded:
    """Decode elements to messages, and note the result in `kept_body` for the body that continues this one.

    Tool results that are written as text become tool results.

    decode: decodes the JSON of a unit; its elements are separated by commas. Its errors are raised.
    find_units: None if each element is a unit.
    """
    recalled = _NOTHING if kept_body is None else recall(raws, kept_body, known, find_units)
    start = recalled.elements
    if start == len(raws):
        return recalled
    units = [(at, at + 1) for at in range(start, len(raws))] if find_units is None else list(find_units(raws, start))
    new = join_units(raws, units) if find_units is not None else raws[start:]
    if kept_body is not None and not kept_body.is_grown:
        kept_body.is_grown = 2 * known.count_unknown_bytes(new) < len(kept_body.body)
    found = recognise(recalled.messages, new, known.decode(new, decode), known)
    decoded = Decoded(
        recalled.messages + tuple([message for messages in found for message in messages]),
        _place(recalled.origins, units, found),
    )
    if kept_body is not None:
        kept_body.decoded[known.number] = decoded
    return decoded


def recall(
    raws: Sequence[bytes], kept_body: KeptBody | None, known: KnownView, find_units: FindUnits | None = None
) -> Decoded:
    """What was decoded of the first elements for an earlier body, without a last unit that may have grown."""
    recalled = _NOTHING if kept_body is None else kept_body.decoded.get(known.number, _NOTHING)
    origins = recalled.origins
    if origins and origins[-1].stop > len(raws):
        recalled = recalled.first(len(raws))
        origins = recalled.origins
    if find_units is None or not origins or origins[-1].stop == len(raws):
        return recalled
    kept = len(origins)
    while kept and origins[kept - 1].start == origins[-1].start:
        kept -= 1
    return Decoded(recalled.messages[:kept], origins[:kept])


def join_units(raws: Sequence[bytes], units: Iterable[tuple[int, int]]) -> list[bytes]:
    return [raws[start] if stop == start + 1 else b",".join(raws[start:stop]) for start, stop in units]


def _place(
    earlier: tuple[Origin, ...], units: Sequence[tuple[int, int]], found: Sequence[tuple[Message, ...]]
) -> tuple[Origin, ...]:
    """The position of each message. The tuple is shared if every element is one message."""
    number = len(earlier) + len(units)
    if units[-1][1] == number and set(map(len, found)) == {1}:
        whole = whole_elements(number)
        if not earlier or earlier == whole[: len(earlier)]:
            return whole
    return earlier + tuple(
        [Origin(*unit, part) for unit, messages in zip(units, found, strict=True) for part in range(len(messages))]
    )


_KEEPS_BEFORE = attrgetter("keeps_before")


def discount_compacted(messages: tuple[Message, ...], read: Collection[Role] = ()) -> tuple[Message, ...]:
    """The messages; those before the last that `keeps_before` cost nothing, but for those of the roles `read`."""
    if not any(map(_KEEPS_BEFORE, messages)):
        return messages
    last = max(at for at, message in enumerate(messages) if message.keeps_before)
    early = [message if message.speaker in read else replace(message, tokens=0) for message in messages[:last]]
    return (*early, *messages[last:])
