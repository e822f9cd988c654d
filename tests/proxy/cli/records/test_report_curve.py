"""The settings that are compared, and what is told of each."""

from trimtab.proxy.cli.records.report import THRESHOLDS, list_settings
from trimtab.proxy.config.load import load_config
from trimtab.rules.policy import Prices

DOCUMENT = """
defaults: {high_water: 0.5, compact_at_tokens: 9000}
models: [{match: "q*", high_water: 0.3, economy: frugal, protect_turns: 7}]
profiles: {small: {cut: at_threshold}}
"""


def test_each_setting_holds_for_every_policy() -> None:
    """Whatever the configuration says about cuts in general, for a model or in a profile. Other keys stay."""
    config = load_config(DOCUMENT, environment={})
    for name, laid in list_settings(config).items():
        policies = (laid.defaults, *map(laid.over_defaults, (*laid.models, *laid.profiles.values())))
        told = {policy.describe_cut() for policy in policies}
        found = {policy.to_policy(Prices()).high_water for policy in policies}
        if "high_water" in name:
            assert found == {float(name.split()[1])}
        else:
            assert told == {f"cut: when_it_pays: once what a cut saves is worth its price ({name})"}
        assert laid.models[0].protect_turns == 7


def test_the_economies_come_first_and_then_the_thresholds_in_their_order() -> None:
    """From what keeps most to what keeps least."""
    names = list(list_settings(load_config(environment={})))
    assert names[:3] == ["careful", "balanced", "frugal"]
    assert names[3:] == [f"high_water {share:g}" for share in sorted(THRESHOLDS, reverse=True)]
