"""The sections of a policy: tools, context windows, prices, control, summaries, shares of a prompt, retrieved memory.

Law: every key has a default. A key that a tool's entry does not set has the policy's value; this holds for each switch
of `tidy` separately. A mapping of prices is taken as a whole. A request's headers and its endpoint alone decide its
context window.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from trimtab.proxy.config.values import (
    MIN_CONTEXT_WINDOW,
    AutoTokens,
    Exclude,
    NameGlob,
    OptionalName,
    SummaryModels,
    read_switch,
    refused,
    require,
)
from trimtab.proxy.config.words import Wanted
from trimtab.rules.policy import MEMORY_TAGS, SectionShares, SummaryRole
from trimtab.rules.treatment import Budget, Tidying, ToolRule, Treatment, Truncation


class Section(BaseModel):
    """A mapping of known keys. Unknown keys are errors, and so is a number for a switch or a switch for a number."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False, hide_input_in_errors=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _keep_numbers_apart_from_switches(cls, value: Any, info: ValidationInfo) -> Any:
        field = cls.model_fields[str(info.field_name)]
        if isinstance(value, bool) and not _takes_switches(field.annotation):
            raise refused()
        if isinstance(value, int | float) and not isinstance(value, bool) and _is_switch(field.annotation):
            raise refused()
        return value


def _takes_switches(annotation: Any) -> bool:
    return any(kind in {bool, TidyConfig} for kind in (annotation, *get_args(annotation)))


def _is_switch(annotation: Any) -> bool:
    # A field that is true, false or null, and nothing else.
    return {annotation, *get_args(annotation)} - {type(None), bool | None} == {bool}


def allow_a_switch(schema: dict[str, Any]) -> None:
    """Change a section's JSON Schema so that it accepts true and false instead of the section."""
    section = {"$ref": schema.pop("$ref")} if "$ref" in schema else {"anyOf": schema.pop("anyOf")}
    schema["anyOf"] = [{"type": "boolean"}, section]


class TidyConfig(Section):
    """What to remove from tool results. Instead of the mapping, true and false set all of its keys."""

    model_config = ConfigDict(serialize_by_alias=True)

    ansi: bool = Field(default=True, description="Remove colours and other escape sequences of terminals.")
    progress: bool = Field(
        default=True, description="Keep only the last state of a progress line that overwrites itself."
    )
    json_: bool = Field(
        default=True,
        alias="json",
        description="Remove the white space between the values of JSON, if the result then fits its budget.",
    )
    tables: bool = Field(
        default=True,
        description="Write an array of JSON objects with the same keys as a table, if that is shorter.",
    )

    @model_validator(mode="before")
    @classmethod
    def _read_switch(cls, value: Any) -> Any:
        value = read_switch(value)
        if not isinstance(value, bool | dict | cls):
            message = "must be true, false, or a mapping of switches"
            raise ValueError(message)  # noqa: TRY004 - pydantic does not handle a TypeError
        if isinstance(value, bool):
            return {field.alias or name: value for name, field in cls.model_fields.items()}
        return value

    def over(self, otherwise: "TidyConfig") -> "TidyConfig":
        """The other switches, with those that are set here in their place."""
        return otherwise.model_copy(update={name: getattr(self, name) for name in self.model_fields_set})

    def to_tidying(self) -> Tidying | None:
        """The value that the rules need; None if all switches are off."""
        switches = self.model_dump()
        return Tidying(**switches) if any(switches.values()) else None


class ToolConfig(Section):
    """How the results of one tool are treated. A key that is not set has the policy's value."""

    max_tool_result_tokens: int | None = Field(
        None, ge=64, description="The longest result of this tool in tokens. null: the policy's value."
    )
    max_tool_result_bytes: int | None = Field(
        None, ge=256, description="The longest result of this tool in bytes of UTF-8. null: the policy's value."
    )
    truncation: Truncation | None = Field(
        None, description="What a truncated result keeps: salient or head_tail. null: the policy's value."
    )
    tidy: TidyConfig | None = Field(
        None,
        description="What to remove because it carries no information. true: all four switches. false: none. null: "
        "the policy's value. A single switch that is not set has the policy's value, too.",
        json_schema_extra=allow_a_switch,
    )
    dedupe: bool | None = Field(
        None, description="Whether a repeated result becomes a pointer or a diff. null: the policy's value."
    )
    exclude: Exclude = Field(
        default=False,
        examples=[True, ["*AGENTS.md", "*SKILL.md"]],
        description="Results that are neither tidied, truncated nor deduplicated. true: all results of the tool. A "
        "list of globs: the results of calls with an argument that matches one. Pruning and cuts still apply to them.",
    )

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


MAX_SUM = 1.0 + 1e-9
"""The shares together; a little above 1, because a sum of decimal fractions is not exact."""
MAX_TAG_CHARS = 64
"""Chosen: far longer than real tags."""
Tag = Annotated[
    str,
    Field(pattern=rf"^[A-Za-z_][A-Za-z0-9_.:-]{{0,{MAX_TAG_CHARS - 1}}}$"),
    Wanted("the name of an XML tag, without < and >"),
]
_DEFAULT = SectionShares()


class SectionsConfig(Section):
    """The share of the limit that each section of a prompt may have. Shares that are not used go to recent."""

    system: float = Field(
        _DEFAULT.system, ge=0, le=1, description="System messages at the beginning, tools and response format."
    )
    summary: float = Field(_DEFAULT.summary, ge=0, le=1, description="The summary of what was cut.")
    memory: float = Field(_DEFAULT.memory, ge=0, le=1, description="Retrieved memory, see memory.tags.")
    recent: float = Field(_DEFAULT.recent, ge=0, le=1, description="All other messages.")
    current: float = Field(_DEFAULT.current, ge=0, le=1, description="The last user message.")

    @model_validator(mode="after")
    def _check_sum(self) -> Self:
        total = self.system + self.summary + self.memory + self.recent + self.current
        require(total <= MAX_SUM, f"must be at most 1 together, and are {total:.2f}")
        return self

    def to_shares(self) -> SectionShares:
        """The value that the rules need."""
        return SectionShares(self.system, self.summary, self.memory, self.recent, self.current)


class MemoryConfig(Section):
    """How retrieved memory is recognised."""

    tags: tuple[Tag, ...] = Field(
        MEMORY_TAGS,
        examples=[["relevant_context", "memories"]],
        description="Names of tags. Text of user and system messages from <TAG> to </TAG> is retrieved memory. At "
        "high water it is dropped first, the oldest first. An empty list: no text is memory.",
    )


class WindowConfig(Section):
    """A context window for the requests that match all of its conditions."""

    header: Annotated[str, Field(min_length=1)] | None = Field(
        None,
        examples=["anthropic-beta"],
        description="The name of a header that the request must have. null: any request.",
    )
    value: Annotated[str, Field(min_length=1)] = Field(
        "*",
        examples=["*context-1m-*"],
        description="A glob on the value of that header. A header that is repeated matches if one of its values does.",
    )
    endpoint: Literal["chat", "responses", "messages"] | None = Field(
        None,
        examples=["responses"],
        description="The API that the request must be of: chat, responses or messages. null: any.",
    )
    tokens: int = Field(ge=MIN_CONTEXT_WINDOW, examples=[1_000_000], description="The context window in tokens.")

    def matches(self, headers: Iterable[tuple[str, str]], endpoint: str) -> bool:
        """Whether a request with these headers matches."""
        if self.endpoint is not None and self.endpoint != endpoint:
            return False
        if self.header is None:
            return True
        wanted = self.header.lower()
        return any(name.lower() == wanted and fnmatchcase(value, self.value) for name, value in headers)


class PricesConfig(Section):
    """What tokens cost, relative to each other or in dollars."""

    input: float = Field(1.0, gt=0, description="Price of a prompt token that is not in the upstream's prompt cache.")
    cached_input: float = Field(
        0.1, ge=0, description="Price of a prompt token that the upstream reads from its prompt cache."
    )
    cache_write: float | None = Field(
        None,
        ge=0,
        description="Price of a prompt token that the upstream writes into its prompt cache. null: the price of input.",
    )
    output: float = Field(4.0, ge=0, description="Price of a completion token.")
    unit: Literal["ratio", "usd"] = Field(
        "ratio",
        examples=["ratio"],
        description="The unit of these prices. ratio: any, because only the ratios between them count. usd: US dollars "
        "for a million tokens, so that costs can also be shown in dollars; then set input, cached_input and output.",
    )

    @model_validator(mode="after")
    def _check_dollars(self) -> Self:
        missing = [name for name in ("input", "cached_input", "output") if name not in self.model_fields_set]
        # The defaults are ratios. As dollars they would be wrong without anyone noticing.
        require(self.unit == "ratio" or not missing, f"needs {' and '.join(missing)} too, since unit is usd")
        return self


def _check_prices(prices: object) -> object:
    # Checked here, and not by pydantic's union: that would report an error for each of the two types.
    if prices == "auto" or isinstance(prices, PricesConfig):
        return prices
    if not isinstance(prices, dict):
        raise refused()
    return PricesConfig.model_validate(prices)  # its errors contain the key of each wrong price


AutoPrices = Annotated[
    Literal["auto"] | PricesConfig, BeforeValidator(_check_prices), Wanted("auto, or a mapping of prices")
]
"""The type of `prices`."""


MODES = ("off", "observe", "enforce")
"""Ordered from the mode that does least to the mode that does most."""


class ControlConfig(Section):
    """The part of a policy that the shell needs; the rules see nothing of it."""

    upstream: OptionalName = Field(
        None,
        examples=["local"],
        description="The server that requests go to: a name of upstreams. null: the main server, upstream.",
    )
    mode: Literal["enforce", "observe", "off"] | None = Field(
        None,
        examples=["observe"],
        description="The mode of these requests: enforce, observe or off, as in the key mode at the top. A profile "
        "never does more than the mode that the matching entry of models sets. null: the value of the key at the top.",
    )
    prices: AutoPrices | None = Field(
        None,
        examples=[{"cached_input": 0.02, "output": 1.5}],
        description="What tokens cost, as in the key prices at the top. auto: the catalogue's prices. null: those of "
        "the upstream.",
    )
    observe_share: float = Field(
        0.0,
        ge=0,
        le=1,
        examples=[0.9],
        description="The share of sessions that are only observed in mode enforce. The session's first user message "
        "decides, so a session always stays on one side. 0: none. 1: all.",
    )
    pairing: Literal["repair", "refuse"] = Field(
        "repair",
        description="What happens to a request with a tool call without a result, or a result without a call. repair: "
        "a result is added, or the odd result is dropped. refuse: answer 400 unpaired_tool_calls in mode enforce.",
    )
    drop_tools: tuple[NameGlob, ...] = Field(
        (),
        examples=[["mcp__jira__*"]],
        description="Globs on names of tools. Their declarations are not sent. A tool that the conversation has called "
        "already stays.",
    )
    local_items: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        ("ghost_snapshot",),
        description="Types of input items that belong to the client alone. They are not counted and not sent. Only "
        "requests of the Responses API have such items.",
    )


class SummaryConfig(Section):
    """How trimtab asks a model for summaries."""

    model: SummaryModels = Field(
        None,
        examples=["gpt-4.1-mini", ["gpt-4.1-mini", "gpt-4o-mini"]],
        description="The model that writes summaries, or a list: if the first one writes none or is overloaded, the "
        "next one is asked. null: the model of the request.",
    )
    upstream: OptionalName = Field(
        None,
        examples=["local"],
        description="The server that summaries are requested from: a name of upstreams. null: the server of the "
        "request.",
    )
    request: Literal["auto", "inline", "transcript"] = Field(
        "auto",
        description="The form of the request for a summary. inline: the forwarded messages and a question after them, "
        "so that the upstream's prompt cache is used. transcript: one user message that contains the transcript. auto: "
        "at present the same as inline. transcript is used if inline is not possible: another model or server is "
        "asked, the request has a response_format, or the messages do not fit the window.",
    )
    when: Literal["auto", "background", "needed", "never"] = Field(
        "auto",
        description="When a model is asked. background: ahead of the cut, and if a request does not fit without the "
        "summary. needed: only if a request does not fit without it. never: each cut gets a digest, which no model "
        "writes. auto: never if the summary would take the only slot of a llama.cpp server, else background.",
    )
    max_tokens: AutoTokens = Field(
        "auto",
        examples=[2000],
        description="The longest summary in tokens. auto: 1500 for windows up to 32000 tokens, 4000 for 128000, 8000 "
        "for 1000000 and more.",
    )
    instructions: str | None = Field(
        None,
        min_length=1,
        max_length=4000,
        examples=["Write in English. Keep every ticket number."],
        description="Your own instructions for the summary, at most 4000 characters. They are added to trimtab's, and "
        "override them if the two contradict each other. null: none.",
    )
    wait_seconds: float | None = Field(
        None,
        ge=0,
        examples=[10, 0],
        description="If a request does not fit without a new summary, it waits for the summary for this time in "
        "seconds, at most timeout_seconds. After that, a digest made without a model replaces the summary. null: "
        "timeout_seconds. 0: no waiting.",
    )
    min_steps: int = Field(
        6,
        ge=1,
        description="The least number of steps that a cut must remove for a model to be asked. Fewer get a digest.",
    )
    role: SummaryRole = Field(
        SummaryRole.AUTO,
        description="The message that contains the summary. auto: the first user message, after its text. user, "
        "system, assistant: a message of that role after the first user message. pair: an assistant message, followed "
        "by a user message if roles would not alternate otherwise.",
    )
    timeout_seconds: float = Field(
        60.0, gt=0, description="The time in seconds that one summary may take, including its retries."
    )
    temperature: float | None = Field(
        0.2,
        ge=0,
        le=2,
        examples=[0.5],
        description="The sampling temperature of the request for a summary. null: none is sent.",
    )

    @property
    def models(self) -> tuple[str, ...]:
        """The models to ask, in order; empty for the model of the request."""
        return (self.model,) if isinstance(self.model, str) else self.model or ()
