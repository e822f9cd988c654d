"""Prices: the keys, their defaults, and which of several applies."""

from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.policy import PricesConfig
from trimtab.proxy.config.schema import Config


def _load(text: str = "", *settings: str, **environment: str) -> Config:
    return load_config(text, settings=settings, environment=environment)


def test_a_mapping_has_the_defaults_for_its_other_keys() -> None:
    """So a file that was written when there was no `auto` means the same."""
    assert _load("prices: {cached_input: 0.02}").prices == PricesConfig(cached_input=0.02)
    assert _load("prices: {}").prices == PricesConfig()


def test_single_keys_are_set_by_settings_and_variables() -> None:
    """As in every section; the whole may be set as well."""
    assert _load("", "prices.input=3", TRIMTAB_PRICES__OUTPUT="9").prices == PricesConfig(input=3, output=9)
    assert _load("prices: {input: 3}", TRIMTAB_PRICES__OUTPUT="9").prices == PricesConfig(input=3, output=9)
    assert _load("prices: {input: 3}", TRIMTAB_PRICES="auto").prices == "auto"
    dollars = PricesConfig(unit="usd", input=2, cached_input=1, output=8)
    assert _load("", "prices={unit: usd, input: 2, cached_input: 1, output: 8}").prices == dollars
    variable = {"TRIMTAB_UPSTREAM__PRICES__INPUT": "5"}
    assert load_config(environment=variable).upstream.prices == PricesConfig(input=5)


_TEXTS = {None: "null", "auto": "auto", 2: "{output: 2}", 3: "{output: 3}"}
_OWN = st.sampled_from([None, "auto", 2, 3])


@given(top=_OWN.filter(bool), at=_OWN, default=_OWN, entry=_OWN)
def test_a_policy_wins_over_its_upstream_and_that_over_the_top(
    top: str | int, at: str | int | None, default: str | int | None, entry: str | int | None
) -> None:
    """Null is no price. An entry that says null takes away what the defaults say."""
    config = _load(
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
