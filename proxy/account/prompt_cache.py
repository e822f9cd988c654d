"""What an upstream would have read of the client's own prompt from its cache, and why it read less than it could have.

What a request would have cost if it had passed unchanged: the upstream's cache treats both prompts alike. Of the
beginning that equals the previous request of the session, the same share is read from the cache: of what was sent, as
the upstream reports it; of the client's own prompt, as it would have.

Law: without a change there is no difference. A prompt that is longer is never cheaper for being longer: what is added
to it is counted by the same prices. A miss has one cause, and an upstream that reports no cached tokens gets none.
The previous request of each session is kept, bounded in memory. No decision about a request depends on it.
"""

import time
from collections.abc import Callable, Hashable, Sequence
from operator import attrgetter
from typing import Literal

import msgspec
from msgspec.structs import replace

from trimtab.proxy.account.outcome import Answered
from trimtab.proxy.catalogue.prices import Tokens
from trimtab.proxy.lru import BytesLRU
from trimtab.rules.conversation import Conversation, Message, Role

BLOCK_TOKENS = 128  # Caches hold whole blocks. Source: OpenAI's and Azure's; others have smaller ones.
MIN_CACHED_TOKENS = 1024  # Source: OpenAI's; some others cache from 256 tokens, or from 4,096 only.
MAX_SCALE = 4.0
"""The upstream's tokens are at most this many of ours, and at least one by as many. Beyond, our estimate of one of both
prompts says nothing about the other. Chosen: far from any tokenizer, but the upstream may hold a part of the prompt."""
GOES_ON_SHARE = 0.5
"""If so much of an unknown session was cached, another process had it. Chosen: clients' sessions share far less."""
READ_SHARE = 0.8
"""Of what could be read; less is a miss. Chosen: twice the tenth by which our count of a part may be wrong."""
Cause = Literal["", "cut", "expired", "prefix", "cold", "unknown"]
"""Why the cache was missed; empty if it was not.

cut: trimtab changed the beginning of the prompt, by a cut or another decision.
prefix: the client changed its own transcript, instructions or tools.
expired: the pause before the request was longer than the upstream keeps a cached prompt.
cold: the first known request of a session, of which the upstream had nothing.
unknown: the beginning stayed the same, the request came in time, and the upstream still read little of it.
"""


class Prefix(msgspec.Struct, frozen=True):
    """How a prompt begins, compared with the previous one of its session; all tokens are ours.

    previous_tokens: of the previous prompt, all of which the upstream has read.
    kept_tokens: of the beginning that both have, byte for byte. pause_seconds: between the two sendings.
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
        return self.kept_tokens / max(self.tokens, 1)


class Cache(msgspec.Struct, frozen=True):
    """How an upstream's cache treats a session: the share read of what could be cached, and written of the rest."""

    hit_share: float = 1.0
    written_share: float = 0.0


class Case(msgspec.Struct, frozen=True):
    """One request as it was sent, and as the client sent it.

    sent_tokens, original_tokens: both prompts by our estimate.
    kept_share: the share of what was sent that equals the previous request of the session; None if it is not known.
    known_share: the share of the client's prompt that equals its previous request; None if the session is not known.
    is_fresh: the pause was shorter than the cache's lifetime.
    cache: how the cache has treated the session before.
    """

    sent: Tokens
    sent_tokens: int
    original_tokens: int
    kept_share: float | None
    known_share: float | None
    is_fresh: bool
    cache: Cache = Cache()


def count_cached(tokens: float) -> int:
    return 0 if tokens < MIN_CACHED_TOKENS else int(tokens) // BLOCK_TOKENS * BLOCK_TOKENS


def watch_cache(case: Case) -> Cache:
    """How the cache treats the session, by the newest request that can tell."""
    sent = case.sent
    could, rest = count_cached((case.kept_share or 0.0) * sent.prompt), sent.fresh + sent.written
    hit_share = min(sent.cached / could, 1.0) if could else case.cache.hit_share
    written_share = sent.written / rest if rest else case.cache.written_share
    return Cache(hit_share, written_share)


def imagine(case: Case, cache: Cache | None = None) -> Tokens:
    """What the client's own prompt would have been. `cache`: as of `watch_cache`, if that is known."""
    sent_prompt, cache = case.sent.prompt, cache or watch_cache(case)
    prompt = _scale_original(case, sent_prompt)
    # What trimtab has sent in addition to the cached beginning would have been new in the client's own prompt, too.
    old = prompt - (sent_prompt - case.sent.cached)
    if case.known_share is None:
        goes_on = case.sent.cached >= GOES_ON_SHARE * sent_prompt
        cached = old if goes_on and case.sent.cached else min(case.sent.cached, prompt)
    else:
        could_tell = count_cached((case.kept_share or 0.0) * sent_prompt) > 0
        hit_share = cache.hit_share if could_tell or case.is_fresh else 0.0
        cached = count_cached(hit_share * case.known_share * prompt)
        cached = max(cached, old) if case.sent.cached else cached
    cached = max(min(cached, prompt), 0)
    return Tokens.of(prompt, cached, round(cache.written_share * (prompt - cached)), case.sent.completion)


def _scale_original(case: Case, sent_prompt: int) -> int:
    scale = sent_prompt / max(case.sent_tokens, 1)
    if 1 / MAX_SCALE <= scale <= MAX_SCALE:
        return round(scale * case.original_tokens)
    return max(sent_prompt + case.original_tokens - case.sent_tokens, 0)


def add_removed(sent: Tokens, tokens: int) -> Tokens:
    """The tokens of a request with the removed ones as new, fresh or written as the rest.

    It is for a request whose earlier messages the upstream holds: they passed before, and what was removed is new.
    """
    rest = sent.fresh + sent.written
    added = max(tokens, -rest)
    written = round(added * sent.written / rest) if rest else 0
    return Tokens.of(sent.prompt + added, sent.cached, sent.written + written, sent.completion)


def find_cause(prefix: Prefix | None, answered: Answered, find_lifetime: Callable[[], float | None]) -> Cause:
    """The cause of a miss, or empty. prefix: None for a session's first. find_lifetime: in seconds; None: no limit."""
    prompt_tokens, cached_tokens = answered.prompt_tokens, answered.cached_tokens
    if cached_tokens is None or not prompt_tokens:
        return ""
    if prefix is None:
        return "cold" if prompt_tokens >= MIN_CACHED_TOKENS and cached_tokens < BLOCK_TOKENS else ""
    scale = prompt_tokens / max(prefix.tokens, 1)
    could_tokens = count_cached(min(scale * prefix.previous_tokens, prompt_tokens))
    if not could_tokens or cached_tokens >= READ_SHARE * could_tokens:
        return ""
    kept_tokens = count_cached(min(scale * prefix.kept_tokens, prompt_tokens))
    # An upstream that has read all that was left of the prompt's beginning has kept it until now.
    if cached_tokens < max(READ_SHARE * kept_tokens, BLOCK_TOKENS):
        lifetime_seconds = find_lifetime()
        if lifetime_seconds is not None and prefix.pause_seconds > lifetime_seconds:
            return "expired"
    if kept_tokens - cached_tokens > could_tokens - kept_tokens:  # the larger part decides
        return "unknown"
    return "cut" if prefix.is_ours else "prefix"


MAX_BYTES = 16 * 1024 * 1024  # chosen: some hundred sessions of a thousand messages, or some twenty thousand short ones
MAX_NEWEST_BYTES = 1024 * 1024  # chosen: some three thousand sessions
FINGERPRINT_BYTES = 40  # an int of 64 bits in a tuple, in CPython
REQUEST_BYTES = 300  # What is kept of a request beside its fingerprints. Measured with CPython 3.12, rounded up.
HASH_BYTES = 80  # A hash of 32 bytes as an object: 65 bytes in CPython, rounded up to its blocks
MAX_NEW_MESSAGES = 1000  # By which a known session may grow between two requests. Chosen: far above one turn.

_NO_PREFIX = bytes(32)  # The hash of a prefix without a message
Fingerprints = tuple[int, ...]
_Key = tuple[str, bytes]


class Sent(msgspec.Struct, frozen=True):
    """A request that was sent. fixed: its parts outside the messages. is_changed: trimtab changed it."""

    original: Sequence[Message]
    forwarded: Conversation
    fixed: Sequence[bytes]
    age_seconds: float = 0.0
    is_changed: bool = False


class Request(msgspec.Struct, frozen=True):
    """What is kept of a request.

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

    before: None if it is not known, or had other tools or instructions. prefix: how what was sent begins, beside it.
    """

    key: _Key
    now: Request
    before: Request | None
    prefix: Prefix | None


class PreviousRequests:
    """The newest request of each session. Thread-safe. clock: in seconds; one that goes on while a laptop sleeps."""

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

        client: the tenant, the upstream and the model, which have a prompt cache of their own. The previous request is
        the longest known one, at most MAX_NEW_MESSAGES shorter, else the last one with the same first message.
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
        # Without an answer that the model is to go on with: later transcripts have the whole one.
        begun = bool(original) and original[-1].role is Role.ASSISTANT and hashes[-2:][0] != _NO_PREFIX
        end = hashes[-2:][0] if begun else hashes[-1]
        if found is not None and continues and key[1] != end and found.outside == outside:
            self._requests[key] = replace(found, fingerprints=())
        return self._keep(client, hashes, end, now, before, prefix)

    def learn(self, seen: Seen, cache: Cache) -> None:
        if cache != seen.now.cache:
            kept = self._requests.get(seen.key)
            is_there = kept is None or kept.outside == seen.now.outside
            self._requests[seen.key if is_there else _set_apart(seen.key, seen.now.outside)] = replace(
                seen.now, cache=cache
            )

    def _find(self, client: str, hashes: Sequence[bytes], outside: int) -> tuple[_Key, Request | None]:
        """The longest known request that a transcript goes on with, of the same tools if there is one."""
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


def _set_apart(key: _Key, outside: int) -> _Key:
    """The key of a request while one with the same transcript, and other tools or instructions, has its own."""
    return f"{key[0]} {outside}", key[1]


def _find_first(hashes: Sequence[bytes]) -> bytes | None:
    for known in hashes:
        if known != _NO_PREFIX:
            return known
    return None


_TELL_RAW, _TELL_EDITED = attrgetter("raw"), attrgetter("edited")


def _list_fingerprints(messages: Sequence[Message]) -> list[int]:
    """Hashes of the forwarded bytes, which remember them. Python's hash is keyed: nobody can construct a collision."""
    raws: list[Hashable] = list(map(_TELL_RAW, messages))
    if not all(raws) or any(map(_TELL_EDITED, messages)):
        raws = [
            one.raw if one.raw and not one.edited else (one.raw, one.role, one.texts, one.media, one.tool_calls)
            for one in messages
        ]
    return list(map(hash, raws))


def _count_common(before: Fingerprints, now: Fingerprints, forwarded: Conversation) -> int:
    if now[: len(before)] == before:  # the usual case: only new messages
        tokens = forwarded.tokens
        for message in forwarded.messages[len(before) - 1 :]:
            tokens -= message.tokens
        return tokens
    tokens = 0
    sizes = (forwarded.fixed_tokens, *(message.tokens for message in forwarded.messages))
    for old, new, size in zip(before, now, sizes, strict=False):
        if old != new:
            break
        tokens += size
    return tokens
