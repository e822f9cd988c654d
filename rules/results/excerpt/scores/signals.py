"""What a line says about how things went: words of failure, warnings, totals; and which lines speak alike.

Law: a signal is a function of the line alone. The words are those that compilers, test runners, linters, package
managers and servers use, whatever they are about. Each stands here once: the patterns and the stems, by which lines are
chosen that are worth a pattern, are both made of it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

MAX_CHARS = 400
"""Of a line, looked at."""

ERROR, LOUD, SUMMARY, BANNER, WARNING, CALM = 10.0, 8.0, 9.0, 7.0, 6.0, 5.0
QUIET_FACTOR = 0.3
"""Of a signal in a line of code that a tool quotes."""

Words = Mapping[str, str]
"""Stems, each with the pattern of what may follow it, case and all."""


def _plain(*words: str) -> Words:
    return dict.fromkeys(words, "")


_FATAL: Words = {
    **_plain("fatal", "segmentation fault", "core dumped", "out of memory", "severe"),
    "panic": "(?:ked)?", "abort": "(?:ing|ed)", "emerg": "(?:ency)?", "crit": "(?:ical)?",
}  # fmt: skip
_ERROR_NAMES = _plain("Error", "Exception")
_ERRORS: Words = {"error": "s?", "ERR": "!?"}
_FAILURES: Words = {
    "FAIL": "(?:ED|URES?|ING)?", "Fail": "(?:ed|ures?)", "fail": "(?:ed|ures?|ing)", "not ok": "",
}  # fmt: skip
_CROSSES = _plain("\u2717", "\u2715")
_METHODS = _plain("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD")
_PROTOCOL: Words = {"HTTP/": r"[\d.]+\"?"}
_WARNINGS: Words = {"warn": "(?:ing)?", "xfail": "(?:ed)?", "xpass": "(?:ed)?"}
_BAD: Words = {
    **_plain(
        "malformed", "garbage", "cannot", "can't", "could not", "couldn't", "unable to", "undefined", "undeclared",
        "unresolved", "denied", "refused", "rejected", "invalid", "unexpected", "timed out", "timedout", "time out",
        "timeout", "killed", "not found", "no such", "mismatch", "deadlock", "forbidden", "unauthorized", "lost",
    ),
    "corrupt": r"\w*", "conflict": r"\w*", "vulnerab": r"\w+", "leak": r"\w*",
}  # fmt: skip
_COUNTED: Words = {
    **_plain(" passed", " failed", " skipped", " passing", " failing", " pending"),
    **dict.fromkeys(
        (" error", " warning", " test", " problem", " package", " failure", " example", " assertion"), "s?"
    ),
    " vulnerabilit": "(?:y|ies)",
}  # fmt: skip
"""What totals count, behind a number."""
_EXIT = r"(?:ed)?(?: with)?(?: (?:status|code))?[: ]+\d+"
_ENDINGS: Words = {
    "Exit": _EXIT, "exit": _EXIT, "Successfully": r"\b",
    **_plain("Error(s)", "Warning(s)", "finished:", "BUILD SUCC", "BUILD FAIL"),
}  # fmt: skip
_TAP_TOTALS = _plain(">>>>>", "# tests", "# pass", "# fail", "# suites")
_TOTALS: Words = {
    "Ran ": r"\d+", "Found ": r"\d+\b", "Test": r"s?\b",
    **dict.fromkeys(("Total", "TOTAL", "Summary", "SUMMARY", "test result"), r"\b"),
}  # fmt: skip


def _any_of(*words: Words) -> str:
    """The pattern of any word of these."""
    return "|".join(re.escape(stem) + ending for each in words for stem, ending in each.items())


_STEMS = tuple(
    stem
    for words in (
        _FATAL, _ERROR_NAMES, _ERRORS, _FAILURES, _CROSSES, _METHODS, _PROTOCOL, _WARNINGS, _BAD, _COUNTED, _ENDINGS,
        _TAP_TOTALS, _TOTALS,
    )
    for stem in words
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stems:
    """Stems to look for: `small` in any case, `capitals` as they stand.

    Capitals are a part of many words in small letters ("get", "err").
    """

    small: tuple[str, ...]
    capitals: tuple[str, ...]

    def find(self, text: str) -> "Stems":
        """Those that stand in a text: a line of it holds no other."""
        lowered = text.lower()
        # No `filter` and `map`: they hold the interpreter from the first stem to the last, 50 ms of a megabyte.
        return Stems(
            tuple([stem for stem in self.small if stem in lowered]),
            tuple([stem for stem in self.capitals if stem in text]),
        )


ALL_STEMS = Stems(
    tuple(dict.fromkeys(stem.lower() for stem in _STEMS if not stem.isupper())), tuple(filter(str.isupper, _STEMS))
)

STARTS = (
    "___", "===", "---", "E   ", ">   ", "Traceback", "Caused by", ">>>>>", "***", "diff --git ", "FAIL",
    "ERROR", "not ok",
)  # fmt: skip
"""How a line begins that is looked at without any of the words."""

_STATUS = re.compile(
    rf"(?:\b(?:{_any_of(_METHODS)})\s+|{_any_of(_PROTOCOL)}\s+)(?:[^\s\d]\S*\s+)?(?P<status>[45]\d\d)\b"
)
"""A request that was answered by an error."""
_WORDS = (
    (ERROR, "fatal", re.compile(rf"(?<![\w.-])(?:{_any_of(_FATAL)})\b(?![\w(.])", re.IGNORECASE)),
    (
        ERROR,
        "error",
        re.compile(
            rf"(?<![\w.-])(?:\w*(?:{_any_of(_ERROR_NAMES)})|{_any_of(_ERRORS)})(?=[\s:\[\]()!,;]|$)"
            rf"|(?<![\w.-])[\w.]*(?:{_any_of(_ERROR_NAMES)}):|\bERROR\b"
        ),
    ),
    (ERROR, "fail", re.compile(rf"(?<![\w.-])(?:{_any_of(_FAILURES)})\b|{_any_of(_CROSSES)}")),
    (LOUD, "http", _STATUS),
    (WARNING, "warn", re.compile(rf"\b(?:{_any_of(_WARNINGS)})\b", re.IGNORECASE)),
    (CALM, "bad", re.compile(rf"\b(?:{_any_of(_BAD)})\b", re.IGNORECASE)),
)
_OPENS_SUMMARY = re.compile(rf"{_any_of(_TAP_TOTALS)}|\s*(?:{_any_of(_TOTALS)})")
_SUMMARY = re.compile(rf"(?<![^\s(=])\d+(?:{_any_of(_COUNTED)})\b|(?<!\w)(?:{_any_of(_ENDINGS)})")
_BANNER = re.compile(r"^(?:_{3,} .+ _{3,}|={3,} .+ ={3,}|-{3,} .+ -{3,})$")
_POINTS = re.compile(r"^>   +\S")
_NAMES = re.compile(
    r"(?<![\w.+@/\\-])(?=[\w.+@/\\:-]*[\d_./\\@])[\w.+@/\\:-]++|\"[^\"\n]*+\"|'[^'\n]*+'|`[^`\n]*+`|\u2018[^\u2019\n]*+\u2019|\d++"
)
_PASSES = re.compile(
    r"^\s*(?:ok|PASS(?:ED)?|[\u2713\u2714])\b|^\s*[\u2713\u2714]|\b(?:PASSED|SKIPPED)\b|\.\.\. (?:ok|skipped)\b|\sok$"
)
_FAILS = re.compile(r"\b(?:FAIL|ERROR|not ok)")
_QUOTES_CODE = re.compile(r"\s*\d+ +\| (?!.* \| )")
BEFORE_CHARS, BEHIND_CHARS = 12, 60
WORDS_BEHIND = 4


@dataclass(frozen=True, slots=True)
class Signal:
    """How much a line matters by its words, and what other lines it stands for: those with the same `family`."""

    weight: float
    family: tuple[str, ...]


NO_SIGNAL = Signal(0.0, ())


def holds_word(line: str, stems: Stems = ALL_STEMS) -> bool:
    """Whether a line holds the stem of any word. One without carries no signal but by how it begins."""
    return any(map(line.lower().__contains__, stems.small)) or any(map(line.__contains__, stems.capitals))


def read_signal(line: str, stems: Stems = ALL_STEMS) -> Signal:
    """The signal of a line of at most MAX_CHARS, without its trailing blanks; `stems` are those that it may hold."""
    if not (holds_word(line, stems) or line.startswith(STARTS)):
        return NO_SIGNAL
    sums_up = _OPENS_SUMMARY.match(line) or _SUMMARY.search(line)
    if not sums_up and _PASSES.search(line) and not _FAILS.search(line):
        return NO_SIGNAL
    weight, family = _read_words(line)
    if sums_up and weight < SUMMARY:
        weight, family = SUMMARY, family or ("summary",)
    weight, family = _read_form(line, weight, family)
    return Signal(weight, family) if weight else NO_SIGNAL


def _read_form(line: str, weight: float, family: tuple[str, ...]) -> tuple[float, tuple[str, ...]]:
    """The same with what the line's form says: a banner, pytest's mark, a line of code."""
    if _QUOTES_CODE.match(line):
        return weight * QUIET_FACTOR, ("code",)
    if _BANNER.match(line):
        return max(weight, SUMMARY if line[0] == "_" else BANNER), ("banner", line[0])
    if _POINTS.match(line):
        return WARNING, ("points",)
    return weight, family


def _read_words(line: str) -> tuple[float, tuple[str, ...]]:
    best, name, found = 0.0, "", None
    for weight, kind, pattern in _WORDS:
        if weight > best:
            match = pattern.search(line)
            if match is not None:
                best, name, found = weight, kind, match
    if found is None:
        return 0.0, ()
    if name == "http":
        return best, (name, found["status"])
    before = mask_names(line[max(0, found.start() - BEFORE_CHARS) : found.start()]).split()[-1:]
    behind = mask_names(line[found.end() : found.end() + BEHIND_CHARS]).split()[:WORDS_BEHIND]
    return best, (name, *before, "|", *behind)


def mask_names(text: str) -> str:
    """The text with what names a thing - paths, identifiers, quoted words, numbers - taken out."""
    return _NAMES.sub("\0", text)
