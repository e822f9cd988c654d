"""The dialects that the proxy speaks. To add one: a folder beside `chat/`, and its codec in `CODECS`."""

import re
from collections.abc import Iterable, Mapping

from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.codec import Codec, Request
from trimtab.proxy.wire.json import try_decode
from trimtab.proxy.wire.messages.codec import COUNT_TOKENS, MESSAGES
from trimtab.proxy.wire.responses.codec import RESPONSES

CODECS: tuple[Codec, ...] = (CHAT, RESPONSES, MESSAGES, COUNT_TOKENS)
DEFAULT: Codec = CHAT  # The dialect for a separate summary upstream, and for errors at paths that belong to no dialect
DIALECTS = tuple(dict.fromkeys(codec.name for codec in CODECS))  # The name of each dialect
_OF_MESSAGES = re.compile(rb'"type"\s{0,9}:\s{0,9}"(?:tool_use|tool_result)"|"input_schema"\s{0,9}:')
NO_PATHS: Mapping[str, str] = {}
_OF_A_THREAD = re.compile(r"/threads/[^/]*/messages$")  # A message of OpenAI's Assistants API


def read_request(body: bytes, dialect: str | None = None) -> Request:
    """Read a body in a dialect; None to guess it. Raises UndecodableError, and ValueError for an unknown dialect."""
    return name_codec(dialect or guess_dialect(body)).read(body)


def guess_dialect(body: bytes) -> str:
    """The dialect that a body is probably written in, by members that only this dialect has."""
    members = try_decode(body)
    if not isinstance(members, dict):
        return DEFAULT.name
    if "messages" not in members:
        return "responses" if "input" in members else DEFAULT.name
    is_anthropics = "system" in members or "anthropic_version" in members or _OF_MESSAGES.search(body)
    return "messages" if is_anthropics else DEFAULT.name


def name_codec(dialect: str) -> Codec:
    codec = find_dialect(by_ending(CODECS), dialect)
    if codec is None:
        raise ValueError(f"there is no dialect {dialect!r}; known: {', '.join(DIALECTS)}")
    return codec


def by_ending(codecs: Iterable[Codec]) -> dict[str, Codec]:
    """Each codec by the ending of the paths that it claims. Raises ValueError if two claim the same."""
    claimed: dict[str, Codec] = {}
    for codec in codecs:
        if codec.ending in claimed:
            raise ValueError(f"{codec.ending} is claimed by {claimed[codec.ending].name} and by {codec.name}")
        claimed[codec.ending] = codec
    return claimed


def find_codec(codecs: Mapping[str, Codec], path: str, named: Mapping[str, str] = NO_PATHS) -> Codec | None:
    """The codec that claims POST requests at a path, whatever is before its ending; a slash may follow.

    codecs: by ending. named: the dialects of paths with another ending, without a slash at their end.
    """
    path = path.removesuffix("/")
    if path in named:
        return find_dialect(codecs, named[path])
    for ending, codec in codecs.items():
        if path.endswith(ending):
            return None if _OF_A_THREAD.search(path) else codec
    return None


def find_dialect(codecs: Mapping[str, Codec], name: str) -> Codec | None:
    return next((codec for codec in codecs.values() if codec.name == name and not codec.is_count), None)


def is_bare(codec: Codec, path: str) -> bool:
    """Whether a path without its query has nothing before the codec's ending, or only `/v1`."""
    return path.removesuffix("/").removeprefix("/v1") == codec.ending
