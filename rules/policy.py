"""The settings that the rules need, of all results and of one tool's, and the token limits that follow from them.

Law: plain, hashable values, already validated; equal treatments produce the same text from the same result.
`high_water` and `low_water` are shares of the room: the limit minus the head.
"""

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import NamedTuple

import msgspec

from trimtab.rules.economy import Economy, find_budgets

MAX_NAME_CHARS = 256
"""A longer tool name matches no glob: this bounds the time of a match. Chosen: upstreams allow at most 64."""
ERROR_FACTOR = 2
"""An error result may have this many times the budget. Chosen: the model must act on it."""


class Tidying(msgspec.Struct, frozen=True):
    """The clean-ups of tool results that are on."""

    ansi: bool = True
    """Remove ANSI, VT and OSC escape sequences."""
    progress: bool = True
    """Keep only the last state of progress lines that overwrite themselves with carriage returns."""
    json: bool = True
    """Remove white space between JSON values."""
    tables: bool = True
    """Write arrays of objects with the same keys as a table: a header and rows."""


class Truncation(StrEnum):
    """How a long result is shortened: to the lines that matter in a text of its kind, or to head and tail."""

    SALIENT = "salient"
    HEAD_TAIL = "head_tail"


class Budget(msgspec.Struct, frozen=True):
    """The most that one tool result may have: `max_tokens`, and `max_bytes` of UTF-8 unless None."""

    max_tokens: int
    max_bytes: int | None = None

    def for_error(self) -> "Budget":
        """The budget of an error result: ERROR_FACTOR times this one."""
        max_bytes = None if self.max_bytes is None else self.max_bytes * ERROR_FACTOR
        return Budget(self.max_tokens * ERROR_FACTOR, max_bytes)


class Treatment(msgspec.Struct, frozen=True):
    """How the results of one tool are treated.

    An exempt result is not tidied, truncated or deduplicated. `is_exempt` exempts all results of the tool.
    `exempt_arguments` are globs: the result of a call is exempt if one of them matches an argument of the call (see
    rules/results/calls.py).
    """

    budget: Budget
    truncation: Truncation = Truncation.SALIENT
    tidying: Tidying | None = None
    dedupe: bool = True
    is_exempt: bool = False
    exempt_arguments: tuple[str, ...] = ()


class ToolRule(msgspec.Struct, frozen=True):
    """The treatment of all tools with a name that the glob `match` matches."""

    match: str
    treatment: Treatment


EXACT_SHARE = 0.97
"""If the upstream adds the completion to the prompt, the prompt gets this share of what the completion leaves of the
window. Chosen: the rest is a margin for inexact counts."""
PREFETCH_GAP = 0.15
"""If less than this share of the room is left, the next cut is fixed and its summary is asked for in the background.
The summary is then ready when a request no longer fits without it. Chosen in the first prototype and kept since."""


INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md", "SKILL.md")
"""Default names of files that tell an agent how to work."""
MEMORY_TAGS = ("relevant_context",)
"""Default names of the tags around retrieved memory."""

DEFAULT_WINDOW = 128_000
"""The context window, in tokens, of a model about which nothing is known. Chosen."""
_FITTED = find_budgets(Economy.BALANCED, DEFAULT_WINDOW)
THRESHOLD_LOW = 0.5
"""Low water is at most this share of a threshold that is set without a low water. Chosen: with more, a cut would come
after every few steps."""
DEFAULT_BUDGET = Budget(max_tokens=4000)
ALL_TIDYING = Tidying()


class OverflowStrategy(StrEnum):
    """The action when a conversation reaches high water."""

    AUTO_COMPACT = "auto_compact"
    PRUNE = "prune"
    SUMMARIZE = "summarize"
    ERROR = "error"

    @property
    def asks_a_model(self) -> bool:
        return self in {OverflowStrategy.AUTO_COMPACT, OverflowStrategy.SUMMARIZE}


class SummaryRole(StrEnum):
    """The role of a summary, and whether it is joined to the task statement (see summary/splice.py)."""

    AUTO = "auto"
    USER = "user"
    SYSTEM = "system"
    ASSISTANT = "assistant"
    PAIR = "pair"
    LAST = "last"


class OnExceeded(StrEnum):
    """The action for a request that stays over the limit after all rules were applied."""

    ERROR = "error"
    FORWARD = "forward"
    TRUNCATE = "truncate"


class PreserveSystem(StrEnum):
    """Which system messages stay verbatim: those at the beginning, or all."""

    LEADING = "leading"
    ALL = "all"


class SectionShares(msgspec.Struct, frozen=True):
    """The share of the limit that each section of a prompt may have. See tokens/sections.py for the sections.

    Source of the defaults: the design.
    """

    system: float = 0.20
    summary: float = 0.10
    memory: float = 0.10
    recent: float = 0.55
    current: float = 0.05

    @property
    def total(self) -> float:
        return self.system + self.summary + self.memory + self.recent + self.current


class Prices(msgspec.Struct, frozen=True):
    """Prices of a token, relative to each other.

    `input` is an ordinary prompt token, `cached_input` one that the upstream's prompt cache holds, `output` a
    completion token, `cache_write` a prompt token that the upstream writes into its cache.
    """

    input: float = 1.0
    cached_input: float = 0.1
    output: float = 4.0
    cache_write: float = 1.0


_USUAL_PRICES = Prices()


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings by which a model's requests are compacted.

    Tokens are counted with our tokenizer ("our tokens"), except `context_window`, `completion_reserve`,
    `ceiling_tokens`, `added_tokens` and `compact_at_tokens`: these are the model's own tokens. One of our tokens is
    `token_ratio` of the model's.

    - `ceiling_tokens`: the largest limit allowed, because the upstream refused more; None if it never did.
    - `added_tokens`: set if the upstream counts the completion budget against the prompt limit. The value is the budget
      that it assumes for a request without `max_tokens`.
    - `result_budget`, `truncation`, `tidying`, `dedupe`: the treatment of results if no rule of `tools` matches.
    - `anchor_share`: share of low water for what code carries over a cut (task list, instruction files, exact names).
    - `cuts_at_threshold`: the first request that reaches high water is cut. Else a cut is made when it pays.
    - `risk_share`: a cut that need not be made may add at most this share to what the session costs without trimtab.
    - `keep_images`: this many of the newest images stay. Older ones are removed when there are twice as many, because
      each removal breaks the prompt cache. None keeps as many as fit.
    - `instruction_files`: globs on file names. A file that was read and matches is carried over a cut.
    - `sections`: the share of the limit of each section; None if sections have no limits of their own. System messages
      at the beginning are truncated to theirs only if `truncate_system`.
    - `keep_recent_steps`: newest answered steps that a cut spares; None for the usual number.
    - `max_turns`: user turns that are forwarded verbatim; None for no limit.
    - `max_message_tokens`: the most that the texts of an assistant message, or of a system message after the
      beginning, may cost.
    - `truncate_users`: that also holds for user messages of earlier turns; the task statement stays.
    - `memory_tags`: names of the tags around retrieved memory.
    - `pin_instruction`: the user's goal is repeated after long tool output.
    - `recalls`: what a message names is looked up in what was cut.
    - `compact_at_tokens`: a soft limit of the prompt in the model's own tokens; None if only the window limits it.
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
    prices: Prices = _USUAL_PRICES
    token_ratio: float = 1.0
    ceiling_tokens: int | None = None
    added_tokens: int | None = None
    truncation: Truncation = Truncation.SALIENT
    tidying: Tidying | None = ALL_TIDYING
    dedupe: bool = True
    tools: tuple[ToolRule, ...] = ()
    anchor_share: float = _FITTED.anchor_share
    risk_share: float = _FITTED.risk_share
    cuts_at_threshold: bool = False
    keep_images: int | None = None
    instruction_files: tuple[str, ...] = INSTRUCTION_FILES
    preserve_system: PreserveSystem = PreserveSystem.LEADING
    sections: SectionShares | None = None
    truncate_system: bool = False
    truncate_users: bool = False
    keep_recent_steps: int | None = None
    max_turns: int | None = None
    max_message_tokens: int | None = None
    memory_tags: tuple[str, ...] = MEMORY_TAGS
    pin_instruction: bool = False
    compact_at_tokens: int | None = None
    recalls: bool = False

    def soft_limit_tokens(self, limit_tokens: int) -> int | None:
        """The size, in our tokens, at which a prompt is cut though `limit_tokens` would hold more; None for none.

        It is `compact_at_tokens` or what the shares of `sections` give together, whichever is smaller.
        """
        limits = [] if self.compact_at_tokens is None else [int(self.compact_at_tokens / self.token_ratio)]
        if self.sections is not None:
            limits.append(int(limit_tokens * self.sections.total))
        soft = min(limits, default=limit_tokens)
        return soft if soft < limit_tokens else None

    def find_treatment(self, name: str) -> Treatment:
        """The treatment of a tool's results: that of the first rule of `tools` that matches, or the default one.

        Case matters. No rule matches a name of more than MAX_NAME_CHARS characters.
        """
        matching = (rule.treatment for rule in self.tools if fnmatchcase(name, rule.match))
        return next(matching, self.treatment) if len(name) <= MAX_NAME_CHARS else self.treatment

    def treatments(self) -> tuple[Treatment, ...]:
        """All treatments that results may get: the default one, then those of `tools` in order."""
        return (self.treatment, *(rule.treatment for rule in self.tools))

    @property
    def treatment(self) -> Treatment:
        """The default treatment: that of results if no rule of `tools` matches."""
        return Treatment(self.result_budget, self.truncation, self.tidying, self.dedupe)

    def limit_tokens(self, request_max_tokens: int | None = None) -> int:
        """The limit in our tokens: `model_limit_tokens` divided by the token ratio."""
        return int(self.model_limit_tokens(request_max_tokens) / self.token_ratio)

    def hard_limit_tokens(self, request_max_tokens: int | None = None) -> int:
        """The largest prompt, in our tokens, that the upstream may accept: the window without any reserve of our own.

        Beyond `limit_tokens` the completion may be cut short. Beyond this value the upstream refuses the request.
        """
        hard = self.context_window
        if self.added_tokens is not None:
            hard -= self.added_tokens if request_max_tokens is None else request_max_tokens
        if self.ceiling_tokens is not None:
            hard = min(hard, self.ceiling_tokens)
        return max(int(hard / self.token_ratio), self.limit_tokens(request_max_tokens))

    def fitting_tokens(self, request_max_tokens: int | None = None) -> int:
        """The largest prompt, in our tokens, that fits the window together with the completion asked for.

        If the request has no `max_tokens`, half of the reserve is left for it. Never less than `limit_tokens`.
        """
        asked_tokens = self._half_reserve_tokens if request_max_tokens is None else request_max_tokens
        if self.added_tokens is not None:  # `hard_limit_tokens` has subtracted the completion already
            asked_tokens = 0
        hard = self.hard_limit_tokens(request_max_tokens) - int(asked_tokens / self.token_ratio)
        return max(hard, self.limit_tokens(request_max_tokens))

    def spare_tokens(self, request_max_tokens: int | None = None) -> int:
        """How far a prompt may exceed `limit_tokens` before it is shortened, in our tokens.

        Half of the reserve, if the request's `max_tokens` fits the other half; else 0. The result is the same for all
        smaller values of `max_tokens`, so that a client that varies it does not change what is forwarded.
        """
        half = self._half_reserve_tokens
        if request_max_tokens is not None and request_max_tokens > half:
            return 0
        fitting = self.fitting_tokens(request_max_tokens) - self.limit_tokens(request_max_tokens)
        return max(min(int(half / self.token_ratio), fitting), 0)

    @property
    def _half_reserve_tokens(self) -> int:
        return min(self.completion_reserve, self.context_window // 4) // 2

    def model_limit_tokens(self, request_max_tokens: int | None = None) -> int:
        """The limit of a prompt in the model's own tokens: the context window minus the reserve for the completion.

        The configured reserve counts for at most a quarter of the window. The request's `max_tokens`, rounded up to a
        power of two, may raise the reserve to at most half of the window. The rounding keeps cuts in place if a client
        varies `max_tokens`. If the upstream adds the completion to the prompt, the whole completion is subtracted, even
        if it is more than half of the window.
        """
        reserve = min(self.completion_reserve, self.context_window // 4)
        if request_max_tokens is not None and request_max_tokens > 0:
            reserve = max(reserve, _round_up(request_max_tokens))
        limit = self.context_window - min(reserve, self.context_window // 2)
        if self.added_tokens is not None:
            added_tokens = self.added_tokens if request_max_tokens is None else request_max_tokens
            limit = min(limit, max(int(EXACT_SHARE * (self.context_window - added_tokens)), 0))
        return limit if self.ceiling_tokens is None else min(limit, self.ceiling_tokens)

    def describe_limit(self, request_max_tokens: int | None = None) -> str:
        """In words, what a prompt may have of the window, and why it is not more."""
        limit = self.model_limit_tokens(request_max_tokens)
        free = f"{self.context_window - limit:,} of the window's {self.context_window:,} tokens stay free"
        why = "completion_reserve, at most a quarter of the window"
        if limit < self.model_limit_tokens():
            why = f"the request's max_tokens is {request_max_tokens:,}, rounded up, at most half of the window"
        return f"limit: {limit:,} tokens; {free} for the completion ({why})"


class Limits(NamedTuple):
    """The limits of one request. Each is the result of the `Policy` method of that name with `_tokens` appended."""

    model_limit: int
    limit: int
    fitting: int
    hard_limit: int
    spare: int


MAX_LIMITS = 256
"""Entries of the cache. Chosen: a server uses few policies, and clients few values of `max_tokens`."""
_LIMITS: dict[tuple[int, int | None], tuple[Policy, Limits]] = {}


def find_limits(policy: Policy, request_max_tokens: int | None) -> Limits:
    """The limits of a request with this `max_tokens`.

    Cached by the policy's identity, because hashing and comparing policies is slow. An entry holds its policy, so that
    its id cannot be reused while the entry exists.
    """
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


_NAMES: dict[int, tuple[Policy, bytes]] = {}


def name_policy(policy: Policy) -> bytes:
    """A SHA-256 (32 bytes) that is equal for equal policies and differs for different ones. Cached as limits are."""
    known = _NAMES.get(id(policy))
    if known is None or known[0] is not policy:
        if len(_NAMES) >= MAX_LIMITS:
            _NAMES.clear()
        known = _NAMES[id(policy)] = policy, sha256(repr(policy).encode()).digest()
    return known[1]


def _round_up(tokens: int) -> int:
    return 1 << (tokens - 1).bit_length() if tokens > 0 else 0
