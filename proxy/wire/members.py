"""The members of a body: which ones a dialect reads, which messages share an element, and which is in none.

Law: what no rule has changed keeps its bytes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, NamedTuple

import msgspec

from trimtab.proxy.wire.content.parts import replace_texts
from trimtab.proxy.wire.json.spans import Span, find_member
from trimtab.proxy.wire.transcript.body import Edit, Form, UndecodableError
from trimtab.proxy.wire.transcript.elements import Placed, Shares
from trimtab.rules.conversation import Conversation, Decision, Origin

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
