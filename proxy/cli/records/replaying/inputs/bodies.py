"""Reads request bodies from a file with one in each line, and finds the sessions that they belong to.

Law: no I/O. A body that continues an earlier one belongs to its session.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from proxy.lru import BytesLRU
from proxy.wire.codec import UndecodableError
from proxy.wire.dialects import guess_dialect, name_codec
from proxy.wire.json.decode import DECODE_ERRORS

MAX_HASHES_BYTES = 16 * 1024 * 1024
"""Chosen: the newest requests of some hundred thousand sessions."""
HASH_BYTES = 160
"""What is kept of a request. An estimate for CPython."""
MAX_NEW_MESSAGES = 1000
"""Messages by which a session may grow between two requests and still be recognised. Chosen: far above one turn."""
_BY_MODEL = frozenset({"reasoning", "function_call", "custom_tool_call", "local_shell_call", "web_search_call"})
"""Types of items of the Responses API that a model writes, beside the messages of an assistant."""


class _Element(msgspec.Struct):
    role: str = ""
    type: str = ""


_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_element = msgspec.json.Decoder(_Element).decode


@dataclass(slots=True)
class Sessions:
    """Names the session of each request, after the place at which it began."""

    _known: BytesLRU[tuple[str, bytes], str] = field(
        default_factory=lambda: BytesLRU(MAX_HASHES_BYTES, lambda *_: HASH_BYTES)
    )

    def name(self, model: str, hashes: Sequence[bytes], place: str) -> str:
        """The session of a request. hashes: of its transcript's prefixes. place: its name, if it begins one."""
        shortest = max(len(hashes) - 1 - MAX_NEW_MESSAGES, 0)
        found = self._known.pop_first((model, known) for known in hashes[:shortest:-1])
        name = place if found is None else found
        self._known[model, hashes[-1]] = name
        return name


def split_turns(body: bytes, dialect: str | None = None) -> Iterator[bytes]:
    """The requests that a client has sent on the way to this body: one before each answer of the model.

    The last one is the body itself. Raises UndecodableError.
    """
    codec = name_codec(dialect or guess_dialect(body))
    try:
        members = _decode_members(body)
        elements = _decode_elements(members.get(codec.transcript, msgspec.Raw(b"[]")))
        is_answer = [_is_answer(_decode_element(element)) for element in elements]
    except DECODE_ERRORS as error:
        raise UndecodableError from error
    for stop in range(1, len(elements)):
        if is_answer[stop] and not is_answer[stop - 1]:
            beginning = msgspec.Raw(b"[" + b",".join(map(bytes, elements[:stop])) + b"]")
            yield msgspec.json.encode({**members, codec.transcript: beginning})
    yield body


def _is_answer(element: _Element) -> bool:
    return element.role == "assistant" or element.type in _BY_MODEL
