"""Recognises tool results that a client has written as text, in messages of the user or of the system.

Frameworks do this for models without tool calls, and for results whose call is gone. The text begins with a header that
names the tool. These headers are recognised, in upper or lower case; arguments in parentheses may follow the name:

    [tool: NAME]
    [tool result: NAME]      also with an underscore or a hyphen
    [tool result for NAME]   the same
    [tool NAME result]
    EXECUTION RESULT of [NAME]:

Law: only a message after the first one of the user or the assistant is recognised, so never a leading system message or
the task statement. What comes later changes nothing. The size and the digest of the message stay.

Source: the code of public agents; the last form is that of OpenHands. Headers of Cline and Roo Code (`[NAME for '...']
Result:`) are left alone, because the user's own words follow some of them.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from proxy.wire.transcript.known import KnownView
from rules.conversation import WRITTEN_ROLES, Message, Role

HEADER_CHARS = 64
"""A longer header is treated as a part of the text, so it may be shortened with the text. Chosen: it holds the longest
name of a tool that most upstreams accept, in short form, and leaves room for a placeholder behind it."""
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
_KEY = b"written:"
"""Begins the key under which a recognised unit is known, so that it is not taken for the same unit in another place."""


def recognise(
    earlier: Sequence[Message], raws: Sequence[bytes], units: Sequence[tuple[Message, ...]], known: KnownView
) -> Sequence[tuple[Message, ...]]:
    """The messages of new units, with written results as tool results; the same object if there are none.

    earlier: the messages before them. raws: the JSON of each unit. Equal units get the same message objects.
    """
    candidates = [
        at
        for at, messages in enumerate(units)
        for message in messages
        if message.texts and message.texts[0][:1] in _STARTS and _is_candidate(message)
    ]
    if not candidates:
        return units
    first = -1 if any(map(_speaks, earlier)) else _find_first(units)
    plain = {_KEY + raws[at]: units[at] for at in candidates if at > first}
    keys = list(plain)
    found = dict(zip(keys, known.decode(keys, lambda key: tuple(map(_as_result, plain[key]))), strict=True))
    return [found.get(_KEY + raws[at], messages) if at > first else messages for at, messages in enumerate(units)]


def _find_first(units: Sequence[tuple[Message, ...]]) -> int:
    return next((at for at, messages in enumerate(units) if any(map(_speaks, messages))), len(units))


def _speaks(message: Message) -> bool:
    return message.role is not Role.SYSTEM


def _is_candidate(message: Message) -> bool:
    """Whether each text of a message begins with a header. More than one may, if the client writes one per result."""
    texts = message.texts
    return bool(texts) and message.role_name in WRITTEN_ROLES and all(map(_HEADER.match, texts))


def _as_result(message: Message) -> Message:
    if not _is_candidate(message):
        return message
    text, *others = message.texts
    found = _HEADER.match(text)
    if found is None:
        return message
    header, rest = found.group(), text[found.end() :]
    result = replace(message, role=Role.TOOL, wire_role=message.role_name, name=next(filter(None, found.groups())))
    if len(header) > HEADER_CHARS or not rest.strip():
        return result
    return replace(result, header=header, texts=(rest, *others))
