"""The hash chain that names a transcript's prefix.

Law: two transcripts share the hash at a cut exactly when they said the same up to it. Key order, white space and
`cache_control` do not count; thresholds, truncation and pruning do not either, so that a changed policy still finds
the summaries of cuts that it keeps.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256

from rules.conversation import Message, count_leading

ENCODED_AT_ONCE = 256 * 1024
"""Characters."""


def digest_message(message: Message, media: Iterable[bytes] = ()) -> bytes:
    """32 bytes that name what a message says: role, name, texts, calls, what it answers, and its media.

    `media` is each part in a canonical form, chosen by the codec.
    """
    digest = sha256()
    for field in (
        message.role_name,
        message.answers or "",
        message.name or "",
        str(len(message.tool_calls)),
        *(part for call in message.tool_calls for part in (call.id, call.name, call.arguments)),
        *message.texts,
    ):
        if len(field) <= ENCODED_AT_ONCE:
            encoded = field.encode("utf-8", "surrogatepass")
            digest.update(b"%d:" % len(encoded))
            digest.update(encoded)
            continue
        digest.update(b"%d:" % sum(map(len, _encode_pieces(field))))
        for piece in _encode_pieces(field):
            digest.update(piece)
    for part in media:
        digest.update(b"m%d:" % len(part))
        digest.update(part)
    return digest.digest()


def _encode_pieces(field: str) -> Iterator[bytes]:
    """A very long text piece by piece: a copy of the whole would take its memory once more."""
    pieces = (field[start : start + ENCODED_AT_ONCE] for start in range(0, len(field), ENCODED_AT_ONCE))
    return (piece.encode("utf-8", "surrogatepass") for piece in pieces)


def hash_prefixes(messages: Sequence[Message], known: Sequence[bytes] = ()) -> list[bytes]:
    """The chain over messages[:stop] for each stop from 0 to their number; `known` is that of a beginning of them.

    h(i) = sha256(h(i-1) + digest(i)), from 32 zero bytes on. Leading system and developer messages do not enter:
    what is volatile in them (a timestamp) must not rename a summary.
    """
    hashes = list(known) or [bytes(32)] * (count_leading(messages) + 1)
    chain = hashes[-1]
    for message in messages[len(hashes) - 1 :]:
        chain = sha256(chain + message.digest).digest()
        hashes.append(chain)
    return hashes
