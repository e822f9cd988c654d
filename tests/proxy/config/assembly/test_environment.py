"""Which key a variable of the environment sets."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.config.assembly.environment import (
    OPTIONS,
    PREFIX,
    SHORT_NAMES,
    find_similar,
    is_unknown,
    read_variables,
)
from trimtab.proxy.config.load import find_unknown_variables, load_config
from trimtab.proxy.config.schema import Config
from trimtab.proxy.config.words import Slot, list_keys

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


@pytest.mark.parametrize("path", _list_paths(Slot.of(Config)), ids=".".join)
def test_every_key_has_a_variable(path: tuple[str, ...]) -> None:
    """Its name is the path in upper case, joined by two underscores. Only those with a short name are otherwise."""
    name = PREFIX + "__".join(path).upper()
    if name not in SHORT_NAMES:
        assert _find_paths({}, name) == [".".join(path)]


def test_a_name_of_the_user_s_choice_is_found_in_the_file_or_is_lower_case() -> None:
    """Capitals mean lower case, unless the file has the name in another case. Other names stay as written."""
    name = "TRIMTAB_UPSTREAMS__LOCAL__BASE_URL"
    assert _find_paths({}, name) == ["upstreams.local.base_url"]
    assert _find_paths({"upstreams": {"Local": {}}}, name) == ["upstreams.Local.base_url"]
    assert _find_paths({"upstreams": {"LOCAL": {}, "local": {}}}, name) == ["upstreams.LOCAL.base_url"]
    assert _find_paths({}, "TRIMTAB_UPSTREAMS__My-Box__BASE_URL") == ["upstreams.My-Box.base_url"]
    assert _find_paths({"upstreams": None}, name) == ["upstreams.local.base_url"]


def test_outer_keys_come_before_inner_ones() -> None:
    """So a variable for one key wins over one for its whole section."""
    config = load_config(
        environment={"TRIMTAB_LIMITS__DRAIN_SECONDS": "3", "TRIMTAB_LIMITS": "{drain_seconds: 1, max_held_bytes: 4096}"}
    )

    assert (config.limits.drain_seconds, config.limits.max_held_bytes) == (3, 4096)


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
