"""The policy of a model's requests, from its settings and from what is known of it."""

from dataclasses import replace

import pytest

from trimtab.proxy.catalogue.prices import find_price_list
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.policy import PolicyConfig
from trimtab.proxy.config.schema import Config
from trimtab.proxy.models.model_policy import ModelView, name_model
from trimtab.proxy.models.records import Facts
from trimtab.rules.policy import SummaryRole
from trimtab.rules.tokens.families import Reading


def _load(text: str) -> Config:
    return load_config(text, environment={})


def _view(facts: Facts, text: str = "") -> ModelView:
    config = _load(text)
    settings = config.policy_for("m")
    return ModelView.of(config, settings, name_model(config, settings, "m"), facts)


@pytest.mark.parametrize(
    ("text", "facts", "expected"),
    [
        ("", Facts(1.0), (128_000, 128_000, "default")),
        ("", Facts(1.0, 9000), (9000, 9000, "discovered")),
        ("", Facts(1.0, 9000, from_catalogue=True), (9000, 9000, "catalogue")),
        ("defaults: {context_window: 8000}", Facts(1.0, 9000), (8000, 8000, "configured")),
        ("", Facts(1.0, 9000, learned_tokens=5000, refuted=(9000,)), (5000, 9000, "learned")),
        ("", Facts(1.0, 9000, learned_tokens=12_000, refuted=(9000,)), (12_000, 9000, "learned")),
        ("", Facts(1.0, 9000, learned_tokens=5000, refuted=(8000,)), (9000, 9000, "discovered")),
        (
            "defaults: {context_window: 8000}",
            Facts(1.0, learned_tokens=12_000, refuted=(8000,)),
            (8000, 8000, "configured"),
        ),
        ("defaults: {context_window: 8000}", Facts(1.0, learned_tokens=5000, refuted=(8000,)), (5000, 8000, "learned")),
    ],
)
def test_the_window_is_the_one_that_is_known_best(text: str, facts: Facts, expected: tuple[int, int, str]) -> None:
    """It is configured, else found, else assumed; a learned window corrects it if this very window was refuted."""
    view = _view(facts, text)

    assert (view.policy.context_window, view.believed_tokens, view.window_from) == expected


@pytest.mark.parametrize(
    ("facts", "learned", "learned_window", "doubtful"),
    [
        (Facts(1.0, 9000), False, False, False),
        (Facts(1.0, 9000, learned_tokens=5000, refuted=(9000,)), True, True, True),
        (Facts(1.0, 9000, learned_tokens=5000, refuted=(8000,)), False, False, False),
        (Facts(1.0, 9000, learned_tokens=12_000, refuted=(9000,)), False, False, False),
        (Facts(1.0, 9000, added_tokens=0), True, True, True),
        (Facts(1.5, 9000, has_ratio=True), True, False, True),
        (Facts(1.5, 9000, has_ratio=True, is_calibrated=True), True, False, False),
    ],
)
def test_a_lesson_counts_if_it_leaves_less_room(
    facts: Facts, *, learned: bool, learned_window: bool, doubtful: bool
) -> None:
    """A window that is larger than the believed one takes nothing away, and a confirmed ratio is not in doubt."""
    view = _view(facts)

    assert (view.has_learned, view.has_learned_window, view.is_doubtful) == (learned, learned_window, doubtful)


def test_the_policy_has_the_window_the_ratio_and_the_completion_that_are_known() -> None:
    facts = Facts(1.5, 9000, learned_tokens=5000, added_tokens=700, refuted=(9000,))
    config = _load("models: [{match: m, high_water: 0.7}]")
    settings = config.policy_for("m")
    prices = find_price_list(config, settings, "m").to_ratios()
    expected = replace(settings.to_policy(prices, token_ratio=1.5, window_tokens=5000), added_tokens=700)
    for _ in range(2):
        assert ModelView.of(config, settings, name_model(config, settings, "m"), facts).policy == expected


@pytest.mark.parametrize(
    ("configured", "shifts", "role"),
    [("auto", True, SummaryRole.LAST), ("auto", False, SummaryRole.AUTO), ("user", True, SummaryRole.USER)],
)
def test_a_summary_stands_last_where_what_has_moved_can_be_reused(
    configured: str, role: SummaryRole, *, shifts: bool
) -> None:
    view = _view(Facts(1.0, reading=Reading(shifts=shifts)), f"defaults: {{summary: {{role: {configured}}}}}")
    assert view.policy.summary_role is role


def test_configurations_that_differ_only_in_what_they_leave_open_are_told_apart() -> None:
    """A tool with `ansi: true` differs from a tool that leaves it to the defaults, although their values are equal."""
    head = "defaults: {tidy: {ansi: false}, tools: {a: {tidy: "
    said, open_ = (_view(Facts(1.0), f"{head}{tidy}}}}}}}") for tidy in ("{ansi: true, json: true}", "{json: true}"))

    assert said.settings == open_.settings
    tidyings = [view.policy.find_treatment("a").tidying for view in (said, open_)]
    assert [tidying is not None and tidying.ansi for tidying in tidyings] == [True, False]


def test_prices_are_the_configurations() -> None:
    settings = PolicyConfig()
    policies = []
    for text in ("", "prices: {output: 9}"):
        config = _load(text)
        policies.append(ModelView.of(config, settings, name_model(config, settings, "m"), Facts(1.0)).policy)
    assert [policy.prices.output for policy in policies] == [4.0, 9.0]


def test_a_model_that_nobody_has_asked_for_has_what_its_name_tells() -> None:
    """It has its family's ratio, its entry of `models` and its window in the catalogue."""
    config = _load("models: [{match: 'qwen*', high_water: 0.75, context_window: 9000}]")
    qwen, gpt = (ModelView.of_unmet(config, model) for model in ("qwen3-8b", "gpt-3.5-turbo"))

    assert (qwen.facts, qwen.policy.high_water, qwen.window_from) == (Facts(0.9928), 0.75, "configured")
    assert (gpt.policy.context_window, gpt.window_from) == (16_385, "catalogue")


def test_a_model_is_known_at_the_upstream_that_its_requests_go_to() -> None:
    """The name consists of the upstream, the model's name and the vocabulary."""
    config = _load(
        "{upstreams: {o: {base_url: 'http://o/v1'}}, models: [{match: m, upstream: o, count: heuristic}]}",
    )
    name = name_model(config, config.policy_for("m"), "m")

    assert (name.base_url, name.model, name.vocabulary) == ("http://o/v1", "m", "heuristic")
