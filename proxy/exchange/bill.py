"""Draws the bill of an answered request: what it has cost, and what it would have cost if it had passed unchanged.

Law: it only observes. What the upstream reports is the truth. trimtab's own counts are used only for the rest.
"""

from proxy.account.outcome import Answered
from proxy.account.previous_request import Request, Seen
from proxy.account.prompt_cache import (
    MIN_CACHED_TOKENS,
    Cache,
    Case,
    add_removed,
    count_cached,
    imagine,
    watch_cache,
)
from proxy.catalogue.lifetimes import find_lifetime_seconds
from proxy.catalogue.prices import Bill, PriceList, Tokens, find_price_list, price
from proxy.exchange.answer import Observed
from proxy.exchange.attempt import Attempt, Prepared
from proxy.exchange.route import Route
from proxy.exchange.services import Services
from rules.conversation import Conversation


def draw_bill(
    services: Services, route: Route, attempt: Attempt, answered: Answered, observed: Observed
) -> Bill | None:
    """The bill of an answer; None if its tokens are not known."""
    if answered.completion_tokens is None:
        return None
    if not isinstance(attempt, Prepared):  # it passed unchanged
        prices = find_price_list(services.config, route.settings, route.target.model)
        if answered.prompt_tokens is None:
            return None
        return _draw(_read_tokens(answered), None, prices, is_estimated=answered.is_estimated)
    seen = observed.seen
    case = _make_case(attempt, seen, answered, observed.prefix_kept)
    is_changed = attempt.outcome == "compacted"
    without: Tokens | None = None
    if attempt.chosen.planned.original.continues:  # the upstream holds messages that are not known here
        without = add_removed(case.sent, case.original_tokens - case.sent_tokens) if is_changed else None
    else:
        without = imagine(case) if is_changed or (seen is not None and seen.now.is_changed) else None
        if seen is not None and case.is_fresh:
            services.previous.learn(seen, watch_cache(case))
    is_estimated = answered.is_estimated or answered.prompt_tokens is None
    return _draw(case.sent, without, attempt.call.view.price_list, is_estimated=is_estimated)


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


def _make_case(attempt: Prepared, seen: Seen | None, answered: Answered, prefix_kept: float | None) -> Case:
    """The request as it was sent, and as the client sent it."""
    call, compacted = attempt.call, attempt.compacted
    is_sent_original = call.route.target.mode != "enforce"
    original_tokens = compacted.original_tokens
    sent_tokens = original_tokens if is_sent_original else compacted.sent_tokens
    lifetime_seconds = find_lifetime_seconds(call.route.upstream.base_url, call.route.target.model)
    before = None if seen is None else seen.before
    pause_seconds = 0.0 if seen is None or before is None else seen.now.sent_at - before.sent_at
    is_fresh = lifetime_seconds is None or pause_seconds <= lifetime_seconds
    known_share = None if before is None else _find_share(attempt.chosen.planned.original, before)
    sent = _read_tokens(answered)
    if answered.prompt_tokens is None:
        kept_share = known_share if attempt.outcome != "compacted" else prefix_kept
        cached_tokens = count_cached((kept_share or 0.0) * sent_tokens) if is_fresh else 0
        tier = call.view.price_list.at(sent_tokens)
        writes = tier.cache_write > tier.input and sent_tokens >= MIN_CACHED_TOKENS
        written_tokens = sent_tokens - cached_tokens if writes else 0
        sent = Tokens.of(sent_tokens, cached_tokens, written_tokens, answered.completion_tokens)
    cache = Cache() if before is None else before.cache
    return Case(sent, sent_tokens, original_tokens, prefix_kept, known_share, is_fresh, cache)


def _find_share(original: Conversation, before: Request) -> float:
    """The share of the client's prompt that the previous request of its session had, too."""
    new_tokens = sum(message.tokens for message in original.messages[before.messages :])
    return 1 - new_tokens / max(original.tokens, 1)
