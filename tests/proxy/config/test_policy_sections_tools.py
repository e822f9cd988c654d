"""The configuration's keys for tool results."""

import pytest

from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.policy import TidyConfig
from trimtab.rules.policy import Budget, Policy, Prices, Tidying, ToolRule, Treatment, Truncation


def policy(defaults: str, *, token_ratio: float = 1.0) -> Policy:
    """The defaults in the form that the rules get."""
    return load_config(f"defaults: {defaults}", environment={}).defaults.to_policy(Prices(), token_ratio=token_ratio)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", Tidying()),
        ("false", None),
        ("{}", Tidying()),
        ("{ansi: false, json: false}", Tidying(ansi=False, json=False)),
        (str(dict.fromkeys(Tidying.__slots__, False)).replace("False", "false"), None),
    ],
)
def test_tidying_is_a_switch_or_a_mapping_of_switches(text: str, expected: Tidying | None) -> None:
    """If all switches are off, nothing is tidied. A tool's entry is written the same way."""
    assert policy(f"{{tidy: {text}}}").tidying == expected
    assert policy(f"{{tools: {{x: {{tidy: {text}}}}}}}").tools[0].treatment.tidying == expected


@pytest.mark.parametrize(
    ("defaults", "own", "expected"),
    [
        ("{tables: false}", "{json: false}", Tidying(tables=False, json=False)),
        ("{tables: false}", "{tables: true}", Tidying()),
        ("{tables: false}", "true", Tidying()),
        ("{tables: false}", "false", None),
        ("false", "{ansi: true}", Tidying(**{name: name == "ansi" for name in Tidying.__slots__})),
        ("false", "{json: false}", None),
        ("false", "{}", None),
        ("{json: false}", "{}", Tidying(json=False)),
    ],
)
def test_switches_are_laid_over_the_others(defaults: str, own: str, expected: Tidying | None) -> None:
    """The switches of a model, a profile or a tool override others one by one. Switches that are not set stay."""
    text = f"{{tidy: {defaults}, tools: {{x: {{tidy: {own}}}}}}}"
    assert policy(text).tools[0].treatment.tidying == expected
    text = f"{{defaults: {{tidy: {defaults}}}, models: [{{match: m, tidy: {own}}}], profiles: {{p: {{tidy: {own}}}}}}}"
    config = load_config(text, environment={})
    for found in (config.policy_for("m"), config.over_defaults(config.profiles["p"])):
        assert found.to_policy(Prices()).tidying == expected
    # A tool's switches override the model's.
    text = f"{{defaults: {{tidy: {defaults}}}, models: [{{match: m, tools: {{x: {{tidy: {own}}}}}}}]}}"
    (tool,) = load_config(text, environment={}).policy_for("m").to_policy(Prices()).tools
    assert tool.treatment.tidying == expected


def test_what_a_tools_entry_does_not_set_is_the_policys() -> None:
    """Budgets are in our tokens, whatever the model's ratio. Globs keep their order."""
    text = """{max_tool_result_tokens: 1000, max_tool_result_bytes: 5000, truncation: head_tail, dedupe: false, tools: {
      "z*": {}, "a*": {max_tool_result_tokens: 200, tidy: false}, "b": {exclude: true, truncation: salient},
      "c": {exclude: ["*.md", "x"]}, "*": {max_tool_result_bytes: 300, dedupe: true}}}"""
    own = Treatment(Budget(1000, 5000), Truncation.HEAD_TAIL, Tidying(), dedupe=False)
    assert policy(text, token_ratio=2.0).tools == (
        ToolRule("z*", own),
        ToolRule("a*", Treatment(Budget(200, 5000), Truncation.HEAD_TAIL, None, dedupe=False)),
        ToolRule("b", Treatment(Budget(1000, 5000), Truncation.SALIENT, Tidying(), dedupe=False, is_exempt=True)),
        ToolRule(
            "c",
            Treatment(
                Budget(1000, 5000), Truncation.HEAD_TAIL, Tidying(), dedupe=False, exempt_arguments=("*.md", "x")
            ),
        ),
        ToolRule("*", Treatment(Budget(1000, 300), Truncation.HEAD_TAIL, Tidying(), dedupe=True)),
    )


def test_a_models_tools_replace_the_defaults() -> None:
    """All tools of the defaults are replaced. A model without tools has those of the defaults."""
    config = load_config(
        "defaults: {tools: {a: {dedupe: false}}}\nmodels: [{match: x, tools: {b: {}}}, {match: y, dedupe: false}]",
        environment={},
    )
    assert [list(config.policy_for(model).tools) for model in "xyz"] == [["b"], ["a"], ["a"]]
    treatments = [config.policy_for(model).to_policy(Prices()).find_treatment("a") for model in "xy"]
    assert [treatment.dedupe for treatment in treatments] == [True, False]


@pytest.mark.parametrize(("text", "value"), [("false", False), ("true", True), ("no", False), ("${X:-off}", False)])
def test_a_switch_may_be_text(text: str, *, value: bool) -> None:
    """Variables give texts. Every switch accepts the same texts, also a switch that may be a section."""
    policy = load_config(
        f"defaults: {{dedupe: '{text}', tidy: '{text}', tools: {{a: {{exclude: '{text}', tidy: '{text}'}}}}}}",
        environment={},
    ).defaults
    whole = TidyConfig.model_validate(value)
    assert (policy.dedupe, policy.tidy, policy.tools["a"].exclude, policy.tools["a"].tidy) == (
        value, whole, value, whole,
    )  # fmt: skip
