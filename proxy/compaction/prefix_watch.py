"""Measures how much of a prompt equals the previous request of its session, and notes what a cache could hold of it.

Law: it only observes. If the previous request is unknown or forgotten, it reports nothing.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from proxy.lru import BytesLRU
from rules.conversation import Conversation, Message, Role

MAX_BYTES = 8 * 1024 * 1024  # chosen: some hundred sessions of a thousand messages
MAX_NEWEST_BYTES = 1024 * 1024  # chosen: some three thousand sessions
FINGERPRINT_BYTES = 40  # an int of 64 bits in a tuple, in CPython
SENT_BYTES = 200
"""What is kept of a request beside its fingerprints: two tuples, a float and two ints. An estimate for CPython."""
HASH_BYTES = 80
"""A hash of 32 bytes as an object: 65 bytes in CPython, rounded up to its blocks."""
MAX_NEW_MESSAGES = 1000
"""Messages by which a session may grow between two requests and still be recognised. Chosen: far above one turn."""

Fingerprints = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Prefix:
    """How a prompt begins, compared with the previous one of its session; all tokens are ours.

    tokens: of the whole prompt.
    previous_tokens: of the previous prompt, all of which the upstream has read.
    kept_tokens: of the beginning that both have, byte for byte.
    pause_seconds: between the moments at which they were sent.
    continues: the client has only added messages. Otherwise the session is recognised by its first message alone.
    is_ours: if the beginnings differ, trimtab changed it: the client's transcript, tools and instructions are the same.
    """

    tokens: int
    previous_tokens: int
    kept_tokens: int
    pause_seconds: float
    continues: bool
    is_ours: bool

    @property
    def kept_share(self) -> float:
        """The share of the prompt that equals the previous request's beginning."""
        return self.kept_tokens / max(self.tokens, 1)


class _Sent(NamedTuple):
    """The last request of a transcript. `outside`: a hash of what the client said outside its messages."""

    fingerprints: Fingerprints
    tokens: int
    sent_at: float
    outside: int


class PrefixWatch:
    """Remembers fingerprints of the last forwarded request of each transcript.

    clock: seconds. The system's time by default: unlike the monotonic clock, it goes on while a laptop sleeps.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._forwarded: BytesLRU[tuple[str, bytes], _Sent] = BytesLRU(
            MAX_BYTES, lambda _, sent: FINGERPRINT_BYTES * (len(sent.fingerprints) + 2) + SENT_BYTES
        )
        # The last hash of the newest transcript with the same first message.
        self._newest: BytesLRU[tuple[str, bytes], bytes] = BytesLRU(MAX_NEWEST_BYTES, lambda *_: 2 * HASH_BYTES)

    def observe(
        self,
        client: str,
        hashes: Sequence[bytes],
        forwarded: Conversation,
        fixed: Sequence[bytes],
        *,
        original: Sequence[Message] = (),
        age_seconds: float = 0.0,
    ) -> Prefix | None:
        """Compare a prompt with the previous one of its session; None if that is not known.

        client: names the tenant and model, which have their own prompt cache.
        hashes: hashes of the transcript's prefixes. The previous request is the longest known one, at most
            MAX_NEW_MESSAGES shorter; if there is none, the last one with the same first message.
        fixed: the parts of the request outside its messages. original: the client's messages.
        age_seconds: how long ago the request was sent.
        """
        messages = forwarded.messages
        outside = hash(tuple(fixed))
        fingerprints = (outside, *[_fingerprint(message) for message in messages])
        systems = takewhile(lambda message: message.role is Role.SYSTEM, original)  # the hashes leave them out
        now = _Sent(
            fingerprints,
            forwarded.tokens,
            self.clock() - age_seconds,
            hash((outside, *[_fingerprint(message) for message in systems])),
        )
        before, continues = self._replace(client, hashes, now)
        if before is None:
            return None
        return Prefix(
            now.tokens,
            before.tokens,
            _count_common(before.fingerprints, fingerprints, forwarded),
            max(now.sent_at - before.sent_at, 0.0),
            continues,
            continues and before.outside == now.outside,
        )

    def _replace(self, client: str, hashes: Sequence[bytes], now: _Sent) -> tuple[_Sent | None, bool]:
        """Keep a request in place of the previous one. Return that one, and whether the transcript continues it."""
        shortest = max(len(hashes) - 1 - MAX_NEW_MESSAGES, 0)
        before = self._forwarded.pop_first((client, known) for known in hashes[:shortest:-1])
        continues = before is not None
        first = next((known for known in hashes if any(known)), None)
        if before is None and first is not None and (newest := self._newest.get((client, first))) is not None:
            before = self._forwarded.get((client, newest))  # another branch may continue it, so it stays
        self._forwarded[client, hashes[-1]] = now
        if first is not None:
            self._newest[client, first] = hashes[-1]
        return before, continues


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
