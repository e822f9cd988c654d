"""The configuration's keys for tool results: what to tidy, and what differs for a tool.

Law: a key that a tool's entry does not set has the policy's value. This holds for each switch of `tidy` separately.
"""

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from proxy.config.values import Exclude, read_switch, refused
from rules.treatment import Budget, Tidying, ToolRule, Treatment, Truncation


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
