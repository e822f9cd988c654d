"""The dialects that the proxy speaks. To add one: a folder beside `chat/`, and its codec in `CODECS`."""

from collections.abc import Iterable

from proxy.wire.chat.codec import CHAT
from proxy.wire.codec import Codec
from proxy.wire.responses.codec import RESPONSES

CODECS: tuple[Codec, ...] = (CHAT, RESPONSES)
DEFAULT: Codec = CHAT
"""The dialect for a separate summary upstream, and for errors at paths that no dialect claims."""


def by_path(codecs: Iterable[Codec]) -> dict[str, Codec]:
    """The codec that claims each request path. Raises ValueError if two claim the same."""
    claimed: dict[str, Codec] = {}
    for codec in codecs:
        for path in codec.paths:
            if path in claimed:
                message = f"{path} is claimed by {claimed[path].name} and by {codec.name}"
                raise ValueError(message)
            claimed[path] = codec
    return claimed
