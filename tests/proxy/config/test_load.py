"""The sources of a configuration: file, environment, settings."""

from pathlib import Path

import pytest

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import (
    find_unknown_variables,
    find_winning_variables,
    load_address,
    load_config,
    load_file,
)
from trimtab.proxy.config.schema import Config, UpstreamConfig


def _load(text: str = "", *settings: str, **environment: str) -> Config:
    return load_config(text, settings=settings, environment=environment)


def test_variables_are_filled_in_everywhere() -> None:
    """They are replaced in sections, in lists and inside other text. A default replaces a variable that is not set."""
    text = """
    upstream: {base_url: "https://${HOST}:${PORT:-8443}/v1", api_key: "${KEY:-sk-own}"}
    models: [{match: "${MODEL}", protect_turns: "${TURNS}", context_window: "${WINDOW:-32768}"}]
    profiles: {x: {low_water: "${LOW:-0.5}"}}
    """
    config = _load(text, HOST="h", MODEL="qwen*", TURNS="3")

    assert config.upstream == UpstreamConfig(base_url="https://h:8443/v1", api_key="sk-own")
    assert [(item.match, item.protect_turns, item.context_window) for item in config.models] == [("qwen*", 3, 32768)]
    assert config.profiles["x"].low_water == 0.5


def test_only_braced_names_are_variables() -> None:
    """A dollar sign alone is text. The value of a variable is not searched for variables."""
    config = _load('models: [{match: "$KEY ${KEY} ${}"}]', KEY="${KEY}")

    assert config.models[0].match == "$KEY ${KEY} ${}"


def test_settings_lie_over_the_file() -> None:
    """Each sets one key, nested or new. Its value is YAML. The last of several wins."""
    settings = (
        "defaults.summary.model=m",
        "limits.max_body_bytes=2048",
        "store=memory",
        "listen=[::1]:9",
        "listen=h:1",
    )
    upstream = "upstreams.b={base_url: 'http://b', api_key: null}"
    config = _load("limits: {drain_seconds: 1}\ndefaults: {protect_turns: 5}", *settings, upstream)

    assert (config.defaults.protect_turns, config.defaults.summary.model) == (5, "m")
    assert (config.limits.max_body_bytes, config.limits.drain_seconds, config.listen) == (2048, 1, "h:1")
    assert config.upstreams == {"b": UpstreamConfig(base_url="http://b").named()}


@pytest.mark.parametrize("mode", ["enforce", "observe", "off"])
def test_every_mode_can_be_written_without_quotes(mode: str) -> None:
    """YAML reads a bare `off` as false; the configuration reads what was meant."""
    assert _load(f"mode: {mode}").mode == mode
    assert _load("", f"mode={mode}").mode == mode


def test_environment_wins_over_the_file_and_settings_over_both() -> None:
    """TRIMTAB_UPSTREAM and TRIMTAB_LISTEN set one key each. An empty variable sets none."""
    text = "upstream: {base_url: 'http://file', read_timeout_seconds: 5}\nlisten: 127.0.0.1:1"
    environment = {"TRIMTAB_UPSTREAM": "http://env/v1/", "TRIMTAB_LISTEN": "[::1]:2"}

    assert _load(text, TRIMTAB_UPSTREAM="", TRIMTAB_LISTEN="") == _load(text)
    assert _load(text, **environment).upstream == UpstreamConfig(base_url="http://env/v1", read_timeout_seconds=5)
    assert _load(text, **environment).listen == "[::1]:2"
    assert _load(text, "listen=127.0.0.1:3", "upstream.base_url=http://set", **environment) == _load(
        text, "listen=127.0.0.1:3", "upstream.base_url=http://set"
    )


def test_autocompact_percent_overrides_high_water_everywhere() -> None:
    """Each low water keeps its ratio to high water, in the defaults, the models and the profiles."""
    text = """
    defaults: {high_water: 0.8, low_water: 0.4}
    models: [{match: a, low_water: 0.6}, {match: b, high_water: 0.5}]
    profiles: {p: {high_water: 0.9, low_water: 0.3}}
    """
    config = _load(text, TRIMTAB_AUTOCOMPACT_PCT="60")
    policies = [*map(config.policy_for, "xab"), config.over_defaults(config.profiles["p"])]

    assert [policy.high_water for policy in policies] == [0.6] * 4
    assert [policy.low_water for policy in policies] == pytest.approx([0.3, 0.45, 0.48, 0.2])
    assert _load(text, TRIMTAB_AUTOCOMPACT_PCT="") == _load(text)


def test_a_setting_wins_over_the_percentage() -> None:
    """Where it holds: a high water of the file, in the policy of a model, does not win."""
    text = "models: [{match: a}, {match: b, high_water: 0.5}]\nprofiles: {p: {}, q: {}}"
    settings = ["defaults.high_water=0.9", "profiles.q.high_water=0.7"]
    config = _load(text, *settings, TRIMTAB_AUTOCOMPACT_PCT="60")
    policies = [*map(config.policy_for, "xab"), *map(config.over_defaults, config.profiles.values())]
    assert [policy.high_water for policy in policies] == [0.9, 0.9, 0.6, 0.9, 0.7]


def test_variables_that_win_over_the_file_are_found() -> None:
    """An empty one sets nothing, and one that begins like those of trimtab may be another program's."""
    winning = {"TRIMTAB_AUTOCOMPACT_PCT": "60", "TRIMTAB_DEFAULTS__ECONOMY": "frugal", "TRIMTAB_UPSTREAM": "http://h"}
    others = {"TRIMTAB_MODE": "", "TRIMTAB_CONFIG": "f", "TRIMTAB_LOG_LEVEL": "info", "TRIMTAB_QQQQQ": "1", "HOME": "/"}
    assert find_winning_variables(winning | others) == [*winning]
    assert find_winning_variables({}) == []


def test_the_process_s_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no environment is given, the process's own is read."""
    monkeypatch.setenv("TRIMTAB_UPSTREAM", "http://from-env/v1")

    assert load_config().upstream.base_url == "http://from-env/v1"


@pytest.mark.parametrize("text", ["", "\n\n", "# mode: off\n  # and more", "---\n", "null", "{} # the defaults"])
def test_a_file_that_says_nothing_is_valid_where_it_may_be(text: str, tmp_path: Path) -> None:
    """An empty file is valid at the start. At a reload, somebody is probably writing it."""
    file = tmp_path / "trimtab.yaml"
    file.write_text(text, encoding="utf-8")

    assert load_file(file, ("mode=off",)) == load_file(None, ("mode=off",))
    with pytest.raises(ConfigError, match="is empty; write a new file and rename it"):
        load_file(file, may_be_empty=False)
    file.write_text("mode: enforce", encoding="utf-8")
    assert load_file(file, may_be_empty=False) == load_file(None)


def test_variables_that_set_nothing_are_found_with_what_may_be_meant() -> None:
    """Only those that begin like trimtab's own."""
    environment = {"TRIMTAB_UPSTRAM": "x", "TRIMTAB_UPSTREAM": "http://a/v1", "TRIMTAB_QQQQQ": "x", "HOME": "/"}
    assert find_unknown_variables(environment) == {"TRIMTAB_QQQQQ": None, "TRIMTAB_UPSTRAM": "TRIMTAB_UPSTREAM"}
    assert find_unknown_variables({}) == {}


@pytest.mark.parametrize(
    ("text", "settings", "environment", "address"),
    [
        ("", (), {}, Config().listen),
        ("- no mapping", (), {}, Config().listen),
        ("{listen: 127.0.0.1:1, mode: wrong, store: '${LACKING}'}", (), {}, "127.0.0.1:1"),
        ("listen: '${HOST}:1'", (), {"HOST": "127.0.0.2", "TRIMTAB_MODE": "wrong"}, "127.0.0.2:1"),
        ("listen: 127.0.0.1:1", (), {"TRIMTAB_LISTEN": "127.0.0.1:2"}, "127.0.0.1:2"),
        ("listen: 127.0.0.1:1", ("mode=wrong", "listen=127.0.0.1:3"), {"TRIMTAB_LISTEN": "127.0.0.1:2"}, "127.0.0.1:3"),
    ],
)
def test_the_address_alone_is_known_whatever_else_is_wrong(
    text: str, settings: tuple[str, ...], environment: dict[str, str], address: str, tmp_path: Path
) -> None:
    """A health check has less of an environment than the server."""
    file = tmp_path / "trimtab.yaml"
    file.write_text(text, encoding="utf-8")
    assert load_address(file, settings, environment=environment) == address
