"""Patterns that are compiled when they are first used."""

import importlib
import pkgutil
import re

import pytest

from trimtab import rules
from trimtab.rules.text import late


def test_every_pattern_of_the_rules_can_be_compiled() -> None:
    """A wrong one would else be found by the first text that needs it."""
    for module in pkgutil.walk_packages(rules.__path__, "trimtab.rules."):
        importlib.import_module(module.name)
    late.compile_all()
    assert {type(one.__dict__["compiled"]) for one in late._ALL} == {re.Pattern}


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
