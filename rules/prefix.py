"""The hash chain that identifies a transcript's prefix.

Law: two transcripts have the same hash at a cut exactly if they say the same up to it. JSON key order, white space and
`cache_control` do not change the hash. Neither do truncation, pruning and the policy's thresholds: after a change of
policy, the summaries of cuts that stay in place are still found.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import takewhile
from operator import methodcaller

from trimtab.rules.conversation import Message, Role, count_leading

ENCODED_AT_ONCE = 256 * 1024
"""Characters encoded at once. Chosen: a longer text is encoded in pieces, so memory never holds a second copy of it."""


_encode = methodcaller("encode", "utf-8", "surrogatepass")
_FRACTION_BITS = 53
"""Bits of a hash that make a fraction. Source: a float has that many, so that no hash is rounded up to 1."""


def digest_message(message: Message, media: Iterable[bytes] = ()) -> bytes:
    """The SHA-256 (32 bytes) of what a message says: role, name, texts, tool calls, the call it answers, and media.

    `media` has the canonical bytes of each media part; the codec chooses the form.
    """
    calls = message.tool_calls
    fields = [message.role_name, message.answers or "", message.name or "", str(len(calls))]
    for call in calls:
        fields += (call.id, call.name, call.arguments)
    fields += message.texts
    # The length before each field keeps neighbouring fields apart: "ab" + "c" is not "a" + "bc".
    if sum(map(len, fields)) <= ENCODED_AT_ONCE:
        encoded = list(map(_encode, fields))
        digest = sha256(b"".join(map(b"%d:%b".__mod__, zip(map(len, encoded), encoded, strict=True))))
    else:
        digest = sha256()
        for field in fields:
            digest.update(b"%d:" % sum(map(len, _encode_pieces(field))))
            for piece in _encode_pieces(field):
                digest.update(piece)
    for part in media:
        digest.update(b"m%d:" % len(part))
        digest.update(part)
    return digest.digest()


def _encode_pieces(field: str) -> Iterator[bytes]:
    pieces = (field[start : start + ENCODED_AT_ONCE] for start in range(0, len(field), ENCODED_AT_ONCE))
    return (piece.encode("utf-8", "surrogatepass") for piece in pieces)


def hash_prefixes(messages: Sequence[Message], known: Sequence[bytes] = ()) -> list[bytes]:
    """The hashes of messages[:stop], for each stop from 0 to the number of messages.

    `known` are the hashes of a shorter prefix, if they were computed before. h(i) = sha256(h(i-1) + digest(i)), and
    h(0) is 32 zero bytes. Leading system and developer messages are left out: they may contain a timestamp, which must
    not change the name of a summary. Other leading messages, which a later one keeps, are hashed together first.
    """
    hashes = list(known) or _hash_leading(messages)
    chain = hashes[-1]
    for message in messages[len(hashes) - 1 :]:
        chain = sha256(chain + message.digest).digest()
        hashes.append(chain)
    return hashes


def _hash_leading(messages: Sequence[Message]) -> list[bytes]:
    leading = count_leading(messages)
    kept = [message.digest for message in messages[:leading] if message.role is not Role.SYSTEM]
    return [bytes(32)] * leading + [sha256(b"".join(kept)).digest() if kept else bytes(32)]


def hash_head(messages: Sequence[Message]) -> bytes:
    """The SHA-256 (32 bytes) of what every request of a session begins with.

    Those are the leading system and developer messages and the messages up to the first one of the user, or up to the
    first of all if the user has said nothing. Sessions that begin alike have the same hash.
    """
    leading = takewhile(lambda message: message.role is Role.SYSTEM, messages)
    return sha256(b"".join((*(message.digest for message in leading), b"\0", *_list_opening(messages)))).digest()


def _list_opening(messages: Sequence[Message]) -> list[bytes]:
    """The digests of the messages up to the first one of the user, without system messages."""
    spoken = (message for message in messages if message.role is not Role.SYSTEM)
    opening: list[bytes] = []
    for message in spoken:
        opening.append(message.digest)
        if message.role is Role.USER:
            break
    else:
        del opening[1:]
    return opening


def place_session(messages: Sequence[Message]) -> float:
    """A number from 0 to below 1 that every request of a session shares, spread evenly over sessions.

    It depends on the messages up to the first one of the user, or up to the first of all if the user has said nothing.
    System and developer messages are left out. Sessions that begin alike have the same number.
    """
    opening = _list_opening(messages)
    drawn = int.from_bytes(sha256(b"".join(opening)).digest()) >> (256 - _FRACTION_BITS)
    return drawn / (1 << _FRACTION_BITS)
