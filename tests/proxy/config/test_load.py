"""The sources of a configuration: file, environment, settings."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.config import find_problems
from support.golden import check_golden

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import (
    OPTIONS,
    PREFIX,
    SHORT_NAMES,
    find_similar,
    find_unknown_variables,
    is_unknown,
    load_address,
    load_config,
    load_file,
    read_variables,
)
from trimtab.proxy.config.schema import Config
from trimtab.proxy.config.values import Slot, list_keys


def _load(text: str = "", *settings: str, **environment: str) -> Config:
    return load_config(text, settings=settings, environment=environment)


FILE = "mode: off\ndefaults: {high_water: 0.5, low_water: 0.1}\nupstreams: {Local: {base_url: 'http://file'}}"
READ: tuple[tuple[str, tuple[str, ...], dict[str, str]], ...] = (
    ("upstream: {base_url: 'https://${HOST}:${PORT:-8443}/v1', api_key: '${KEY:-sk-own}'}", (), {"HOST": "h"}),
    (
        "models: [{match: '${M}', protect_turns: '${TURNS:-3}'}, {match: '$M ${KEY} ${}'}]",
        (),
        {"M": "q", "KEY": "${KEY}"},
    ),
    ("limits: {drain_seconds: 1}", ("defaults.summary.model=m", "store=memory", "listen=[::1]:9", "listen=h:1"), {}),
    ("defaults: {protect_turns: 5}", ("upstreams.b={base_url: 'http://b', api_key: null}",), {}),
    ("upstream: {base_url: 'http://file'}", (), {"TRIMTAB_UPSTREAM": "http://env/v1/", "TRIMTAB_LISTEN": "[::1]:2"}),
    ("upstream: {base_url: 'http://file'}", ("upstream.base_url=http://set",), {"TRIMTAB_UPSTREAM": "http://env"}),
    (FILE, (), {"TRIMTAB_UPSTREAM": "", "TRIMTAB_MODE": "", "TRIMTAB_DEFAULTS__HIGH_WATER": "", "TRIMTAB_MODELS": ""}),
    (FILE, (), {"TRIMTAB_DEFAULTS__HIGH_WATER": "0.7", "TRIMTAB_UPSTREAMS__LOCAL__BASE_URL": "http://variable"}),
    (FILE, ("defaults.high_water=0.9",), {"TRIMTAB_DEFAULTS__HIGH_WATER": "0.7", "TRIMTAB_WORKERS": "2"}),
    ("models: [{match: a}]", (), {"TRIMTAB_MODELS": "[{match: '${M:-b}', mode: observe}]"}),
    ("", (), {"TRIMTAB_LIMITS__DRAIN_SECONDS": "3", "TRIMTAB_LIMITS": "{drain_seconds: 1, max_held_bytes: 4096}"}),
    ("", (), {"TRIMTAB_UPSTREAM__API_KEY": "${KEY}", "KEY": "sk-${KEY}"}),
    ("", (), {"TRIMTAB_UPSTREAM__API_KEY": "${KEY}"}),
    ("upstream: {base_url: '${URL}', prices: '${PRICES}'}", (), {"URL": "", "PRICES": ""}),
    ("defaults: {summary: {model: '${M}m'}}", (), {"M": ""}),
    *(
        ("", (), {"TRIMTAB_DEFAULTS__SUMMARY__MODEL": text})
        for text in ("123", "true", "a #b", "[a", "*x", "'x'", "null")
    ),
)


def test_what_is_read_is_of_the_file_variables_and_settings() -> None:
    """Settings lie over variables, and these over the file; each sets one key, outer ones first. Empty ones set none.

    Braced names are replaced once, everywhere. A text of a variable stands as it is, unless it is in quotes.
    """
    told = {}
    for text, settings, environment in READ:
        problems = find_problems(text, *settings, **environment)
        read = {} if problems else _load(text, *settings, **environment).model_dump(exclude_unset=True)
        title = " ".join(str(part) for part in (text, settings, environment) if part)
        told[title] = "\n".join(problems or (f"{name}: {value}" for name, value in read.items()))
    check_golden("config/read", told)


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


@pytest.mark.parametrize("text", ["", "# mode: off\n  # and more", "{} # the defaults"])
def test_a_file_that_says_nothing_is_valid_where_it_may_be(text: str, tmp_path: Path) -> None:
    """An empty file is valid at the start. At a reload, somebody is probably writing it."""
    file = tmp_path / "trimtab.yaml"
    file.write_text(text, encoding="utf-8")

    assert load_file(file, ("mode=off",)) == load_file(None, ("mode=off",))
    with pytest.raises(ConfigError, match="is empty; write a new file and rename it"):
        load_file(file, may_be_empty=False)
    file.write_text("mode: enforce", encoding="utf-8")
    assert load_file(file, may_be_empty=False) == load_file(None)


@pytest.mark.parametrize(
    ("text", "settings", "environment", "address"),
    [
        ("- no mapping", (), {}, Config().listen),
        ("{listen: 127.0.0.1:1, mode: wrong, store: '${LACKING}'}", (), {}, "127.0.0.1:1"),
        ("listen: '${HOST}:1'", (), {"HOST": "127.0.0.2", "TRIMTAB_MODE": "wrong"}, "127.0.0.2:1"),
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


# What the variables of the environment and the settings change, and what is told of their mistakes.


def test_a_problem_names_the_variable_and_no_secret() -> None:
    """A setting over the variable, or the file's own mistake elsewhere, is not blamed on it."""
    secret = "sk-planted\nkey"  # noqa: S105 - not a real secret
    assert find_problems("", "defaults.high_water=8", TRIMTAB_DEFAULTS__HIGH_WATER="7") == [
        "defaults.high_water: 8 must be auto, or a number above 0 and at most 1"
    ]
    assert find_problems("", TRIMTAB_MODELS="[{match: a}, {match: b, mod: off}]") == [
        "models[1].mod (TRIMTAB_MODELS): unknown key; did you mean mode?"
    ]
    for name in ("UPSTREAM__API_KEY", "ADMIN_TOKEN", "CLIENT_KEYS", "UPSTREAM__PROXY", "UPSTREAMS"):
        problems = find_problems("", **{f"TRIMTAB_{name}": secret})
        assert problems
        assert all(f"TRIMTAB_{name}" in problem for problem in problems)
        assert not any("planted" in problem for problem in problems)


def test_a_file_is_read_with_the_process_s_variables(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`serve`, a reload and `check` use this; a process's environment does not change while it runs."""
    file = tmp_path / "trimtab.yaml"
    file.write_text(FILE, encoding="utf-8")
    monkeypatch.setenv("TRIMTAB_DEFAULTS__HIGH_WATER", "0.7")

    assert load_file(file).defaults.high_water == 0.7
    assert load_file(file, may_be_empty=False) == load_file(file)


KUBERNETES = (
    "TRIMTAB_PORT",
    "TRIMTAB_SERVICE_HOST",
    "TRIMTAB_SERVICE_PORT",
    "TRIMTAB_SERVICE_PORT_HTTP",
    "TRIMTAB_PORT_8790_TCP",
    "TRIMTAB_PORT_8790_TCP_ADDR",
)


def _find_paths(data: dict[str, Any], *names: str) -> list[str]:
    variables, problems = read_variables(dict.fromkeys(names, "x"), data)
    assert not problems
    return [".".join(map(str, variable.path)) for variable in variables]


def _list_paths(slot: Slot, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key in list_keys(slot.section) if slot.section else ():
        inner = slot.enter(key)
        assert inner is not None
        found += [(*path, key), *_list_paths(inner, (*path, key))]
    return found


def test_every_key_has_a_variable() -> None:
    """Its name is the path in upper case, joined by two underscores. Only those with a short name are otherwise."""
    paths = {PREFIX + "__".join(path).upper(): [".".join(path)] for path in _list_paths(Slot.of(Config))}
    assert {name: _find_paths({}, name) for name in paths if name not in SHORT_NAMES} == {
        name: path for name, path in paths.items() if name not in SHORT_NAMES
    }


def test_a_name_of_the_user_s_choice_is_found_in_the_file_or_is_lower_case() -> None:
    """Capitals mean lower case, unless the file has the name in another case. Other names stay as written."""
    name = "TRIMTAB_UPSTREAMS__LOCAL__BASE_URL"
    assert _find_paths({}, name) == ["upstreams.local.base_url"]
    assert _find_paths({"upstreams": {"Local": {}}}, name) == ["upstreams.Local.base_url"]
    assert _find_paths({"upstreams": {"LOCAL": {}, "local": {}}}, name) == ["upstreams.LOCAL.base_url"]
    assert _find_paths({}, "TRIMTAB_UPSTREAMS__My-Box__BASE_URL") == ["upstreams.My-Box.base_url"]
    assert _find_paths({"upstreams": None}, name) == ["upstreams.local.base_url"]


def test_an_unknown_name_without_two_underscores_is_no_problem_but_is_told() -> None:
    """Kubernetes sets such variables for a service named trimtab. A name that is nearly right is told as such."""
    environment = dict.fromkeys(
        (*KUBERNETES, "TRIMTAB_WORKER", "TRIMTAB_DEFAULTS_HIGH_WATER", "OTHER", "trimtab_x"), "x"
    )

    assert load_config(environment=environment) == load_config(environment={})
    told = find_unknown_variables({**environment, **dict.fromkeys(OPTIONS, ""), "TRIMTAB_UPSTREAM": "http://h"})
    assert set(told) == {*KUBERNETES, "TRIMTAB_WORKER", "TRIMTAB_DEFAULTS_HIGH_WATER"}
    assert told["TRIMTAB_WORKER"] == "TRIMTAB_WORKERS"
    assert told["TRIMTAB_DEFAULTS_HIGH_WATER"] == "TRIMTAB_DEFAULTS__HIGH_WATER"
    assert told["TRIMTAB_SERVICE_HOST"] is None


@given(name=st.text(st.characters(codec="utf-8", exclude_characters="\0="), max_size=30))
def test_no_name_breaks_the_start(name: str) -> None:
    """A name leads to a key, to a problem that begins with it, or to a warning."""
    name = f"{PREFIX}{name}"
    variables, problems = read_variables({name: "x"}, {})

    assert len(variables) + len(problems) + is_unknown(name) + (name in OPTIONS) == 1
    assert find_similar(name) is None or find_similar(name).startswith(PREFIX)
