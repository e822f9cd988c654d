"""The previous request of each session: what was sent of it, and how the upstream's cache has treated the session.

Law: it only observes. If the previous request is unknown or forgotten, it says so.
"""

import time
from collections.abc import Callable, Hashable, Sequence

import msgspec
from msgspec.structs import replace

from trimtab.proxy.account.prompt_cache import Cache, Prefix
from trimtab.proxy.lru import BytesLRU
from trimtab.rules.conversation import Conversation, Message, Role

MAX_BYTES = 16 * 1024 * 1024  # chosen: some hundred sessions of a thousand messages, or some twenty thousand short ones
MAX_NEWEST_BYTES = 1024 * 1024  # chosen: some three thousand sessions
FINGERPRINT_BYTES = 40  # an int of 64 bits in a tuple, in CPython
REQUEST_BYTES = 300
"""What is kept of a request beside its fingerprints. Measured with CPython 3.12, rounded up."""
HASH_BYTES = 80
"""A hash of 32 bytes as an object: 65 bytes in CPython, rounded up to its blocks."""
MAX_NEW_MESSAGES = 1000
"""Messages by which a session may grow between two requests and still be recognised. Chosen: far above one turn."""

_NOTHING = bytes(32)
"""The hash of a prefix without a message."""
Fingerprints = tuple[int, ...]
_Key = tuple[str, bytes]


class Sent(msgspec.Struct, frozen=True):
    """A request that was sent.

    original: the client's messages. forwarded: what was sent. fixed: the parts of the request outside its messages.
    age_seconds: how long ago that was. is_changed: trimtab changed it.
    """

    original: Sequence[Message]
    forwarded: Conversation
    fixed: Sequence[bytes]
    age_seconds: float = 0.0
    is_changed: bool = False


class Request(msgspec.Struct, frozen=True):
    """What is kept of a request.

    messages: the number of the client's messages. sent_at: seconds.
    fingerprints, tokens: of what was sent; the first is empty once another request has taken its place.
    outside: a hash of what the client said outside its messages, and in its system messages at the beginning.
    is_changed: trimtab changed it, or an earlier request of the session.
    """

    messages: int
    sent_at: float
    fingerprints: Fingerprints
    tokens: int
    outside: int
    is_changed: bool
    cache: Cache


class Seen(msgspec.Struct, frozen=True):
    """A request beside the previous one of its session.

    key: under which it is kept. before: the previous one; None if it is not known, or if the client has changed tools
    or instructions since. prefix: how what was sent begins, compared with it; None if that is not known.
    """

    key: _Key
    now: Request
    before: Request | None
    prefix: Prefix | None


class PreviousRequests:
    """The newest requests of all sessions, by the hash of their transcripts. Thread-safe.

    clock: seconds. The system's time by default: unlike the monotonic clock, it goes on while a laptop sleeps.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._requests: BytesLRU[_Key, Request] = BytesLRU(
            MAX_BYTES, lambda _, request: FINGERPRINT_BYTES * len(request.fingerprints) + REQUEST_BYTES
        )
        # The last hash of the newest transcript with the same first message.
        self._newest: BytesLRU[_Key, bytes] = BytesLRU(MAX_NEWEST_BYTES, lambda *_: 2 * HASH_BYTES)

    def observe(
        self,
        client: str,
        hashes: Sequence[bytes],
        sent: Sent,
    ) -> Seen:
        """Compare a request with the previous one of its session, and keep it in its place.

        client: names all that has a prompt cache of its own: the tenant, the upstream, the model.
        hashes: of the transcript's prefixes. The previous request is the longest known one, at most
            MAX_NEW_MESSAGES shorter; if there is none, the last one with the same first message.
        """
        original, forwarded, fixed = sent.original, sent.forwarded, sent.fixed
        age_seconds, is_changed = sent.age_seconds, sent.is_changed
        tools = hash(tuple(fixed))
        systems = 0  # the hashes leave them out
        while systems < len(original) and original[systems].role is Role.SYSTEM:
            systems += 1
        fingerprints = (tools, *_list_fingerprints(forwarded.messages))
        is_same = forwarded.messages is original
        outside = hash(fingerprints[: systems + 1] if is_same else (tools, *_list_fingerprints(original[:systems])))
        key, found = self._find(client, hashes, outside)
        before = found if found is not None and found.outside == outside else None
        is_changed = is_changed or (before is not None and before.is_changed)
        cache, sent_at = Cache() if before is None else before.cache, self.clock() - age_seconds
        now = Request(len(original), sent_at, fingerprints, forwarded.tokens, outside, is_changed, cache)
        continues = found is not None and bool(found.fingerprints)
        last = found if continues else self._find_newest(client, hashes)
        prefix = None
        if last is not None:
            kept_tokens = _count_common(last.fingerprints, fingerprints, forwarded)
            pause_seconds = max(sent_at - last.sent_at, 0.0)
            is_ours = continues and before is not None
            prefix = Prefix(now.tokens, last.tokens, kept_tokens, pause_seconds, continues, is_ours)
        end = _find_end(hashes, original)
        if found is not None and continues and key[1] != end and found.outside == outside:
            self._requests[key] = replace(found, fingerprints=())
        return self._keep(client, hashes, end, now, before, prefix)

    def learn(self, seen: Seen, cache: Cache) -> None:
        """Note how the upstream's cache has treated the session up to this request."""
        if cache != seen.now.cache:
            kept = self._requests.get(seen.key)
            is_there = kept is None or kept.outside == seen.now.outside
            self._requests[seen.key if is_there else _set_apart(seen.key, seen.now.outside)] = replace(
                seen.now, cache=cache
            )

    def _find(self, client: str, hashes: Sequence[bytes], outside: int) -> tuple[_Key, Request | None]:
        """The longest known request that a transcript goes on with, and its key.

        Sessions may differ in their tools only, side by side. So of the same transcript the one with the same tools
        and instructions is taken; another one if there is none, because a client may change them within a session.
        """
        shortest, other = max(len(hashes) - 1 - MAX_NEW_MESSAGES, 0), None
        for known in hashes[:shortest:-1]:
            key = client, known
            found = self._requests.get(key)
            if found is None:
                continue
            if found.outside == outside:
                return key, found
            other = other or (key, found)
            own_key = _set_apart(key, outside)
            own = self._requests.get(own_key)
            if own is not None:
                return own_key, own
        return other or ((client, b""), None)

    def _find_newest(self, client: str, hashes: Sequence[bytes]) -> Request | None:
        """The newest request with the same first message; another branch may go on with it, so it stays."""
        first = _find_first(hashes)
        newest = None if first is None else self._newest.get((client, first))
        found = None if newest is None else self._requests.get((client, newest))
        return found if found is not None and found.fingerprints else None

    def _keep(
        self,
        client: str,
        hashes: Sequence[bytes],
        end: bytes,
        now: Request,
        before: Request | None,
        prefix: Prefix | None,
    ) -> Seen:
        key, first = (client, end), _find_first(hashes)
        other = self._requests.get(key)
        if other is not None and other.outside != now.outside:
            self._requests[_set_apart(key, other.outside)] = other
        self._requests[key] = now
        if first is not None:
            self._newest[client, first] = end
        return Seen(key, now, before, prefix)


def _find_end(hashes: Sequence[bytes], messages: Sequence[Message]) -> bytes:
    """The hash of the transcript without an answer that the model is to go on with, which later ones have whole."""
    is_begun = len(hashes) > 1 and bool(messages) and messages[-1].role is Role.ASSISTANT
    return hashes[-2] if is_begun and hashes[-2] != _NOTHING else hashes[-1]


def _set_apart(key: _Key, outside: int) -> _Key:
    """The key of a request while one with the same transcript, and other tools or instructions, has its own."""
    return f"{key[0]} {outside}", key[1]


def _find_first(hashes: Sequence[bytes]) -> bytes | None:
    """The hash of the transcript up to its first message, which leaves out leading system messages."""
    for known in hashes:
        if known != _NOTHING:
            return known
    return None


def _list_fingerprints(messages: Sequence[Message]) -> list[int]:
    """Hashes of the forwarded bytes, which remember them. Python's hash is keyed: nobody can construct a collision."""
    return list(map(hash, [one.raw if one.raw and not one.edited else _name(one) for one in messages]))


def _name(message: Message) -> Hashable:
    """What an edited message is written from."""
    return message.raw, message.role, message.texts, message.media, message.tool_calls


def _count_common(before: Fingerprints, now: Fingerprints, forwarded: Conversation) -> int:
    if now[: len(before)] == before:  # the usual case: only new messages
        return forwarded.tokens - sum(message.tokens for message in forwarded.messages[len(before) - 1 :])
    tokens = 0
    sizes = (forwarded.fixed_tokens, *(message.tokens for message in forwarded.messages))
    for old, new, size in zip(before, now, sizes, strict=False):
        if old != new:
            break
        tokens += size
    return tokens
