"""The keys of a policy, how one policy is laid over another, and the values that the rules get from them.

Law: every key has a default. A key counts as set if it is written, also with its default value.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Generic, Literal, TypeVar

from pydantic import Field

from trimtab.proxy.config.policies.sections import (
    ControlConfig,
    MemoryConfig,
    SectionsConfig,
    SummaryConfig,
    TidyConfig,
    ToolConfig,
    WindowConfig,
    allow_a_switch,
    inner,
)
from trimtab.proxy.config.values import AutoShare, AutoWater, ContextWindow, NameGlob
from trimtab.rules.economy import Budgets, Economy, find_budgets
from trimtab.rules.policy import (
    DEFAULT_WINDOW,
    INSTRUCTION_FILES,
    THRESHOLD_LOW,
    OnExceeded,
    OverflowStrategy,
    Policy,
    PreserveSystem,
    Prices,
)
from trimtab.rules.treatment import Budget, Truncation

CutRule = Literal["auto", "at_threshold", "when_it_pays"]
DEFAULT_CONTEXT_WINDOW = DEFAULT_WINDOW
"""The context window of a model about which nothing is known."""
_TAKEN_AS_THEY_ARE = (
    "completion_reserve", "overflow_strategy", "on_exceeded", "protect_turns", "truncation", "dedupe", "keep_images",
    "instruction_files", "preserve_system", "truncate_system", "keep_recent_steps", "max_turns", "max_message_tokens",
    "truncate_users", "pin_instruction", "compact_at_tokens",
)  # fmt: skip
"""The keys that the rules have by the same name."""


class PolicyConfig(ControlConfig):
    """A policy: how the requests of a model are compacted."""

    context_window: ContextWindow = "auto"
    context_windows: tuple[WindowConfig, ...] = ()
    completion_reserve: int = Field(8192, ge=0)
    economy: Economy = Economy.BALANCED
    cut: CutRule = "auto"
    high_water: AutoWater = "auto"
    low_water: AutoWater = "auto"
    compact_at_tokens: int | None = Field(None, ge=256)
    preserve_system: PreserveSystem = PreserveSystem.LEADING
    overflow_strategy: OverflowStrategy = OverflowStrategy.AUTO_COMPACT
    on_exceeded: OnExceeded = OnExceeded.TRUNCATE
    tidy: TidyConfig = inner(json_schema_extra=allow_a_switch)
    dedupe: bool = True
    max_tool_result_tokens: int = Field(4000, ge=64)
    max_tool_result_bytes: int | None = Field(None, ge=256)
    truncation: Truncation = Truncation.SALIENT
    tools: dict[NameGlob, ToolConfig] = Field({})
    protect_turns: int = Field(2, ge=0)
    keep_user_tokens: int = Field(20_000, ge=0)
    anchors: AutoShare = "auto"
    keep_images: int | None = Field(None, ge=0)
    sections: SectionsConfig | None = None
    truncate_system: bool = False
    keep_recent_steps: int | None = Field(None, ge=0)
    max_turns: int | None = Field(None, ge=2)
    max_message_tokens: int | None = Field(None, ge=64)
    truncate_users: bool = False
    memory: MemoryConfig = inner()
    pin_instruction: bool = False
    recall: Literal["off", "tool", "inject"] = "off"
    recall_without_tools: bool = False
    instruction_files: tuple[NameGlob, ...] = INSTRUCTION_FILES
    summary: SummaryConfig = inner()
    count: Literal["auto", "o200k_base", "cl100k_base", "heuristic"] = "auto"

    def find_window(self, found_tokens: int | None = None) -> int:
        window = self.context_window
        return (found_tokens or DEFAULT_CONTEXT_WINDOW) if window == "auto" else window

    def window_for(self, headers: Iterable[tuple[str, str]], endpoint: str) -> int | None:
        return next((one.tokens for one in self.context_windows if one.matches(headers, endpoint)), None)

    def to_policy(self, prices: Prices, *, token_ratio: float = 1.0, window_tokens: int | None = None) -> Policy:
        """The values that the rules need. `token_ratio`: tokens of the model per token of trimtab's vocabulary.

        `window_tokens` is the effective context window; None for the configured one, else the default.
        """
        window = window_tokens or self.find_window()
        budgets = find_budgets(self.economy, window)
        high_water, low_water = self._find_waters(budgets)
        max_tokens = self.summary.max_tokens
        policy = Policy(
            **{name: getattr(self, name) for name in _TAKEN_AS_THEY_ARE},
            context_window=window,
            high_water=high_water,
            low_water=low_water,
            # Not divided by the ratio: a ratio that is learned later would change results that were already forwarded.
            result_budget=Budget(self.max_tool_result_tokens, self.max_tool_result_bytes),
            keep_user_tokens=round(self.keep_user_tokens / token_ratio),
            summary_max_tokens=round((budgets.summary_tokens if max_tokens == "auto" else max_tokens) / token_ratio),
            summary_min_steps=self.summary.min_steps,
            summary_role=self.summary.role,
            prices=prices,
            token_ratio=token_ratio,
            tidying=self.tidy.to_tidying(),
            risk_share=budgets.risk_share,
            cuts_at_threshold=self._cuts_at_threshold,
            anchor_share=budgets.anchor_share if self.anchors == "auto" else self.anchors,
            sections=None if self.sections is None else self.sections.to_shares(),
            memory_tags=self.memory.tags,
            recalls=self.recall == "inject",
        )
        rules = (tool.to_rule(glob, policy.treatment, self.tidy) for glob, tool in self.tools.items())
        return replace(policy, tools=tuple(rules))

    @property
    def _cuts_at_threshold(self) -> bool:
        return self.cut == "at_threshold" or (self.cut == "auto" and self.high_water != "auto")

    def describe_cut(self) -> str:
        marks = [] if self.compact_at_tokens is None else [f"{self.compact_at_tokens:,} tokens (compact_at_tokens)"]
        if self._cuts_at_threshold:
            share = "" if self.high_water == "auto" else f", {self.high_water:.0%} of the room"
            marks.append(f"high water{share} (high_water)")
        reached = f"the first request that reaches {' or '.join(marks)} is cut"
        if marks and (self._cuts_at_threshold or self.cut == "auto"):
            return f"cut: at_threshold: {reached}"
        also = f", and {reached}" if marks else ""
        return f"cut: when_it_pays: once what a cut saves is worth its price ({self.economy}){also}"

    def _find_waters(self, budgets: Budgets) -> tuple[float, float]:
        ratio = budgets.low_water / budgets.high_water
        high, low = self.high_water, self.low_water
        if high != "auto":
            return high, min(budgets.low_water, high * THRESHOLD_LOW) if low == "auto" else low
        if low == "auto":
            return budgets.high_water, budgets.low_water
        return min(low / ratio, (1 + low) / 2), low  # the ratio alone could put it above the whole room


class ModelConfig(PolicyConfig):
    """A policy for the models whose name matches."""

    match: NameGlob


S = TypeVar("S")


class Same(Generic[S]):
    """A cache key that compares one object by identity.

    Equal sections may still set different keys, so equality is not enough.
    """

    __slots__ = ("value",)

    def __init__(self, value: S) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def overlay(defaults: PolicyConfig, patch: PolicyConfig) -> PolicyConfig:
    """The defaults, with the keys that the patch sets; the same object each time."""
    return _overlay(Same(defaults), Same(patch))


@lru_cache(256)
def _overlay(under: Same[PolicyConfig], over: Same[PolicyConfig]) -> PolicyConfig:
    defaults, patch = under.value, over.value
    changes = {key: getattr(patch, key) for key in patch.model_fields_set - {"match", "summary"}}
    summary = {key: getattr(patch.summary, key) for key in patch.summary.model_fields_set}
    changes["summary"] = defaults.summary.model_copy(update=summary)
    changes["tidy"] = patch.tidy.over(defaults.tidy)
    return defaults.model_copy(update=changes)


def with_window(settings: PolicyConfig, tokens: int) -> PolicyConfig:
    """The settings with this context window; the same object each time."""
    return _with_window(Same(settings), tokens)


@lru_cache(256)
def _with_window(settings: Same[PolicyConfig], tokens: int) -> PolicyConfig:
    return settings.value.model_copy(update={"context_window": tokens})
