"""Every number that a rule needs.

Law: plain values, already validated. Shares are of the room that the window leaves (see window/state.py).
"""

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from rules.economy import Economy, find_budgets
from rules.treatment import MAX_NAME_CHARS, Budget, Tidying, ToolRule, Treatment, Truncation

EXACT_SHARE = 0.97
"""Of what a completion leaves to the prompt: our counts may be a little off."""
PREFETCH_GAP = 0.15
"""Share of room below the limit. From there on the next cut is fixed, and its summary asked for ahead: a request that
does not fit must not wait for one."""


INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md", "SKILL.md")
"""Names of files that tell an agent how to work."""

DEFAULT_WINDOW = 128_000
"""The window of a model that nothing is known about."""
_FITTED = find_budgets(Economy.BALANCED, DEFAULT_WINDOW)
DEFAULT_BUDGET = Budget(max_tokens=4000)
ALL_TIDYING = Tidying()


class OverflowStrategy(StrEnum):
    """How far down the ladder a policy goes."""

    AUTO_COMPACT = "auto_compact"
    PRUNE = "prune"
    SUMMARIZE = "summarize"
    ERROR = "error"

    @property
    def asks_a_model(self) -> bool:
        """Whether summaries are asked for."""
        return self in {OverflowStrategy.AUTO_COMPACT, OverflowStrategy.SUMMARIZE}


class SummaryRole(StrEnum):
    """Who speaks a summary, and whether it joins the task statement (see summary/splice.py)."""

    AUTO = "auto"
    USER = "user"
    SYSTEM = "system"
    ASSISTANT = "assistant"
    PAIR = "pair"


class OnExceeded(StrEnum):
    """What is done with a request that nothing could bring within the limit."""

    ERROR = "error"
    FORWARD = "forward"
    TRUNCATE = "truncate"


@dataclass(frozen=True, slots=True)
class Prices:
    """What a token costs, as ratios: an input token, one that the upstream's prompt cache holds, an output token."""

    input: float = 1.0
    cached_input: float = 0.1
    output: float = 4.0


@dataclass(frozen=True, slots=True)
class Policy:
    """What a model's requests are compacted by.

    `context_window`, `completion_reserve` and `ceiling_tokens` are in the model's own tokens, of which `token_ratio`
    make one of ours. All else is in ours; budgets of single results do not depend on the ratio. `ceiling_tokens` bounds
    the limit if an upstream has refused more. `added_tokens` is set if the upstream adds the completion's maximum to
    the prompt: it is the maximum that counts if the request names none. `result_budget`, `truncation`, `tidying` and
    `dedupe` are for the results of all tools that none of `tools` matches. `anchor_share` is the share of low water
    that the index of exact names behind a summary may have. Of the newest images `keep_images` stay, and less than
    twice as many at any time; None for as many as fit. `instruction_files` are globs on the names of files that stay
    behind a cut once they were read.
    """

    context_window: int = DEFAULT_WINDOW
    completion_reserve: int = 8192
    high_water: float = _FITTED.high_water
    low_water: float = _FITTED.low_water
    overflow_strategy: OverflowStrategy = OverflowStrategy.AUTO_COMPACT
    on_exceeded: OnExceeded = OnExceeded.TRUNCATE
    result_budget: Budget = DEFAULT_BUDGET
    protect_turns: int = 2
    keep_user_tokens: int = 20_000
    summary_max_tokens: int = _FITTED.summary_tokens
    summary_min_steps: int = 6
    summary_role: SummaryRole = SummaryRole.AUTO
    prices: Prices = Prices()
    token_ratio: float = 1.0
    ceiling_tokens: int | None = None
    added_tokens: int | None = None
    truncation: Truncation = Truncation.SALIENT
    tidying: Tidying | None = ALL_TIDYING
    dedupe: bool = True
    tools: tuple[ToolRule, ...] = ()
    anchor_share: float = _FITTED.anchor_share
    keep_images: int | None = None
    instruction_files: tuple[str, ...] = INSTRUCTION_FILES

    def find_treatment(self, name: str) -> Treatment:
        """What becomes of a tool's results: the first of `tools` that matches its name decides, case and all.

        None matches a name beyond MAX_NAME_CHARS.
        """
        matching = (rule.treatment for rule in self.tools if fnmatchcase(name, rule.match))
        return next(matching, self.treatment) if len(name) <= MAX_NAME_CHARS else self.treatment

    def treatments(self) -> tuple[Treatment, ...]:
        """All that results may meet with."""
        return (self.treatment, *(rule.treatment for rule in self.tools))

    @property
    def treatment(self) -> Treatment:
        """What becomes of the results of all tools that none of `tools` matches."""
        return Treatment(self.result_budget, self.truncation, self.tidying, self.dedupe)

    def limit_tokens(self, request_max_tokens: int | None = None) -> int:
        """Prompt tokens that a request may have, as we count them: see `model_limit_tokens`."""
        return int(self.model_limit_tokens(request_max_tokens) / self.token_ratio)

    def hard_limit_tokens(self, request_max_tokens: int | None = None) -> int:
        """What a prompt may have at the very most, as we count it: the window, without a reserve that nobody asked for.

        Beyond `limit_tokens` the completion may be cut short; beyond this the upstream surely refuses.
        """
        hard = self.context_window
        if self.added_tokens is not None:
            hard -= self.added_tokens if request_max_tokens is None else request_max_tokens
        if self.ceiling_tokens is not None:
            hard = min(hard, self.ceiling_tokens)
        return max(int(hard / self.token_ratio), self.limit_tokens(request_max_tokens))

    def fitting_tokens(self, request_max_tokens: int | None = None) -> int:
        """Prompt tokens that the window holds beside the completion that the request asks for, as we count them.

        If it asks for no maximum: the prompt alone. Never less than `limit_tokens`.
        """
        asked_tokens = 0 if self.added_tokens is not None else request_max_tokens or 0
        hard = self.hard_limit_tokens(request_max_tokens) - int(asked_tokens / self.token_ratio)
        return max(hard, self.limit_tokens(request_max_tokens))

    def spare_tokens(self, request_max_tokens: int | None = None) -> int:
        """What a prompt may have beyond `limit_tokens` before it is shortened, as we count it.

        Half of the reserve, if the completion that the request asks for fits the other half; else nothing. So a maximum
        that changes from request to request changes nothing here while it stays below that.
        """
        half = min(self.completion_reserve, self.context_window // 4) // 2
        if request_max_tokens is not None and request_max_tokens > half:
            return 0
        fitting = self.fitting_tokens(request_max_tokens) - self.limit_tokens(request_max_tokens)
        return max(min(int(half / self.token_ratio), fitting), 0)

    def model_limit_tokens(self, request_max_tokens: int | None = None) -> int:
        """The same in the model's own tokens: the window less the reserve for the completion.

        The configured reserve is at most a quarter of the window. The request's own maximum may raise it, rounded up
        to a power of two (so that a changing maximum does not move cuts), to at most half; to all of it where the
        upstream adds it to the prompt.
        """
        reserve = min(self.completion_reserve, self.context_window // 4)
        if request_max_tokens is not None and request_max_tokens > 0:
            reserve = max(reserve, _round_up(request_max_tokens))
        limit = self.context_window - min(reserve, self.context_window // 2)
        if self.added_tokens is not None:
            added_tokens = self.added_tokens if request_max_tokens is None else request_max_tokens
            limit = min(limit, max(int(EXACT_SHARE * (self.context_window - added_tokens)), 0))
        return limit if self.ceiling_tokens is None else min(limit, self.ceiling_tokens)


class Limits(NamedTuple):
    """What a policy allows a request that asks for some completion; see the methods of these names."""

    model_limit: int
    limit: int
    fitting: int
    hard_limit: int
    spare: int


MAX_LIMITS = 256
_LIMITS: dict[tuple[int, int | None], tuple[Policy, Limits]] = {}


def find_limits(policy: Policy, request_max_tokens: int | None) -> Limits:
    """The limits of a request. Worked out once for a policy: by identity, because its equality is slow."""
    key = id(policy), request_max_tokens
    known = _LIMITS.get(key)
    if known is None or known[0] is not policy:
        limits = Limits(
            policy.model_limit_tokens(request_max_tokens),
            policy.limit_tokens(request_max_tokens),
            policy.fitting_tokens(request_max_tokens),
            policy.hard_limit_tokens(request_max_tokens),
            policy.spare_tokens(request_max_tokens),
        )
        if len(_LIMITS) >= MAX_LIMITS:
            _LIMITS.clear()
        known = _LIMITS[key] = policy, limits
    return known[1]


@lru_cache(maxsize=256)
def name_policy(policy: Policy) -> bytes:
    """32 bytes that tell policies apart, as their equality does. Worked out once for each."""
    return sha256(repr(policy).encode()).digest()


def _round_up(tokens: int) -> int:
    """The next power of two."""
    return 1 << (tokens - 1).bit_length() if tokens > 0 else 0
