"""How much of a prompt the upstream has read before.

Law: it only looks on. What it has forgotten, or never saw, is not guessed at.
"""

from collections.abc import Sequence

from proxy.lru import BytesLRU
from rules.conversation import Conversation, Message

MAX_BYTES = 8 * 1024 * 1024
FINGERPRINT_BYTES = 40
MAX_NEW_MESSAGES = 1000
"""Messages by which a session may grow between two requests and still be known."""

Fingerprints = tuple[int, ...]


class PrefixWatch:
    """Remembers what was forwarded last for each transcript, as fingerprints."""

    def __init__(self) -> None:
        self._forwarded: BytesLRU[tuple[str, bytes], Fingerprints] = BytesLRU(
            MAX_BYTES, lambda _, fingerprints: FINGERPRINT_BYTES * (len(fingerprints) + 2)
        )

    def observe(
        self, client: str, hashes: Sequence[bytes], forwarded: Conversation, fixed: Sequence[bytes]
    ) -> float | None:
        """The share of the prompt's tokens that stand as they did in the session's request before.

        `client` names whose cache it is. `hashes` are those of the transcript at each length: the request before is
        the longest one known, at most MAX_NEW_MESSAGES shorter. `fixed` is what stands outside the messages. None if
        no request before is known.
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
    """Changes with the bytes that are forwarded; Python's hash is keyed, so nobody can make two collide."""
    if message.raw and not message.edited:
        return hash(message.raw)  # bytes remember their hash
    return hash((message.raw, message.role, message.texts, message.media))


def _count_common(before: Fingerprints, now: Fingerprints, forwarded: Conversation) -> int:
    """The tokens of what both begin with."""
    if now[: len(before)] == before:  # the usual case: new messages alone
        return forwarded.tokens - sum(message.tokens for message in forwarded.messages[len(before) - 1 :])
    tokens = 0
    sizes = (forwarded.fixed_tokens, *(message.tokens for message in forwarded.messages))
    for old, new, size in zip(before, now, sizes, strict=False):
        if old != new:
            break
        tokens += size
    return tokens
