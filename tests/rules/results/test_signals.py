"""What a line says about how things went."""

import re
from collections.abc import Iterable, Iterator
from itertools import product
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

from trimtab.rules.results import signals
from trimtab.rules.results.signals import CALM, ERROR, NO_SIGNAL, SUMMARY, holds_word, mask_names, read_signal

ERRORS = [
    "error: unknown option",
    "src/a.c:3:9: error: expected ';'",
    "fatal: not a git repository",
    "ValueError: invalid literal",
    "thread 'main' panicked at src/main.rs:3:5",
    "FAILED tests/test_a.py::test_b - assert 1 == 2",
    "not ok 3 - adds",
    "ERROR 1045 (28000): Access denied",
    "Segmentation fault (core dumped)",
    "npm ERR! missing script: build",
    "error[E0382]: borrow of moved value: `list`",
    "--- FAIL: TestParse (0.00s)",
]
SUMMARIES = [
    "3 passed, 1 failed in 0.2s", "Ran 12 tests in 0.01s", "exit status 2", "Tests: 4 failed, 9 total",
    "Found 3 errors", "5 examples, 1 pending", "OK (3 assertions)", "added 200 packages in 3s",
    "found 12 vulnerabilities", "1 vulnerability", "# pass 12",
]  # fmt: skip
PASSING = [
    "tests/test_error.py::test_failure PASSED",
    "ok 3 - reports an error",
    "test errors::panic_on_failure ... ok",
    "\u2713 shows an error when it failed",
    "PASS src/error.test.js",
]
OTHERS = [
    "timedout",
    "time out after 3 s",
    "lost connection to the server",
    "GET /api/users 500 12 ms",
    "12:01 ERR no route to host",
]
PLAIN = ["the sky is blue", "errorless", "import os", "", "0123", "module.error_code = 3", "-Werror-less"]


def spell(parsed: Iterable[Any]) -> Iterator[str]:
    """Texts that a parsed pattern matches: every alternative, and each optional part with and without."""
    return ("".join(parts) for parts in product(*(list(spell_one(*item)) for item in parsed)))


def spell_one(kind: Any, value: Any) -> Iterator[str]:
    """The texts of one item of a pattern. Lookarounds have no text."""
    if kind is _constants.LITERAL:
        yield chr(value)
    elif kind is _constants.IN:
        signs = list(spell_set(value))
        yield from ["z"] if (_constants.NEGATE, None) in value else signs
    elif kind is _constants.BRANCH:
        for branch in value[1]:
            yield from spell(branch)
    elif kind is _constants.SUBPATTERN:
        yield from spell(value[-1])
    elif kind in {_constants.MAX_REPEAT, _constants.POSSESSIVE_REPEAT}:
        low, high, inner = value
        for times in {low, min(low + 1, high)}:
            yield from (text * times for text in spell(inner))
    else:
        assert kind in {_constants.AT, _constants.ASSERT, _constants.ASSERT_NOT}, kind
        yield ""


def spell_set(items: Iterable[Any]) -> Iterator[str]:
    categories = {
        _constants.CATEGORY_DIGIT: "4",
        _constants.CATEGORY_WORD: "x",
        _constants.CATEGORY_SPACE: " ",
        _constants.CATEGORY_NOT_SPACE: "z",
    }
    for kind, value in items:
        if kind is not _constants.NEGATE:
            yield chr(value) if kind is _constants.LITERAL else categories[value]


def patterns_of(value: object) -> Iterator["re.Pattern[str]"]:
    if hasattr(value, "search"):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from patterns_of(item)


PATTERNS = [*patterns_of(signals._WORDS), signals._STATUS, signals._OPENS_SUMMARY, signals._SUMMARY]
SPELLED = sorted(
    {
        text
        for pattern in PATTERNS
        for spelled in spell(_parser.parse(pattern.pattern))
        for text in (spelled, spelled.upper(), spelled.title())
        if pattern.search(text)
    }
)


def test_every_alternative_of_a_pattern_is_spelled_and_none_is_missed_by_the_stems() -> None:
    """Every line that a pattern matches contains a stem."""
    for pattern in PATTERNS:
        assert all(map(pattern.search, spell(_parser.parse(pattern.pattern))))
    assert {"fatal", "panicked", "Timed Out", "2 vulnerabilities"} - set(SPELLED) == {"2 vulnerabilities"}
    assert [line for line in SPELLED if not holds_word(line)] == []


def test_a_line_weighs_what_it_says() -> None:
    """Errors and totals most; what passed nothing, whatever the test is called."""
    for line in ERRORS:
        assert read_signal(line).weight >= ERROR
    for line in SUMMARIES:
        assert read_signal(line).weight >= SUMMARY
    for line in OTHERS:
        assert CALM <= read_signal(line).weight <= ERROR
    for line in [*PASSING, *PLAIN]:
        assert read_signal(line) is NO_SIGNAL


def test_lines_that_speak_alike_are_one_family() -> None:
    """Those that differ in names and numbers. A request is told by its status."""
    one, two, other = (
        read_signal(f"a{number}.c:{number}: error: {text}")
        for number, text in ((1, "'x' undeclared"), (22, "'y' undeclared"), (3, "expected declaration"))
    )
    assert one.family == two.family != other.family
    assert mask_names("see src/a.c or 'b c' 12 times").split() == ["see", "\0", "or", "\0", "\0", "times"]
    assert read_signal('"GET /a HTTP/1.1" 503 12').family == ("http", "503")
    assert read_signal('"GET /a HTTP/1.1" 200 503') is NO_SIGNAL
    assert all(map(holds_word, ["an Error", "WARN: it", "\ud800 failed", "ERR", "GET /a", "it is Refused"]))
    assert not any(map(holds_word, ["nothing", "", "err", "or", "forget it", "a target"]))
