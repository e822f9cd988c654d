"""The keys of a policy, and the numbers that the rules get of them.

Law: every key has a default.
"""

from dataclasses import replace
from typing import Literal

from pydantic import Field

from proxy.config.policies.summaries import SummaryConfig
from proxy.config.policies.tools import Section, TidyConfig, ToolConfig, allow_a_switch
from proxy.config.values import AutoShare, AutoWater, ContextWindow, NameGlob, OptionalName
from rules.economy import Budgets, Economy, find_budgets
from rules.policy import DEFAULT_WINDOW, INSTRUCTION_FILES, OnExceeded, OverflowStrategy, Policy, Prices
from rules.treatment import Budget, Truncation

DEFAULT_CONTEXT_WINDOW = DEFAULT_WINDOW
"""The window of a model that nothing is known about."""


class PolicyConfig(Section):
    """What a model's requests are compacted by."""

    upstream: OptionalName = Field(None, description="null: upstream; else one of upstreams")
    context_window: ContextWindow = Field(
        "auto",
        description="tokens of prompt and completion; auto: asked of the upstream, else the catalogue, else 128000",
    )
    completion_reserve: int = Field(
        8192, ge=0, description="tokens kept free for the completion, at most a quarter of the window"
    )
    economy: Economy = Field(
        Economy.BALANCED,
        description="what cost weighs against memory, where waters and budgets are auto: careful | balanced | frugal",
    )
    high_water: AutoWater = Field("auto", description="share of the room at which a cut is made; auto: by economy")
    low_water: AutoWater = Field(
        "auto", description="share of the room that a cut leaves at most, the summary included; auto: by economy"
    )
    overflow_strategy: OverflowStrategy = Field(
        OverflowStrategy.AUTO_COMPACT, description="auto_compact | prune | summarize | error"
    )
    on_exceeded: OnExceeded = Field(
        OnExceeded.TRUNCATE,
        description="when nothing fits: truncate (the newest results, then the last message) | error | forward",
    )
    tidy: TidyConfig = Field(
        TidyConfig(),
        description="what tool results lose that says nothing; true: all of it, false: none",
        json_schema_extra=allow_a_switch,
    )
    dedupe: bool = Field(default=True, description="a result like an earlier one becomes a pointer to it, or a diff")
    max_tool_result_tokens: int = Field(
        4000,
        ge=64,
        description="a longer tool result is truncated; errors have twice as much; counted by our vocabulary",
    )
    max_tool_result_bytes: int | None = Field(None, ge=256, description="the same by bytes, where set")
    truncation: Truncation = Field(
        Truncation.SALIENT, description="what a long result keeps: salient (the lines that matter, too) | head_tail"
    )
    tools: dict[NameGlob, ToolConfig] = Field({}, description="by a glob on the tool's name, the first match wins")
    protect_turns: int = Field(2, ge=0, description="results of the newest user turns are not pruned")
    keep_user_tokens: int = Field(
        20_000,
        ge=0,
        description="user messages kept verbatim behind a summary, at most a quarter of what low water leaves",
    )
    anchors: AutoShare = Field(
        "auto",
        description="share of low water for what is carried over a cut word for word, beside its summary; 0: nothing",
    )
    keep_images: int | None = Field(
        None, ge=0, description="older images than so many become one line each; null: when the window needs it"
    )
    instruction_files: tuple[NameGlob, ...] = Field(
        INSTRUCTION_FILES, description="globs on files that stay behind a cut, once they were read"
    )
    summary: SummaryConfig = SummaryConfig()
    count: Literal["auto", "o200k_base", "cl100k_base", "heuristic"] = Field(
        "auto", description="how tokens are counted: auto (as the model does) | o200k_base | cl100k_base | heuristic"
    )

    def find_window(self, found_tokens: int | None = None) -> int:
        """The window that is configured; else the one that was found; else the default."""
        window = self.context_window
        return (found_tokens or DEFAULT_CONTEXT_WINDOW) if window == "auto" else window

    def to_policy(self, prices: Prices, *, token_ratio: float = 1.0, window_tokens: int | None = None) -> Policy:
        """The numbers that the rules need, for a model of which `token_ratio` tokens make one of ours.

        `window_tokens` is the window to go by; None for the one that is configured, else the default.
        """
        window = window_tokens or self.find_window()
        budgets = find_budgets(self.economy, window)
        high_water, low_water = self._find_waters(budgets)
        max_tokens = self.summary.max_tokens
        policy = Policy(
            context_window=window,
            completion_reserve=self.completion_reserve,
            high_water=high_water,
            low_water=low_water,
            overflow_strategy=self.overflow_strategy,
            on_exceeded=self.on_exceeded,
            # Not divided by the ratio: one that is learned later would cut results anew that were forwarded before.
            result_budget=Budget(self.max_tool_result_tokens, self.max_tool_result_bytes),
            protect_turns=self.protect_turns,
            keep_user_tokens=round(self.keep_user_tokens / token_ratio),
            summary_max_tokens=max(
                round((budgets.summary_tokens if max_tokens == "auto" else max_tokens) / token_ratio), 1
            ),
            summary_min_steps=self.summary.min_steps,
            summary_role=self.summary.role,
            prices=prices,
            token_ratio=token_ratio,
            truncation=self.truncation,
            tidying=self.tidy.to_tidying(),
            dedupe=self.dedupe,
            anchor_share=budgets.anchor_share if self.anchors == "auto" else self.anchors,
            keep_images=self.keep_images,
            instruction_files=self.instruction_files,
        )
        rules = (tool.to_rule(glob, policy.treatment, self.tidy) for glob, tool in self.tools.items())
        return replace(policy, tools=tuple(rules))

    def _find_waters(self, budgets: Budgets) -> tuple[float, float]:
        """High and low water. If only one of them is set, the other stands to it as the fitted ones do."""
        ratio = budgets.low_water / budgets.high_water
        high, low = self.high_water, self.low_water
        if high != "auto":
            return high, high * ratio if low == "auto" else low
        if low == "auto":
            return budgets.high_water, budgets.low_water
        return min(low / ratio, (1 + low) / 2), low  # the ratio may have it above the whole room


class ModelConfig(PolicyConfig):
    """Any key of defaults, for the models that match."""

    match: NameGlob = Field(description="a glob on the request's model")
