"""Measures how much of a prompt equals the previous request of its session.

Law: it only observes. If the previous request is unknown or forgotten, it reports nothing.
"""

from collections.abc import Sequence

from proxy.lru import BytesLRU
from rules.conversation import Conversation, Message

MAX_BYTES = 8 * 1024 * 1024  # chosen: some hundred sessions of a thousand messages
FINGERPRINT_BYTES = 40  # an int of 64 bits in a tuple, in CPython
MAX_NEW_MESSAGES = 1000
"""Messages by which a session may grow between two requests and still be recognised. Chosen: far above one turn."""

Fingerprints = tuple[int, ...]


class PrefixWatch:
    """Remembers fingerprints of the last forwarded request of each transcript."""

    def __init__(self) -> None:
        self._forwarded: BytesLRU[tuple[str, bytes], Fingerprints] = BytesLRU(
            MAX_BYTES, lambda _, fingerprints: FINGERPRINT_BYTES * (len(fingerprints) + 2)
        )

    def observe(
        self, client: str, hashes: Sequence[bytes], forwarded: Conversation, fixed: Sequence[bytes]
    ) -> float | None:
        """Return the share of the prompt's tokens that equal the previous request's beginning; None if it is unknown.

        client: names the tenant and model, which have their own prompt cache.
        hashes: hashes of the transcript's prefixes. The previous request is the longest known one, at most
            MAX_NEW_MESSAGES shorter.
        fixed: the parts of the request outside its messages.
        """
        messages = forwarded.messages
        now = (hash(tuple(fixed)), *[_fingerprint(message) for message in messages])
        shortest = max(len(hashes) - 1 - MAX_NEW_MESSAGES, 0)
        before = self._forwarded.pop_first((client, known) for known in hashes[:shortest:-1])
        self._forwarded[client, hashes[-1]] = now
        if before is None:
            return None
        return _count_common(before, now, forwarded) / max(forwarded.tokens, 1)


def _fingerprint(message: Message) -> int:
    """A hash of the forwarded bytes. Python's hash is keyed, so nobody can construct a collision."""
    if message.raw and not message.edited:
        return hash(message.raw)  # bytes remember their hash
    return hash((message.raw, message.role, message.texts, message.media))


def _count_common(before: Fingerprints, now: Fingerprints, forwarded: Conversation) -> int:
    """Tokens of the common beginning."""
    if now[: len(before)] == before:  # the usual case: only new messages
        return forwarded.tokens - sum(message.tokens for message in forwarded.messages[len(before) - 1 :])
    tokens = 0
    sizes = (forwarded.fixed_tokens, *(message.tokens for message in forwarded.messages))
    for old, new, size in zip(before, now, sizes, strict=False):
        if old != new:
            break
        tokens += size
    return tokens
