"""Patterns that are compiled when they are first used."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

from trimtab import proxy, rules
from trimtab.rules.text import late


def test_every_pattern_of_the_rules_can_be_compiled() -> None:
    """A wrong one would else be found by the first text that needs it."""
    for module in pkgutil.walk_packages(rules.__path__, "trimtab.rules."):
        importlib.import_module(module.name)
    late.compile_all()
    assert {type(one.__dict__["compiled"]) for one in late._ALL} == {re.Pattern}


def test_a_group_that_is_repeated_possessively_may_be_empty_in_the_end() -> None:
    """Before 3.11.5, Python goes on behind a last repetition that failed half way (python/cpython#100061).

    An empty last choice takes it back. A group of few repetitions may be atomic: `(?>(?:a|b){1,9})`.
    """
    sources = [file for package in (proxy, rules) for file in Path(package.__path__[0]).rglob("*.py")]
    wrong = re.compile(r"(?<!\|)\)(?:[*+?]|\{+\d*,?\d*\}+)\+")
    lines = [line for file in sources for line in file.read_text("utf-8").splitlines()]
    assert [line for line in lines if wrong.search(line)] == []
    assert sum("|)*+" in line for line in lines) > 5  # it does read the patterns


def test_a_late_pattern_is_compiled_once_and_does_what_the_pattern_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late, "_ALL", [])
    made = []
    monkeypatch.setattr(late.re, "compile", lambda *source: made.append(source) or re._compile(*source))
    pattern = late.compile_late("a(?P<n>[0-9])", re.IGNORECASE)
    assert made == []
    assert pattern.fullmatch("A7")["n"] == "7"
    assert (pattern.sub("x", "a1A2"), pattern.pattern, pattern.groups) == ("xx", "a(?P<n>[0-9])", 1)
    late.compile_all()
    assert made == [("a(?P<n>[0-9])", re.IGNORECASE)]
