"""Draws the bill of an answered request: what it has cost, and what it would have cost if it had passed unchanged.

Law: it only observes. What the upstream reports is the truth. trimtab's own counts are used only for the rest.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

from proxy.account.outcome import Answered
from proxy.account.prompt_cache import (
    MIN_CACHED_TOKENS,
    Cache,
    Case,
    add_removed,
    count_cached,
    imagine,
    watch_cache,
)
from proxy.account.statistics.sessions import Seen, Sessions
from proxy.compaction.offload import INLINE_BYTES, MANY_MESSAGES
from proxy.exchange.attempt import Attempt, Call, Prepared
from proxy.exchange.route import Route
from proxy.exchange.services import Services
from proxy.state.catalogue.lifetimes import find_lifetime_seconds
from proxy.state.catalogue.prices import Bill, PriceList, Tokens, find_price_list, price
from rules.conversation import Conversation, Role


@dataclass(frozen=True, slots=True)
class _Past:
    """The previous request of a session, and where this one is kept. Times are in seconds.

    seen: None if the session is not known. share: of the client's prompt, what the previous request had, too.
    """

    client: Hashable
    hashes: Sequence[bytes]
    seen: Seen | None
    share: float
    now: float


async def draw_bill(
    services: Services, route: Route, attempt: Attempt, answered: Answered, prefix_kept: float | None
) -> Bill | None:
    """The bill of an answer; None if its tokens are not known.

    prefix_kept: the share of what was sent that equals the previous request of the session; None if it is not known.
    """
    if answered.completion_tokens is None:
        return None
    if not isinstance(attempt, Prepared):  # it passed unchanged
        prices = find_price_list(services.config, route.settings, route.target.model)
        if answered.prompt_tokens is None:
            return None
        return _draw(_read_tokens(answered), None, prices, is_estimated=answered.is_estimated)
    call, planned, books = attempt.call, attempt.chosen.planned, services.recorder.books
    original, hashes, sessions, now = planned.original, planned.plan.hashes, books.sessions, books.clock()
    work = partial(_find_past, sessions, call, original, hashes, now)
    size_bytes = INLINE_BYTES + 1 if len(hashes) > MANY_MESSAGES else 0
    past = await services.workers.run(call.lane, work, size_bytes=size_bytes)
    case = _make_case(attempt, past, answered, prefix_kept)
    is_changed = attempt.outcome == "compacted"
    without: Tokens | None = None
    if original.continues:  # the upstream holds messages that are not known here
        without = add_removed(case.sent, case.original_tokens - case.sent_tokens) if is_changed else None
    else:
        is_changed = is_changed or (past.seen is not None and past.seen.is_changed)
        without = imagine(case) if is_changed else None
        cache = watch_cache(case) if case.is_fresh else case.cache
        sessions.keep(past.client, hashes, Seen(len(original.messages), now, is_changed, cache))
    is_estimated = answered.is_estimated or answered.prompt_tokens is None
    return _draw(case.sent, without, call.view.price_list, is_estimated=is_estimated)


def _draw(tokens: Tokens, without: Tokens | None, prices: PriceList, *, is_estimated: bool) -> Bill:
    """The bill for some tokens; `without`: None if the request would have cost the same without trimtab."""
    cost = price(tokens, prices)
    if without is None:
        return Bill(tokens, tokens, cost, cost, is_estimated)
    return Bill(tokens, without, cost, price(without, prices), is_estimated)


def _read_tokens(answered: Answered) -> Tokens:
    return Tokens.of(
        answered.prompt_tokens or 0, answered.cached_tokens, answered.written_tokens, answered.completion_tokens
    )


def _find_past(sessions: Sessions, call: Call, original: Conversation, hashes: Sequence[bytes], now: float) -> _Past:
    """Find the previous request of a session, as the client sent it."""
    messages, fixed = original.messages, call.request.fixed
    # The hashes leave out instructions and tools, but a cache does not. Python's hash is keyed: nobody can choose it.
    instructions = [message.raw for message in takewhile(lambda message: message.role is Role.SYSTEM, messages)]
    base_url, model = call.route.upstream.base_url, call.route.target.model
    client = (call.arrival.tenant.id, hash((base_url, model, tuple(fixed), tuple(instructions))))
    seen = sessions.find(client, hashes)
    new_tokens = 0 if seen is None else sum(message.tokens for message in messages[seen.messages :])
    tokens = original.tokens
    return _Past(client, hashes, seen, 1 - new_tokens / max(tokens, 1), now)


def _make_case(attempt: Prepared, past: _Past, answered: Answered, prefix_kept: float | None) -> Case:
    """The request as it was sent, and as the client sent it."""
    call, compacted = attempt.call, attempt.compacted
    is_sent_original = call.route.target.mode != "enforce"
    original_tokens = compacted.original_tokens
    sent_tokens = original_tokens if is_sent_original else compacted.sent_tokens
    lifetime_seconds = find_lifetime_seconds(call.route.upstream.base_url, call.route.target.model)
    pause_seconds = 0.0 if past.seen is None else past.now - past.seen.at
    is_fresh = lifetime_seconds is None or pause_seconds <= lifetime_seconds
    known_share = None if past.seen is None else past.share
    sent = _read_tokens(answered)
    if answered.prompt_tokens is None:
        kept_share = known_share if attempt.outcome != "compacted" else prefix_kept
        cached_tokens = count_cached((kept_share or 0.0) * sent_tokens) if is_fresh else 0
        tier = call.view.price_list.at(sent_tokens)
        writes = tier.cache_write > tier.input and sent_tokens >= MIN_CACHED_TOKENS
        written_tokens = sent_tokens - cached_tokens if writes else 0
        sent = Tokens.of(sent_tokens, cached_tokens, written_tokens, answered.completion_tokens)
    cache = Cache() if past.seen is None else past.seen.cache
    return Case(sent, sent_tokens, original_tokens, prefix_kept, known_share, is_fresh, cache)
