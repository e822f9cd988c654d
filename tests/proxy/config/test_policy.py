"""The values that the rules get from a policy's keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.policy import (
    DEFAULT_CONTEXT_WINDOW,
    PolicyConfig,
    Same,
    Section,
    TidyConfig,
    WindowConfig,
    overlay,
    read_descriptions,
)
from trimtab.proxy.config.schema import Config
from trimtab.rules.economy import Economy, find_budgets
from trimtab.rules.policy import (
    INSTRUCTION_FILES,
    MEMORY_TAGS,
    Budget,
    OnExceeded,
    OverflowStrategy,
    Policy,
    Prices,
    SectionShares,
    SummaryRole,
    Tidying,
    ToolRule,
    Treatment,
    Truncation,
)

PRICES = Prices(2.0, 1.0, 8.0)
WINDOWS = st.integers(1024, 3_000_000)
SHARES = st.floats(0.01, 0.99)


def _load(text: str = "", **environment: str) -> Config:
    return load_config(text, environment=environment)


def _waters(settings: PolicyConfig, window_tokens: int | None = None) -> tuple[float, float]:
    policy = settings.to_policy(Prices(), window_tokens=window_tokens)
    return policy.high_water, policy.low_water


def _fitted(window_tokens: int = DEFAULT_CONTEXT_WINDOW, economy: Economy = Economy.BALANCED) -> tuple[float, float]:
    budgets = find_budgets(economy, window_tokens)
    return budgets.high_water, budgets.low_water


def test_a_policy_is_what_the_rules_need() -> None:
    """Every number arrives under its name. An unknown window is 128,000 tokens."""
    text = """{context_window: 9000, completion_reserve: 10, high_water: 0.7, low_water: 0.3, overflow_strategy: prune,
    on_exceeded: forward, max_tool_result_tokens: 99, max_tool_result_bytes: 999, protect_turns: 1, keep_user_tokens: 5,
    anchors: 0.2, keep_images: 4, instruction_files: [RULES.md], summary: {max_tokens: 77, min_steps: 3, role: pair}}"""

    assert _load("defaults: " + text).defaults.to_policy(PRICES) == Policy(
        9000,
        10,
        0.7,
        0.3,
        OverflowStrategy.PRUNE,
        OnExceeded.FORWARD,
        Budget(99, 999),
        1,
        5,
        77,
        3,
        SummaryRole.PAIR,
        PRICES,
        anchor_share=0.2,
        cuts_at_threshold=True,
        keep_images=4,
        instruction_files=("RULES.md",),
    )


@given(window_tokens=WINDOWS, economy=st.sampled_from(Economy))
def test_what_is_auto_is_fitted_to_window_and_economy(window_tokens: int, economy: Economy) -> None:
    """That is: the waters, the tokens of a summary and the share of the index. Other keys have fixed defaults."""
    budgets = find_budgets(economy, window_tokens)

    assert PolicyConfig(economy=economy).to_policy(Prices(), window_tokens=window_tokens) == Policy(
        context_window=window_tokens,
        high_water=budgets.high_water,
        low_water=budgets.low_water,
        summary_max_tokens=budgets.summary_tokens,
        anchor_share=budgets.anchor_share,
        risk_share=budgets.risk_share,
        keep_images=None,
        instruction_files=INSTRUCTION_FILES,
    )


@given(share=SHARES, window_tokens=WINDOWS)
def test_one_water_that_is_set_has_a_fitting_other_one(share: float, window_tokens: int) -> None:
    """A low water is the fitted one, but at most half of high water; a high water has the fitted ratio to low water."""
    fitted_high, fitted_low = _fitted(window_tokens)

    high, low = _waters(PolicyConfig(high_water=share), window_tokens)
    assert high == share
    assert low == min(fitted_low, share / 2)

    high, low = _waters(PolicyConfig(low_water=share), window_tokens)
    assert low == share
    assert low < high < 1
    if share * fitted_high / fitted_low < (1 + share) / 2:
        assert high == pytest.approx(share * fitted_high / fitted_low)


@pytest.mark.parametrize(
    ("defaults", "profile", "expected"),
    [
        ("{high_water: 0.9, low_water: 0.2}", "{high_water: 0.5}", (0.5, 0.2)),
        ("{high_water: 0.9, low_water: 0.2}", "{high_water: auto, low_water: auto}", _fitted()),
        ("{high_water: 0.9, low_water: 0.2}", "{}", (0.9, 0.2)),
        ("{economy: frugal}", "{economy: careful}", _fitted(economy=Economy.CAREFUL)),
        ("{}", "{high_water: 0.6, low_water: 0.3}", (0.6, 0.3)),
        ("{economy: careful}", "{context_window: 32000}", _fitted(32_000, Economy.CAREFUL)),
    ],
)
def test_a_profile_sets_its_waters_over_the_defaults(
    defaults: str, profile: str, expected: tuple[float, float]
) -> None:
    """Each key is set by itself. A key or a window that the profile does not set comes from the defaults."""
    config = _load(f"{{defaults: {defaults}, profiles: {{p: {profile}}}}}")

    assert _waters(config.over_defaults(config.profiles["p"])) == expected


def test_a_request_has_the_policy_of_its_profile_or_else_of_its_model() -> None:
    """Each over the defaults, which hold without any. What the entry says of the model holds with a profile, too."""
    models, profiles = "[{match: m, protect_turns: 2, context_window: 9000}]", "{p: {protect_turns: 3}}"
    config = _load(f"{{defaults: {{protect_turns: 1}}, models: {models}, profiles: {profiles}}}")
    entry, profile = config.models[0], config.profiles["p"]
    none = config.defaults.context_window
    found = [config.policy_of(*pair) for pair in ((None, None), (entry, None), (None, profile), (entry, profile))]
    told = [(one.protect_turns, one.context_window) for one in found]
    assert told == [(1, none), (2, 9000), (3, none), (3, 9000)]


@pytest.mark.parametrize("text", ["{}", "{low_water: 0.2}", "{high_water: 0.9}", "{economy: careful}"])
def test_a_percentage_of_the_environment_replaces_a_high_water_that_is_auto(text: str) -> None:
    """Low water is the economy's, but at most half of it, in profiles too. The first request that reaches it is cut."""
    config = _load(f"{{defaults: {text}, profiles: {{p: {text}}}}}", TRIMTAB_AUTOCOMPACT_PCT="50")

    for settings in (config.defaults, config.over_defaults(config.profiles["p"])):
        assert _waters(settings) == (0.5, min(_fitted(economy=settings.economy)[1], 0.25))
        assert settings.to_policy(Prices()).cuts_at_threshold


def test_a_window_holds_only_at_its_endpoint() -> None:
    window = WindowConfig(endpoint="chat", tokens=9000)
    assert [window.matches([], endpoint) for endpoint in ("chat", "messages")] == [True, False]


def test_numbers_of_the_rules_are_in_our_tokens() -> None:
    """A summary's maximum is given in the model's own tokens. The window and the reserve are not converted."""
    settings = PolicyConfig()
    policy = settings.to_policy(Prices(), token_ratio=2.0, window_tokens=64_000)

    assert policy.summary_max_tokens == round(find_budgets(Economy.BALANCED, 64_000).summary_tokens / 2)
    assert policy.keep_user_tokens == settings.keep_user_tokens / 2
    assert (policy.context_window, policy.completion_reserve) == (64_000, settings.completion_reserve)


def test_a_key_stands_for_one_object() -> None:
    """Equal objects have different keys, and a key does not equal its object."""
    one, other = [1], [1]
    cache = {Same(one): "one", Same(other): "other"}

    assert (cache[Same(one)], cache[Same(other)], Same([1]) in cache, Same(one) == one) == (
        "one",
        "other",
        False,
        False,
    )


def test_what_is_written_counts_although_it_is_the_default() -> None:
    """The same two policies give the same object."""
    under = PolicyConfig(high_water=0.9, dedupe=False)
    over = PolicyConfig(dedupe=True)
    joined = overlay(under, over)
    assert (joined.high_water, joined.dedupe) == (0.9, True)
    assert overlay(under, over) is joined


# The keys for sections and memory, and the values that the rules get from them.


def _policy(text: str) -> Policy:
    return load_config(f"defaults: {text}", environment={}).defaults.to_policy(Prices())


def test_sections_and_memory_are_as_configured() -> None:
    """Without the key, sections have no limits. No tag: no text is memory."""
    assert (_policy("{}").sections, _policy("{}").memory_tags) == (None, MEMORY_TAGS)
    assert _policy("{sections: {}}").sections == SectionShares()
    assert _policy("{sections: {recent: 0.3, memory: 0}}").sections == SectionShares(memory=0, recent=0.3)
    assert _policy("{memory: {tags: [a, b-c]}}").memory_tags == ("a", "b-c")
    assert _policy("{memory: {tags: []}}").memory_tags == ()


# The keys of a policy that the shell needs, by model and by profile.


def test_each_key_can_differ_for_a_model_and_a_profile() -> None:
    """What an entry does not set has the value of defaults."""
    text = """
    defaults: {drop_tools: ["mcp__*"], observe_share: 0.5}
    models: [{match: "a*", mode: observe}]
    profiles: {strict: {pairing: refuse, drop_tools: []}}
    """
    config = load_config(text, environment={})
    model, profile = config.policy_for("a1"), config.over_defaults(config.profiles["strict"])

    assert (model.mode, model.observe_share, model.drop_tools) == ("observe", 0.5, ("mcp__*",))
    assert (profile.mode, profile.pairing, profile.drop_tools) == (None, "refuse", ())


# What is said of each key: the table of descriptions beside the models of the keys.


def _list_sections(kind: type[BaseModel] = Section) -> list[type[BaseModel]]:
    return [each for found in kind.__subclasses__() for each in (found, *_list_sections(found))]


SECTIONS = {one.__name__: one for one in _list_sections() if one.__module__.startswith("trimtab.")}


def test_each_key_is_described_once_and_nothing_else_is() -> None:
    """A key without a sentence fails, and so does a sentence without its key."""
    own = {name: {key for key in one.__annotations__ if not key.startswith("_")} for name, one in SECTIONS.items()}
    assert {name: set(keys) for name, keys in read_descriptions().items()} == {
        name: own[name] for name in own if own[name]
    }


# The configuration's keys for tool results.


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
        ("{tables: false}", "false", None),
        ("false", "{ansi: true}", Tidying(**{name: name == "ansi" for name in Tidying.__slots__})),
        ("false", "{json: false}", None),
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


@pytest.mark.parametrize("key", ["context_window", "summary.max_tokens"])
def test_a_number_fits_64_bits(key: str) -> None:
    """Else no request could be logged."""
    load_config(settings=[f"defaults.{key}={'9' * 18}"], environment={})
    with pytest.raises(ConfigError, match=rf"{key}: {'9' * 20} must be"):
        load_config(settings=[f"defaults.{key}={'9' * 20}"], environment={})


def test_a_number_is_no_switch() -> None:
    """Also not for a switch that may be a list."""
    for key, number in (("dedupe", 0), ("tools.a.dedupe", 1), ("tools.a.exclude", 1.0)):
        with pytest.raises(ConfigError, match=rf"{key}.*: {number} must be true"):
            load_config(settings=[f"defaults.{key}={number}"], environment={})


@pytest.mark.parametrize(("text", "value"), [("true", True), ("${X:-off}", False)])
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
