"""Says why an upstream read less of a prompt from its cache than it could have.

Law: no I/O and no clock. A request has one cause or none, and an upstream that reports no cached tokens gets none.
"""

from collections.abc import Callable
from typing import Literal

from proxy.account.outcome import Answered
from proxy.compaction.prefix_watch import Prefix

Cause = Literal["", "cut", "expired", "prefix", "cold", "unknown"]
"""Why the cache was missed; empty if it was not.

cut: trimtab changed the beginning of the prompt, by a cut or another decision.
prefix: the client changed its own transcript, instructions or tools.
expired: the pause before the request was longer than the upstream keeps a cached prompt.
cold: the first known request of a session, of which the upstream had nothing.
unknown: the beginning stayed the same, the request came in time, and the upstream still read little of it.
"""
BLOCK_TOKENS = 128
"""Caches hold whole blocks. Source: OpenAI's and Azure's; others have smaller ones."""
MIN_CACHED_TOKENS = 1024
"""A shorter beginning is not cached. Source: OpenAI's; some others cache from 256 tokens, or from 4,096 only."""
READ_SHARE = 0.8
"""An upstream that read this share of what it could have read has not missed. Chosen: our count of
a part of a prompt may be wrong by a tenth, compared with the rest of it; a difference of twice that is a miss."""


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
    could_tokens = _count_cacheable(min(scale * prefix.previous_tokens, prompt_tokens))
    if not could_tokens or cached_tokens >= READ_SHARE * could_tokens:
        return ""
    kept_tokens = _count_cacheable(min(scale * prefix.kept_tokens, prompt_tokens))
    # An upstream that has read all that was left of the prompt's beginning has kept it until now.
    if cached_tokens < max(READ_SHARE * kept_tokens, BLOCK_TOKENS):
        lifetime_seconds = find_lifetime()
        if lifetime_seconds is not None and prefix.pause_seconds > lifetime_seconds:
            return "expired"
    if kept_tokens - cached_tokens > could_tokens - kept_tokens:  # the larger part decides
        return "unknown"
    return "cut" if prefix.is_ours else "prefix"


def _count_cacheable(tokens: float) -> int:
    """The tokens of a beginning that a cache can hold."""
    return 0 if tokens < MIN_CACHED_TOKENS else int(tokens) // BLOCK_TOKENS * BLOCK_TOKENS
