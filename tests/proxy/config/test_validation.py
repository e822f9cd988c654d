"""Errors in a configuration: all of them at once, each with name, line and what is allowed, in plain words."""

import os
import re
import traceback
from fnmatch import fnmatchcase
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from support.config import find_problems
from support.sessions import OWN_DATA

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.validation import covers

MISTAKES = OWN_DATA / "config" / "mistakes.yaml"
"""Laws, and for each some texts, settings and variables with everything that is said of them."""
HEAD = (
    "# Configurations, and all that is said of each. If a change is meant: WRITE_GOLDEN=1 pytest -n0, and this test.\n"
)
LAWS: list[dict[str, Any]] = yaml.safe_load(MISTAKES.read_text("utf-8"))
FOREIGN = re.compile(
    r"\b(valid (tuple|dictionary|string|integer|number|boolean)|instance of|Input|NoneType|True|False|None|dict|tuple"
    r"|str|int|float|bool|pydantic|Config|argument|arg|Value error|pattern)\b"
)
"""Words of Python, and of the library that validates."""
SECRET = "sk-proj-very-secret-0123456789"  # noqa: S105 - planted


def _tell(case: dict[str, Any]) -> list[str]:
    return find_problems(case.get("text", ""), *case.get("settings", ()), **case.get("environment", {}))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: str(law["law"]).partition(".")[0])
def test_each_mistake_is_told_once_with_its_place_and_what_is_allowed(law: dict[str, Any]) -> None:
    """Whatever else is wrong. No word is Python's or the validator's, and nothing that is planted is quoted."""
    for case in law["cases"]:
        told = _tell(case)
        if "WRITE_GOLDEN" in os.environ:
            case["said"] = told if len(told) != 1 else told[0]
        assert told == (case["said"] if isinstance(case["said"], list) else [case["said"]])
        for line in told:
            assert not FOREIGN.search(re.sub(r"'[^']*'|\"[^\"]*\"", "", line)), line
            assert not re.search("planted|secret", line, re.IGNORECASE), line
    if "WRITE_GOLDEN" in os.environ:
        MISTAKES.write_text(HEAD + yaml.safe_dump(LAWS, width=118, allow_unicode=True, sort_keys=False), "utf-8")


SECRETS: list[str] = yaml.safe_load((OWN_DATA / "config" / "secrets.yaml").read_text("utf-8"))


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_never_shown(text: str) -> None:
    """If a key is in the wrong place or form, only its path is shown. A traceback does not show it either."""
    with pytest.raises(ConfigError) as caught:
        load_config(text.replace("SECRET", SECRET), environment={})

    assert str(caught.value)
    assert SECRET[:8] not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__cause__ is None


def test_a_long_value_is_cut() -> None:
    """The sentence stays readable."""
    (problem,) = find_problems("mode: " + "x" * 5000)

    assert len(problem) < 200
    assert "…" in problem


KEYS = ["[Rr]ead*", "(a)", "a,b", "a.b", "it's", 'say "x"', "größe", "1", "-1", "0x10", "null", "true", "2024-13-45",
        "function-after[f(), str]", "match", "[key]", "~", "<", "a: b", "# c", "x" * 90]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("place", ["defaults.tools", "profiles", "upstreams"])
def test_any_key_is_named_with_its_line(place: str, key: str) -> None:
    """The key may have any characters, also those that look like something else. Only its value is wrong."""
    written = "'" + key.replace("'", "''") + "'"
    section, _, inner = place.partition(".")
    head = f"{section}:\n" + (f"  {inner}:\n" if inner else "")
    (problem,) = find_problems(f"{head}    {written}:\n\n      nope: 1\n")
    line = head.count("\n") + 3

    shown = key if re.fullmatch(r"[\w-]{1,80}", key) else '"' + key.replace('"', '\\"') + '"'
    shown = shown if len(key) <= 80 else f'"{key[:80]}…"'
    assert problem.startswith(f"{place}.{shown}.nope (line {line}): unknown key; known here: ")


UNITS = st.sampled_from(["a", "b", "*", "?", "[ab]", "[!a]", "[a]", "!", "]", "[]]", "[!]", "[[]", "[b-a]"])
GLOBS = st.lists(UNITS, max_size=6).map("".join)
NAMES = st.text("ab![]", max_size=6)


@given(GLOBS, GLOBS, st.lists(NAMES, min_size=5, max_size=20))
@example("?", "*", ["", "ab"])
@example("[!a]*", "?b", ["ab"])
@example("*b]c", "[ab]c", ["ac"])
def test_what_a_glob_covers_it_matches(earlier: str, later: str, names: list[str]) -> None:
    """No name that the later one matches escapes the earlier one."""
    if covers(earlier, later):
        assert [name for name in names if fnmatchcase(name, later) and not fnmatchcase(name, earlier)] == []


@given(GLOBS, st.lists(UNITS.filter(lambda unit: "[" not in unit), max_size=3).map("".join))
def test_what_is_surely_covered_is_seen(glob: str, more: str) -> None:
    """Such globs are the glob itself, a star, and the beginning of the glob with a star after it."""
    assert covers(glob, glob)
    assert covers("*", glob)
    if "[" not in glob:
        assert covers(glob + "*", glob + more)
