"""What an upstream would have read of the client's own prompt from its cache, and why it read less than it could have.

Pure: no I/O and no clock. What a request would have cost if it had passed unchanged: the upstream's cache treats both
prompts alike. Of the beginning that equals the previous request of the session, the same share is read from the cache:
of what was sent, as the upstream reports it; of the client's own prompt, as it would have. The bench uses the same
rules (bench/sessions/ledger.py), with a cache that misses nothing.

Law: without a change there is no difference. A prompt that is longer is never cheaper for being longer: what is added
to it is counted by the same prices. A miss has one cause, and an upstream that reports no cached tokens gets none.
"""

from collections.abc import Callable
from typing import Literal

import msgspec

from trimtab.proxy.account.outcome import Answered
from trimtab.proxy.catalogue.prices import Tokens

BLOCK_TOKENS = 128
"""Caches hold whole blocks. Source: OpenAI's and Azure's; others have smaller ones. The bench uses the same."""
MIN_CACHED_TOKENS = 1024
"""A shorter beginning is not cached. Source: OpenAI's; some others cache from 256 tokens, or from 4,096 only. The bench
uses the same."""
MAX_SCALE = 4.0
"""The upstream's tokens are at most this many of ours, and at least one by as many. Beyond, our estimate of one of both
prompts says nothing about the other. Chosen: far from any tokenizer, but the upstream may hold a part of the prompt."""
GOES_ON_SHARE = 0.5
"""If this share of a prompt was cached although its session is not known here, the session goes on from another
process. Chosen: far above what different sessions of one client have in common."""
READ_SHARE = 0.8
"""An upstream that read this share of what it could have read has not missed. Chosen: our count of
a part of a prompt may be wrong by a tenth, compared with the rest of it; a difference of twice that is a miss."""
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
        return self.kept_tokens / max(self.tokens, 1)


class Cache(msgspec.Struct, frozen=True):
    """How the upstream's cache has treated a session.

    hit_share: of the beginning that could be cached, the share that was read. written_share: of the rest, what was
    written.
    """

    hit_share: float = 1.0
    written_share: float = 0.0


class Case(msgspec.Struct, frozen=True):
    """One request as it was sent, and as the client sent it.

    sent: as the upstream reports it.
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


def imagine(case: Case) -> Tokens:
    prompt, cache = _scale_original(case), watch_cache(case)
    # What trimtab has sent in addition to the cached beginning would have been new in the client's own prompt, too.
    old = prompt - (case.sent.prompt - case.sent.cached)
    if case.known_share is None:
        goes_on = case.sent.cached >= GOES_ON_SHARE * case.sent.prompt
        cached = old if goes_on and case.sent.cached else min(case.sent.cached, prompt)
    else:
        could_tell = count_cached((case.kept_share or 0.0) * case.sent.prompt) > 0
        hit_share = cache.hit_share if could_tell or case.is_fresh else 0.0
        cached = count_cached(hit_share * case.known_share * prompt)
        cached = max(cached, old) if case.sent.cached else cached
    cached = max(min(cached, prompt), 0)
    return Tokens.of(prompt, cached, round(cache.written_share * (prompt - cached)), case.sent.completion)


def _scale_original(case: Case) -> int:
    scale = case.sent.prompt / max(case.sent_tokens, 1)
    if 1 / MAX_SCALE <= scale <= MAX_SCALE:
        return round(scale * case.original_tokens)
    return max(case.sent.prompt + case.original_tokens - case.sent_tokens, 0)


def add_removed(sent: Tokens, tokens: int) -> Tokens:
    """The tokens of a request with as many new ones as trimtab has removed. They are fresh or written as the rest is.

    It is for a request whose earlier messages the upstream holds: they passed before, and what was removed is new.
    """
    rest = sent.fresh + sent.written
    added = max(tokens, -rest)
    written = round(added * sent.written / rest) if rest else 0
    return Tokens.of(sent.prompt + added, sent.cached, sent.written + written, sent.completion)


def find_cause(prefix: Prefix | None, answered: Answered, find_lifetime: Callable[[], float | None]) -> Cause:
    """The cause of a miss; empty for none.

    prefix: how the prompt begins; None for the first known request of a session.
    find_lifetime: the seconds for which the upstream keeps a cached prompt; None if no time limits it.
    """
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
