"""What a request costs by each of three strategies: with trimtab, unchanged, and with a sliding window.

Law: all three by the same rules. The upstream's cache holds what equals the beginning of the session's previous prompt,
in whole blocks, for its lifetime. It misses nothing else, and nobody pushes anybody out.
"""

import itertools
from dataclasses import dataclass, field, replace

from trimtab.proxy.account.previous_request import PreviousRequests, Sent
from trimtab.proxy.account.prompt_cache import MIN_CACHED_TOKENS, Prefix, count_cached
from trimtab.proxy.catalogue.prices import PriceList, Tokens
from trimtab.proxy.compaction.engine import Compaction
from trimtab.rules.conversation import Conversation, Role, count_leading, starts_step

TRIMTAB, NOTHING, SLIDING = STRATEGIES = ("trimtab", "nothing", "sliding")
USD, INPUT_TOKENS = "usd", "input_tokens"
"""Units of costs. A price that is not in dollars is told in the price of one ordinary prompt token."""
_PER_MILLION = 1e-6
"""Source: prices in dollars are those of a million tokens."""


@dataclass(frozen=True, slots=True)
class Paid:
    """How a model's tokens are paid for. lifetime_seconds: of its cache; None if only the server's memory limits it."""

    prices: PriceList
    lifetime_seconds: float | None = None

    @property
    def unit(self) -> str:
        return USD if self.prices.is_in_dollars else INPUT_TOKENS

    def weigh(self, tokens: Tokens) -> float:
        tier = self.prices.at(tokens.prompt)
        cost = tokens.fresh * tier.input + tokens.cached * tier.cached_input
        cost += tokens.written * tier.cache_write + tokens.completion * tier.output
        return cost * _PER_MILLION if self.prices.is_in_dollars else cost / (tier.input or 1.0)

    def imagine(self, prompt_tokens: int, kept_tokens: float, completion_tokens: int) -> Tokens:
        """The tokens of a prompt of which `kept_tokens` at its beginning were sent before."""
        tier, cached = self.prices.at(prompt_tokens), min(count_cached(kept_tokens), prompt_tokens)
        writes = tier.cache_write > tier.input and prompt_tokens >= MIN_CACHED_TOKENS
        return Tokens.of(prompt_tokens, cached, prompt_tokens - cached if writes else 0, completion_tokens)


@dataclass(frozen=True, slots=True)
class Spent:
    """What a request costs. kept_share: of the prompt, what equals the previous one; None if not known."""

    tokens: Tokens
    cost: float
    kept_share: float | None


@dataclass(slots=True)
class PromptCaches:
    """The upstream's cache under each strategy. Memory is bounded: sessions that were forgotten begin again."""

    _now: float = 0.0
    _previous: dict[str, PreviousRequests] = field(init=False)

    def __post_init__(self) -> None:
        self._previous = {strategy: PreviousRequests(lambda: self._now) for strategy in STRATEGIES}

    def send(
        self, session: str, compaction: Compaction, paid: Paid, *, at: float, completion_tokens: int
    ) -> dict[str, Spent]:
        """What a request costs by each strategy if it is sent at a time, in seconds."""
        self._now, original = max(at, self._now), compaction.planned.original
        request, plan, ratio = compaction.request, compaction.planned.plan, compaction.variant.policy.token_ratio
        prompts = {TRIMTAB: compaction.sent, NOTHING: original, SLIDING: slide_window(original, plan.limit)}
        spent = {}
        for strategy, prompt in prompts.items():
            previous, client = self._previous[strategy], f"{session} {request.model}"
            prefix = previous.observe(client, plan.hashes, Sent(original.messages, prompt, request.fixed)).prefix
            kept_tokens = _find_kept(prefix, paid.lifetime_seconds) * ratio
            tokens = paid.imagine(round(prompt.tokens * ratio), kept_tokens, completion_tokens)
            kept_share = prefix.kept_share if prefix is not None and prefix.continues else None
            spent[strategy] = Spent(tokens, paid.weigh(tokens), kept_share)
        return spent


def _find_kept(prefix: Prefix | None, lifetime_seconds: float | None) -> float:
    if prefix is None or (lifetime_seconds is not None and prefix.pause_seconds > lifetime_seconds):
        return 0.0
    return prefix.kept_tokens


def slide_window(conversation: Conversation, limit_tokens: int) -> Conversation:
    """The transcript without its oldest steps, so that it fits; the conversation itself if it does.

    The system messages at the beginning and the first user message stay, and so does the last step.
    """
    tokens = conversation.tokens
    if tokens <= limit_tokens or conversation.continues:
        return conversation
    messages = conversation.messages
    leading = count_leading(messages)
    task = next((at for at in range(leading, len(messages)) if messages[at].role is Role.USER), None)
    head = {*range(leading), task}
    starts = [at for at in range(leading, len(messages)) if starts_step(messages[at])]
    gone: set[int] = set()
    for start, stop in itertools.pairwise(starts):
        if tokens <= limit_tokens:
            break
        step = {at for at in range(start, stop) if at not in head}
        tokens -= sum(messages[at].tokens for at in step)
        gone |= step
    kept = [at for at in range(len(messages)) if at not in gone]
    return replace(
        conversation,
        messages=tuple(messages[at] for at in kept),
        origins=tuple(conversation.origins[at] for at in kept),
    )
