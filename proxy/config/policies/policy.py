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


class PolicyConfig(ControlConfig):
    """A policy: how the requests of a model are compacted."""

    context_window: ContextWindow = Field(
        "auto",
        examples=[32_768],
        description="The model's context window in tokens, prompt and completion together. auto: what the upstream "
        "reports, else the catalogue's value, else 128000.",
    )
    context_windows: tuple[WindowConfig, ...] = Field(
        (),
        examples=[[{"header": "anthropic-beta", "value": "*context-1m-*", "tokens": 1_000_000}]],
        description="Context windows that hold only for some requests: for those with a header, or of an endpoint. The "
        "first entry that matches applies instead of context_window.",
    )
    completion_reserve: int = Field(
        8192,
        ge=0,
        description="The number of tokens that stay free for the completion, at most a quarter of the window. A larger "
        "max_tokens of the request raises it.",
    )
    economy: Economy = Field(
        Economy.BALANCED,
        description="How early and how deep trimtab cuts. It sets high_water, low_water and anchors if they "
        "are auto. careful: cut late and keep most. frugal: cut early and deep, at the lowest cost. balanced: between "
        "the two.",
    )
    cut: CutRule = Field(
        "auto",
        examples=["when_it_pays"],
        description="When a cut is made that need not be made yet. at_threshold: at the first request that reaches "
        "high_water or compact_at_tokens. when_it_pays: when what it saves is worth its price. auto: at_threshold if "
        "high_water is a number, else when_it_pays. compact_at_tokens is a threshold in any case.",
    )
    high_water: AutoWater = Field(
        "auto",
        examples=[0.75],
        description="The first request whose conversation reaches this share of the room is cut. The room is the "
        "context window without the reserve, the system messages, the tools and the first user message. auto: the "
        "economy decides when a cut pays.",
    )
    low_water: AutoWater = Field(
        "auto",
        examples=[0.35],
        description="The largest share of the room that a cut leaves, the summary included. It must be below "
        "high_water. auto: a value for the economy and the window, for example 0.15 for balanced at 128000 tokens, but "
        "at most half of high_water.",
    )
    compact_at_tokens: int | None = Field(
        None,
        ge=256,
        examples=[60_000],
        description="A prompt that reaches this number of tokens is cut, however large the window is. A prompt that a "
        "cut cannot make smaller still passes. null: only the window decides.",
    )
    preserve_system: PreserveSystem = Field(
        PreserveSystem.LEADING,
        description="Which system and developer messages stay verbatim. leading: those before the first other "
        "message; of later ones, those behind the cut, and the newest before it up to a quarter of low water. all: "
        "every one.",
    )
    overflow_strategy: OverflowStrategy = Field(
        OverflowStrategy.AUTO_COMPACT,
        description="How far compaction may go. auto_compact: remove old images and tool results; if that is not "
        "enough, summarise. prune: the same, but a digest made without a model replaces the summary. summarize: only "
        "summarise. error: never cut; on_exceeded decides what happens to a request that does not fit.",
    )
    on_exceeded: OnExceeded = Field(
        OnExceeded.TRUNCATE,
        description="What happens to a request that does not fit the window even after compaction. truncate: shorten "
        "the newest tool results, then the newest user message. error: answer 400 context_length_exceeded. forward: "
        "send the request although it is too long.",
    )
    tidy: TidyConfig = Field(
        TidyConfig(),
        examples=[False, {"tables": False}],
        description="What to remove from tool results because it carries no information. true: all four "
        "switches. false: none.",
        json_schema_extra=allow_a_switch,
    )
    dedupe: bool = Field(
        default=True,
        description="Whether a tool result that repeats an earlier one becomes a pointer to it, or a diff if the two "
        "are nearly equal.",
    )
    max_tool_result_tokens: int = Field(
        4000,
        ge=64,
        description="The longest tool result in tokens. A longer one is truncated; a result that is an error may have "
        "twice as many. The tokens are those of trimtab's own vocabulary, whatever the model's is.",
    )
    max_tool_result_bytes: int | None = Field(
        None,
        ge=256,
        examples=[16_384],
        description="The longest tool result in bytes of UTF-8, in addition to max_tool_result_tokens. null: no limit "
        "in bytes.",
    )
    truncation: Truncation = Field(
        Truncation.SALIENT,
        description="What a truncated tool result keeps. salient: its head, its tail and the lines that matter "
        "(errors, definitions, matches of the call's arguments). head_tail: its head and its tail.",
    )
    tools: dict[NameGlob, ToolConfig] = Field(
        {},
        examples=[{"*search*": {"max_tool_result_tokens": 1500}, "[Rr]ead*": {"exclude": ["*AGENTS.md"]}}],
        description="Other rules for the results of some tools. Each key is a glob on the tool's name. The first glob "
        "that matches applies. The tools of a model or profile replace those of defaults.",
    )
    protect_turns: int = Field(
        2,
        ge=0,
        description="The number of newest user turns whose tool results are not pruned, unless these turns alone are "
        "longer than 80 % of high water.",
    )
    keep_user_tokens: int = Field(
        20_000,
        ge=0,
        description="The newest user messages that a cut removes are kept verbatim after the summary, up to this "
        "number of tokens and at most a quarter of low water.",
    )
    anchors: AutoShare = Field(
        "auto",
        examples=[0],
        description="The share of low water for exact names, instruction files and the task list, which are carried "
        "over a cut word for word. auto: a value for the economy and the window. 0: nothing is carried over.",
    )
    keep_images: int | None = Field(
        None,
        ge=0,
        examples=[10],
        description="The number of newest images that are kept. When a request has twice as many, all older ones "
        "become one line each, except those of the first and the last user message, which count but stay. "
        "null: images are removed only when high water is reached.",
    )
    sections: SectionsConfig | None = Field(
        None,
        examples=[{"system": 0.2, "summary": 0.1, "memory": 0.1, "recent": 0.55, "current": 0.05}],
        description="The share of the limit that each section of a prompt may have. null: sections have no limits of "
        "their own.",
    )
    truncate_system: bool = Field(
        default=False,
        description="Whether system messages at the beginning may be truncated if they have more than their share of "
        "sections.",
    )
    keep_recent_steps: int | None = Field(
        None,
        ge=0,
        examples=[4],
        description="The number of newest steps that a cut leaves untouched if they fit the window. A step is a "
        "message of the assistant with its tool results. null: the newest answered one.",
    )
    max_turns: int | None = Field(
        None,
        ge=2,
        examples=[20],
        description="The most user turns that are forwarded verbatim. With one more, a cut leaves the newest half of "
        "them. null: no limit.",
    )
    max_message_tokens: int | None = Field(
        None,
        ge=64,
        examples=[8000],
        description="The longest text of a message of the assistant, and of a system message after the beginning, in "
        "tokens. A longer one keeps its head and tail. Tool calls and reasoning are never truncated, user messages "
        "only with truncate_users. null: no limit.",
    )
    truncate_users: bool = Field(
        default=False,
        description="Whether max_message_tokens also holds for user messages, except the first one and those of the "
        "newest turn. A longer one is truncated when the next turn begins, if that saves as many tokens as must then "
        "be read again, else with the next cut.",
    )
    memory: MemoryConfig = Field(MemoryConfig(), description="Retrieved memory, which is dropped first.")
    pin_instruction: bool = Field(
        default=False,
        description="Whether the beginning of the user's newest message and the open item of the task list are "
        "repeated after long tool output (more than 2,000 tokens in one step), at the end of the last result.",
    )
    recall: Literal["off", "inject"] = Field(
        "off",
        examples=["inject"],
        description="Whether what was cut can be fetched back. inject: what the user's newest message, or a failed "
        "tool's result, names is looked up in what was removed, and the best passages stand right behind it.",
    )
    instruction_files: tuple[NameGlob, ...] = Field(
        INSTRUCTION_FILES,
        description="Globs on file names. If the agent has read such a file, a cut carries it over, whole or as one "
        "line that says to read it again.",
    )
    summary: SummaryConfig = Field(
        SummaryConfig(), description="Which model writes summaries, how it is asked, and how long a request waits."
    )
    count: Literal["auto", "o200k_base", "cl100k_base", "heuristic"] = Field(
        "auto",
        description="How tokens are counted. auto: with the vocabulary of the model's family. o200k_base, cl100k_base: "
        "with that vocabulary. heuristic: estimated from the number of characters.",
    )

    def find_window(self, found_tokens: int | None = None) -> int:
        """The configured context window; else the one that was found; else the default."""
        window = self.context_window
        return (found_tokens or DEFAULT_CONTEXT_WINDOW) if window == "auto" else window

    def window_for(self, headers: Iterable[tuple[str, str]], endpoint: str) -> int | None:
        """The configured window of a request by its headers and its endpoint; None if only `context_window` holds."""
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
            context_window=window,
            completion_reserve=self.completion_reserve,
            high_water=high_water,
            low_water=low_water,
            overflow_strategy=self.overflow_strategy,
            on_exceeded=self.on_exceeded,
            # Not divided by the ratio: a ratio that is learned later would change results that were already forwarded.
            result_budget=Budget(self.max_tool_result_tokens, self.max_tool_result_bytes),
            protect_turns=self.protect_turns,
            keep_user_tokens=round(self.keep_user_tokens / token_ratio),
            summary_max_tokens=round((budgets.summary_tokens if max_tokens == "auto" else max_tokens) / token_ratio),
            summary_min_steps=self.summary.min_steps,
            summary_role=self.summary.role,
            prices=prices,
            token_ratio=token_ratio,
            truncation=self.truncation,
            tidying=self.tidy.to_tidying(),
            dedupe=self.dedupe,
            risk_share=budgets.risk_share,
            cuts_at_threshold=self._cuts_at_threshold,
            anchor_share=budgets.anchor_share if self.anchors == "auto" else self.anchors,
            keep_images=self.keep_images,
            instruction_files=self.instruction_files,
        )
        rules = (tool.to_rule(glob, policy.treatment, self.tidy) for glob, tool in self.tools.items())
        return self._limit_messages(replace(policy, tools=tuple(rules)))

    @property
    def _cuts_at_threshold(self) -> bool:
        return self.cut == "at_threshold" or (self.cut == "auto" and self.high_water != "auto")

    def describe_cut(self) -> str:
        """In words, when a request is cut that need not be cut yet."""
        marks = [] if self.compact_at_tokens is None else [f"{self.compact_at_tokens:,} tokens (compact_at_tokens)"]
        if self._cuts_at_threshold:
            share = "" if self.high_water == "auto" else f", {self.high_water:.0%} of the room"
            marks.append(f"high water{share} (high_water)")
        reached = f"the first request that reaches {' or '.join(marks)} is cut"
        if marks and (self._cuts_at_threshold or self.cut == "auto"):
            return f"cut: at_threshold: {reached}"
        also = f", and {reached}" if marks else ""
        return f"cut: when_it_pays: once what a cut saves is worth its price ({self.economy}){also}"

    def _limit_messages(self, policy: Policy) -> Policy:
        """The policy with the keys about messages that are not tool results."""
        return replace(
            policy,
            preserve_system=self.preserve_system,
            sections=None if self.sections is None else self.sections.to_shares(),
            truncate_system=self.truncate_system,
            keep_recent_steps=self.keep_recent_steps,
            max_turns=self.max_turns,
            max_message_tokens=self.max_message_tokens,
            truncate_users=self.truncate_users,
            memory_tags=self.memory.tags,
            pin_instruction=self.pin_instruction,
            compact_at_tokens=self.compact_at_tokens,
            recalls=self.recall == "inject",
        )

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

    match: NameGlob = Field(
        examples=["qwen*"], description="A glob on the request's model. Upper and lower case differ."
    )


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
