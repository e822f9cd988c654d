"""The values that the rules get from a policy's keys."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from support.config import find_problems
from support.golden import check_golden

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.policy import (
    DEFAULT_CONTEXT_WINDOW,
    PolicyConfig,
    PricesConfig,
    Same,
    Section,
    SummaryConfig,
    WindowConfig,
    overlay,
    read_descriptions,
)
from trimtab.proxy.config.schema import Config
from trimtab.rules.economy import Economy, find_budgets
from trimtab.rules.policy import (
    INSTRUCTION_FILES,
    Policy,
    Prices,
    Tidying,
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


POLICIES = (
    "{context_window: 9000, completion_reserve: 10, high_water: 0.7, low_water: 0.3, overflow_strategy: prune}",
    "{on_exceeded: forward, max_tool_result_tokens: 99, max_tool_result_bytes: 999, protect_turns: 1}",
    "{keep_user_tokens: 5}",
    "{anchors: 0.2, keep_images: 4, instruction_files: [R.md], summary: {max_tokens: 77, min_steps: 3, role: pair}}",
    "{anchors: '0', dedupe: 'no', tidy: '${X:-off}', tools: {a: {exclude: 'true', tidy: 'true'}}}",
    "{sections: {recent: 0.3, memory: 0}, memory: {tags: [a, b-c]}}",
    "{sections: {}, memory: {tags: []}, tidy: {}}",
    "{tidy: {tables: false}, tools: {x: {tidy: {json: false}}, y: {tidy: {tables: true}}, z: {tidy: false}}}",
    "{tidy: false, tools: {x: {tidy: {ansi: true}}, y: {tidy: {json: false}}}}",
    "{max_tool_result_tokens: 1000, truncation: head_tail, tools: {'z*': {}, 'a*': {max_tool_result_tokens: 200}}}",
    "{max_tool_result_bytes: 5000, tools: {'z*': {max_tool_result_bytes: 300}, '*': {max_tool_result_tokens: 99}}}",
    "{dedupe: false, tools: {b: {exclude: true, truncation: salient}, c: {exclude: ['*.md', x], dedupe: true}}}",
)
LAID = (
    "{defaults: {high_water: 0.9, low_water: 0.2}, profiles: {p: {high_water: 0.5}, q: {high_water: auto}}}",
    "{defaults: {economy: careful}, profiles: {p: {context_window: 32000}, q: {economy: frugal}}}",
    "{defaults: {summary: {max_tokens: 700}}, models: [{match: m, high_water: 0.6, summary: {min_steps: 9}}]}",
    "{defaults: {tidy: {tables: false}}, models: [{match: m, tidy: {json: false}}]}",
    "{defaults: {tidy: {tables: false}}, models: [{match: n, tools: {x: {tidy: true}}}]}",
    "{defaults: {tools: {a: {dedupe: false}}}, models: [{match: x, tools: {b: {}}}, {match: y, dedupe: false}]}",
    "{defaults: {drop_tools: ['mcp__*'], observe_share: 0.5}, models: [{match: m, mode: observe}]}",
    "{defaults: {drop_tools: ['mcp__*']}, profiles: {strict: {pairing: refuse, drop_tools: []}}}",
)


def _tell(settings: PolicyConfig) -> str:
    """The keys of the shell, and what of the rules' policy is not usual."""
    policy, usual = settings.to_policy(PRICES), Policy()
    shell = f"{settings.mode}, {settings.pairing}, {settings.drop_tools}, {settings.observe_share}"
    names = [one.name for one in fields(Policy) if getattr(policy, one.name) != getattr(usual, one.name)]
    return "\n".join((shell, *(f"  {name}: {getattr(policy, name)}" for name in names)))


def test_a_policy_is_what_the_rules_need() -> None:
    """Every value arrives under its name. Of a model, profile and tool, each key is laid over the defaults by itself.

    But a model's tools replace those of the defaults. Budgets are in our tokens, and tools keep their order.
    """
    told = {text: _tell(_load(f"defaults: {text}").defaults) for text in POLICIES}
    for text in LAID:
        config = _load(text)
        full = [(one.match, config.policy_for(one.match)) for one in config.models]
        full += [(name, config.over_defaults(one)) for name, one in config.profiles.items()]
        told[text] = "\n".join(f"{name}: {_tell(one)}" for name, one in (("defaults", config.defaults), *full))
    check_golden("config/policies", told)
    none = str(dict.fromkeys(Tidying.__slots__, False)).replace("False", "false")  # if all are off, nothing is tidied
    assert _load(f"defaults: {{tidy: {none}}}").defaults.to_policy(PRICES).tidying is None


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


# The keys of a policy that the shell needs, by model and by profile.


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


# The keys for summaries.


def _load_summary(text: str) -> SummaryConfig:
    return load_config(f"defaults: {{summary: {text}}}", environment={}).defaults.summary


def test_every_key_is_read() -> None:
    """An unknown window does not change what is set."""
    text = """{by: provider, model: m, request: inline, when: needed, max_tokens: 100, instructions: Keep names.,
    wait_seconds: 0, min_steps: 1, role: pair, timeout_seconds: 3, temperature: 0}"""

    assert _load_summary(text).model_dump(exclude={"upstream"}) == {
        "by": "provider",
        "model": "m",
        "request": "inline",
        "when": "needed",
        "max_tokens": 100,
        "instructions": "Keep names.",
        "wait_seconds": 0.0,
        "min_steps": 1,
        "role": "pair",
        "timeout_seconds": 3.0,
        "temperature": 0.0,
    }
    assert _load_summary("{max_tokens: '100'}").max_tokens == 100


@pytest.mark.parametrize("window_tokens", [8000, 128_000])
def test_a_summary_grows_with_the_window_unless_its_size_is_set(window_tokens: int) -> None:
    """A learned window counts like any other."""
    sizes = [
        load_config(text, environment={}).defaults.to_policy(Prices(), window_tokens=window_tokens).summary_max_tokens
        for text in ("", "defaults: {summary: {max_tokens: auto}}", "defaults: {summary: {max_tokens: 700}}")
    ]
    fitted = find_budgets(Economy.BALANCED, window_tokens).summary_tokens
    assert sizes == [fitted, fitted, 700]


@pytest.mark.parametrize("instructions", ["", "x" * 4001])
def test_instructions_are_words_of_a_bounded_length(instructions: str) -> None:
    """They are part of every prompt. To set none, write null, not an empty text."""
    assert _load_summary("{}").instructions is None
    assert len(_load_summary(f"{{instructions: {'x' * 4000}}}").instructions or "") == 4000
    (problem,) = find_problems(f"defaults: {{summary: {{instructions: '{instructions}'}}}}")
    assert problem.startswith("defaults.summary.instructions (line 1): ")


# The keys for prices, and which of several applies.


def _load_prices(text: str = "", *settings: str, **environment: str) -> Config:
    return load_config(text, settings=settings, environment=environment)


def test_a_mapping_has_the_defaults_for_its_other_keys() -> None:
    """So a file that was written when there was no `auto` means the same."""
    assert _load_prices("prices: {cached_input: 0.02}").prices == PricesConfig(cached_input=0.02)
    assert _load_prices("prices: {}").prices == PricesConfig()


def test_single_keys_are_set_by_settings_and_variables() -> None:
    """As in every section; the whole may be set as well."""
    assert _load_prices("", "prices.input=3", TRIMTAB_PRICES__OUTPUT="9").prices == PricesConfig(input=3, output=9)
    assert _load_prices("prices: {input: 3}", TRIMTAB_PRICES__OUTPUT="9").prices == PricesConfig(input=3, output=9)
    assert _load_prices("prices: {input: 3}", TRIMTAB_PRICES="auto").prices == "auto"
    dollars = PricesConfig(unit="usd", input=2, cached_input=1, output=8)
    assert _load_prices("", "prices={unit: usd, input: 2, cached_input: 1, output: 8}").prices == dollars
    variable = {"TRIMTAB_UPSTREAM__PRICES__INPUT": "5"}
    assert load_config(environment=variable).upstream.prices == PricesConfig(input=5)


_TEXTS = {None: "null", "auto": "auto", 2: "{output: 2}", 3: "{output: 3}"}
_OWN = st.sampled_from([None, "auto", 2, 3])


@given(top=_OWN.filter(bool), at=_OWN, default=_OWN, entry=_OWN)
def test_a_policy_wins_over_its_upstream_and_that_over_the_top(
    top: str | int, at: str | int | None, default: str | int | None, entry: str | int | None
) -> None:
    """Null is no price. An entry that says null takes away what the defaults say."""
    config = _load_prices(
        f"{{prices: {_TEXTS[top]}, upstreams: {{u: {{base_url: 'http://u/v1', prices: {_TEXTS[at]}}}}},"
        f" defaults: {{upstream: u, prices: {_TEXTS[default]}}},"
        f" models: [{{match: m, prices: {_TEXTS[entry]}}}, {{match: n}}]}}"
    )
    for model, own in (("m", entry), ("n", default), ("o", default)):
        settings = config.policy_for(model)
        prices = config.prices_for(settings, config.upstream_for(settings.upstream))
        expected = next(one for one in (own, at, top) if one is not None)
        assert (prices if prices == "auto" else prices.output) == expected
    assert config.prices_for(config.defaults.model_copy(update={"prices": None}), config.upstream) == config.prices
