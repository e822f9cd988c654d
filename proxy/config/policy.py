"""The keys of a policy and of its sections, how one policy is laid over another, and the values that the rules get.

Law: every key has a default. A key counts as set if it is written, also with its default value. A key that a tool's
entry does not set has the policy's value; this holds for each switch of `tidy` separately. A mapping of prices is taken
as a whole. A request's headers and its endpoint alone decide its context window.
"""

from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib import resources
from typing import Annotated, Any, Generic, Literal, NamedTuple, Self, TypeVar, get_args

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema

from trimtab.proxy.config.network import require
from trimtab.proxy.config.values import (
    MAX_DIGITS,
    MIN_CONTEXT_WINDOW,
    AutoShare,
    AutoTokens,
    AutoWater,
    ContextWindow,
    Exclude,
    NameGlob,
    OptionalName,
    SummaryModels,
    Wanted,
    read_switch,
    refused,
)
from trimtab.rules.economy import Budgets, Economy, find_budgets
from trimtab.rules.policy import (
    DEFAULT_WINDOW,
    INSTRUCTION_FILES,
    MEMORY_TAGS,
    THRESHOLD_LOW,
    Budget,
    OnExceeded,
    OverflowStrategy,
    Policy,
    PreserveSystem,
    Prices,
    SectionShares,
    SummaryRole,
    Tidying,
    ToolRule,
    Treatment,
    Truncation,
)

Texts = dict[str, dict[str, str | dict[str, Any]]]


class Description(NamedTuple):
    text: str
    examples: tuple[Any, ...] = ()


@cache
def read_descriptions() -> Texts:
    """`keys.yaml` by section: each key's text, or `description` and `examples`. Only for the schema and its page."""
    texts: Texts = yaml.safe_load(resources.files("trimtab.proxy.config").joinpath("keys.yaml").read_text("utf-8"))
    return texts


def describe(section: type[BaseModel], field: str) -> Description:
    texts = read_descriptions()
    said = next(texts[kind.__name__][field] for kind in section.__mro__ if field in texts.get(kind.__name__, ()))
    return Description(said) if isinstance(said, str) else Description(said["description"], tuple(said["examples"]))


class Section(BaseModel):
    """A mapping of known keys. Unknown keys are errors, and so is a number for a switch or a switch for a number."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
        defer_build=True,  # most sections are only built as parts of Config, and all of them take 0.05 s
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema)["properties"]
        for name, field in cls.model_fields.items():
            said = describe(cls, name)
            examples = {"examples": list(said.examples)} if said.examples else {}
            properties[field.alias or name] |= {"description": said.text, **examples}
        return schema

    @field_validator("*", mode="before")
    @classmethod
    def _check_numbers_and_switches(cls, value: Any, info: ValidationInfo) -> Any:
        annotation = cls.model_fields[str(info.field_name)].annotation
        kinds = annotation, *get_args(annotation)
        if isinstance(value, bool):
            is_right = any(kind in {bool, TidyConfig} for kind in kinds)
        else:  # a number is wrong for a switch; no log can write one that does not fit 64 bits
            is_long = isinstance(value, int) and abs(value) >= 10**MAX_DIGITS
            is_right = not isinstance(value, int | float) or not (bool in kinds or is_long)
        if not is_right:
            raise refused()
        return value


def inner(**details: Any) -> Any:
    """A field for a section in which every key has a default. It is validated as part of the whole, from no keys."""
    return Field(default_factory=dict, **details)


def allow_a_switch(schema: dict[str, Any]) -> None:
    section = {"$ref": schema.pop("$ref")} if "$ref" in schema else {"anyOf": schema.pop("anyOf")}
    schema["anyOf"] = [{"type": "boolean"}, section]


class TidyConfig(Section):
    """What to remove from tool results. Instead of the mapping, true and false set all of its keys."""

    model_config = ConfigDict(serialize_by_alias=True)

    ansi: bool = True
    progress: bool = True
    json_: bool = Field(default=True, alias="json")
    tables: bool = True

    @model_validator(mode="before")
    @classmethod
    def _read_switch(cls, value: Any) -> Any:
        value = read_switch(value)
        if not isinstance(value, bool | dict | cls):
            raise ValueError("must be true, false, or a mapping of switches")  # noqa: TRY004 - as pydantic wants it
        if isinstance(value, bool):
            return {field.alias or name: value for name, field in cls.model_fields.items()}
        return value

    def over(self, otherwise: "TidyConfig") -> "TidyConfig":
        return otherwise.model_copy(update={name: getattr(self, name) for name in self.model_fields_set})

    def to_tidying(self) -> Tidying | None:
        switches = self.model_dump()
        return Tidying(**switches) if any(switches.values()) else None


class ToolConfig(Section):
    """How the results of one tool are treated. A key that is not set has the policy's value."""

    max_tool_result_tokens: int | None = Field(None, ge=64)
    max_tool_result_bytes: int | None = Field(None, ge=256)
    truncation: Truncation | None = None
    tidy: TidyConfig | None = Field(None, json_schema_extra=allow_a_switch)
    dedupe: bool | None = None
    exclude: Exclude = False

    def to_rule(self, glob: str, otherwise: Treatment, tidy: TidyConfig) -> ToolRule:
        """The value that the rules need. Keys that are not set come from `otherwise` and `tidy`, the policy's own."""
        budget = otherwise.budget
        treatment = Treatment(
            budget=Budget(
                self.max_tool_result_tokens or budget.max_tokens, self.max_tool_result_bytes or budget.max_bytes
            ),
            truncation=self.truncation or otherwise.truncation,
            tidying=otherwise.tidying if self.tidy is None else self.tidy.over(tidy).to_tidying(),
            dedupe=otherwise.dedupe if self.dedupe is None else self.dedupe,
            is_exempt=self.exclude is True,
            exempt_arguments=() if isinstance(self.exclude, bool) else self.exclude,
        )
        return ToolRule(glob, treatment)


MAX_SUM = 1.0 + 1e-9  # The shares together; a little above 1, because a sum of decimal fractions is not exact
MAX_TAG_CHARS = 64  # chosen: far longer than real tags
Tag = Annotated[
    str,
    Field(pattern=rf"^[A-Za-z_][A-Za-z0-9_.:-]{{0,{MAX_TAG_CHARS - 1}}}$"),
    Wanted("the name of an XML tag, without < and >"),
]
_DEFAULT = SectionShares()


class SectionsConfig(Section):
    """The share of the limit that each section of a prompt may have. Shares that are not used go to recent."""

    system: float = Field(_DEFAULT.system, ge=0, le=1)
    summary: float = Field(_DEFAULT.summary, ge=0, le=1)
    memory: float = Field(_DEFAULT.memory, ge=0, le=1)
    recent: float = Field(_DEFAULT.recent, ge=0, le=1)
    current: float = Field(_DEFAULT.current, ge=0, le=1)

    @model_validator(mode="after")
    def _check_sum(self) -> Self:
        total = self.to_shares().total
        require(total <= MAX_SUM, f"must be at most 1 together, and are {total:.2f}")
        return self

    def to_shares(self) -> SectionShares:
        return SectionShares(self.system, self.summary, self.memory, self.recent, self.current)


class MemoryConfig(Section):
    """How retrieved memory is recognised."""

    tags: tuple[Tag, ...] = MEMORY_TAGS


class WindowConfig(Section):
    """A context window for the requests that match all of its conditions."""

    header: Annotated[str, Field(min_length=1)] | None = None
    value: Annotated[str, Field(min_length=1)] = "*"
    endpoint: Literal["chat", "responses", "messages"] | None = None
    tokens: int = Field(ge=MIN_CONTEXT_WINDOW)

    def matches(self, headers: Iterable[tuple[str, str]], endpoint: str) -> bool:
        if self.endpoint is not None and self.endpoint != endpoint:
            return False
        if self.header is None:
            return True
        wanted = self.header.lower()
        return any(name.lower() == wanted and fnmatchcase(value, self.value) for name, value in headers)


class PricesConfig(Section):
    """What tokens cost, relative to each other or in dollars."""

    input: float = Field(1.0, gt=0)
    cached_input: float = Field(0.1, ge=0)
    cache_write: float | None = Field(None, ge=0)
    output: float = Field(4.0, ge=0)
    unit: Literal["ratio", "usd"] = "ratio"

    @model_validator(mode="after")
    def _check_dollars(self) -> Self:
        missing = [name for name in ("input", "cached_input", "output") if name not in self.model_fields_set]
        # The defaults are ratios. As dollars they would be wrong without anyone noticing.
        require(self.unit == "ratio" or not missing, f"needs {' and '.join(missing)} too, since unit is usd")
        return self


AutoPrices = Annotated[Literal["auto"] | PricesConfig, Wanted("auto, or a mapping of prices")]
"""The type of `prices`."""

MODES = ("off", "observe", "enforce")  # Ordered from the mode that does least to the mode that does most


class ControlConfig(Section):
    """The part of a policy that the shell needs; the rules see nothing of it."""

    upstream: OptionalName = None
    mode: Literal["enforce", "observe", "off"] | None = None
    prices: AutoPrices | None = None
    observe_share: float = Field(0.0, ge=0, le=1)
    pairing: Literal["repair", "refuse"] = "repair"
    drop_tools: tuple[NameGlob, ...] = ()
    local_items: tuple[Annotated[str, Field(min_length=1)], ...] = ("ghost_snapshot",)


class SummaryConfig(Section):
    """How trimtab asks a model for summaries."""

    by: Literal["model", "provider"] = "model"
    model: SummaryModels = None
    upstream: OptionalName = None
    request: Literal["auto", "inline", "transcript"] = "auto"
    when: Literal["auto", "background", "idle", "needed", "never"] = "auto"
    max_tokens: AutoTokens = "auto"
    instructions: str | None = Field(None, min_length=1, max_length=4000)
    wait_seconds: float | None = Field(None, ge=0)
    min_steps: int = Field(6, ge=1)
    role: SummaryRole = SummaryRole.AUTO
    timeout_seconds: float = Field(60.0, gt=0)
    temperature: float | None = Field(0.2, ge=0, le=2)

    @property
    def models(self) -> tuple[str, ...]:
        return (self.model,) if isinstance(self.model, str) else self.model or ()


CutRule = Literal["auto", "at_threshold", "when_it_pays"]
DEFAULT_CONTEXT_WINDOW = DEFAULT_WINDOW  # The context window of a model about which nothing is known
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
        """The values for the rules. token_ratio: the model's tokens for one of ours. window_tokens: or the set one."""
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

    def describe_cut(self, limit_tokens: int | None = None) -> str:
        """In words, when a request is cut. `limit_tokens`: its limit in the model's own tokens, if that is known."""
        if self.overflow_strategy is OverflowStrategy.ERROR:
            return "cut: never (overflow_strategy: error)"
        soft, idle = self.compact_at_tokens, ""
        if soft is not None and limit_tokens is not None and soft >= limit_tokens:
            soft, idle = None, f"; compact_at_tokens, {soft:,}, has no effect, because the limit is not larger"
        fit = ("if they fit, and " if limit_tokens is None else "") + "unless the head has three quarters of them"
        marks = [] if soft is None else [f"{soft:,} tokens (compact_at_tokens, {fit})"]
        if self._cuts_at_threshold:
            high_water, _ = self._find_waters(find_budgets(self.economy, self.find_window()))
            window = f" of a window of {self.find_window():,} tokens" if self.context_window == "auto" else ""
            chosen = f"{window} (economy: {self.economy})" if self.high_water == "auto" else " (high_water)"
            marks.append(f"high water, {100 * high_water:g}% of the room{chosen}")
        told = f"when_it_pays: once what a cut saves is worth its price ({self.economy})"
        if marks:  # a soft limit takes the place of the size from which on a cut is weighed
            told = f"at_threshold: the first request that reaches {' or '.join(marks)} is cut"
        others = [] if self.max_turns is None else [f"has more than {self.max_turns} user turns (max_turns)"]
        if self.sections is not None and (total := self.sections.to_shares().total) < 1:
            others.append(f"reaches {100 * total:g}% of the limit (sections)")
        return f"cut: {told}{''.join(f', and one that {other}' for other in others)}{idle}"

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
    """A cache key by identity: sections that are equal may still set different keys."""

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


_DESCRIBES_MODEL = {"context_window", "context_windows", "count", "prices", "upstream"}


@lru_cache(256)
def describe_model(policy: Same[PolicyConfig], profile: Same[PolicyConfig], entry: Same[PolicyConfig]) -> PolicyConfig:
    """The policy of a profile, with what the model's entry says of the model, and not of how it is compacted."""
    left = (_DESCRIBES_MODEL & entry.value.model_fields_set) - profile.value.model_fields_set
    left -= {"context_windows"} if "context_window" in profile.value.model_fields_set else set()
    return policy.value.model_copy(update={key: getattr(entry.value, key) for key in left})


def with_window(settings: PolicyConfig, tokens: int) -> PolicyConfig:
    """The settings with this context window; the same object each time."""
    return _with_window(Same(settings), tokens)


@lru_cache(256)
def _with_window(settings: Same[PolicyConfig], tokens: int) -> PolicyConfig:
    return settings.value.model_copy(update={"context_window": tokens})
