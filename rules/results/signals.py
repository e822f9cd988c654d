"""Signals: what a line says about how things went (failures, warnings, totals), and which lines say the same.

Law: a signal is a function of the line alone. The words are those of compilers, test runners, linters, package managers
and servers. Each is written here once: the patterns and the stems are both made of it. A line without any stem is not
matched against the patterns, which are slow.
"""

import re
from collections.abc import Mapping

import msgspec

from trimtab.rules.text.late import compile_late

MAX_CHARS = 400  # Part of a line that is read. Chosen: bounds the time that a long line takes.

# Weights of signals. Chosen: errors, summaries, HTTP errors, banners, warnings, then words that may be harmless.
ERROR, LOUD, SUMMARY, BANNER, WARNING, CALM = 10.0, 8.0, 9.0, 7.0, 6.0, 5.0
QUIET_FACTOR = 0.3  # For a signal in a quoted line of code. Chosen: code that mentions errors reports none.

Words = Mapping[str, str]
"""Stems, each with the pattern of what may follow it; case matters unless the pattern made of them ignores it."""


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
"""Words that totals have after a number."""
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
    return "|".join(re.escape(stem) + ending for each in words for stem, ending in each.items())


_STEMS = tuple(
    stem
    for words in (
        _FATAL, _ERROR_NAMES, _ERRORS, _FAILURES, _CROSSES, _METHODS, _PROTOCOL, _WARNINGS, _BAD, _COUNTED, _ENDINGS,
        _TAP_TOTALS, _TOTALS,
    )
    for stem in words
)  # fmt: skip


class Stems(msgspec.Struct, frozen=True):
    """Stems to search for: `small` ignoring case, `capitals` with it, since GET and ERR are in very many words."""

    small: tuple[str, ...]
    capitals: tuple[str, ...]

    def find(self, text: str) -> "Stems":
        """The stems that occur in a text. Its lines contain no others."""
        lowered = text.lower()
        # Not `filter` and `map`: these hold the interpreter from the first stem to the last, for 50 ms a megabyte.
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
"""Beginnings of lines that may have a signal without any of the words."""

_STATUS = compile_late(
    rf"(?:\b(?:{_any_of(_METHODS)})\s+|{_any_of(_PROTOCOL)}\s+)(?:[^\s\d]\S*\s+)?(?P<status>[45]\d\d)\b"
)
"""A request that was answered with an error status."""
_WORDS = (
    (ERROR, "fatal", compile_late(rf"(?<![\w.-])(?:{_any_of(_FATAL)})\b(?![\w(.])", re.IGNORECASE)),
    (
        ERROR,
        "error",
        compile_late(
            rf"(?<![\w.-])(?:\w*(?:{_any_of(_ERROR_NAMES)})|{_any_of(_ERRORS)})(?=[\s:\[\]()!,;]|$)"
            rf"|(?<![\w.-])[\w.]*(?:{_any_of(_ERROR_NAMES)}):|\bERROR\b"
        ),
    ),
    (ERROR, "fail", compile_late(rf"(?<![\w.-])(?:{_any_of(_FAILURES)})\b|{_any_of(_CROSSES)}")),
    (LOUD, "http", _STATUS),
    (WARNING, "warn", compile_late(rf"\b(?:{_any_of(_WARNINGS)})\b", re.IGNORECASE)),
    (CALM, "bad", compile_late(rf"\b(?:{_any_of(_BAD)})\b", re.IGNORECASE)),
)
_OPENS_SUMMARY = compile_late(rf"{_any_of(_TAP_TOTALS)}|\s*(?:{_any_of(_TOTALS)})")
_SUMMARY = compile_late(rf"(?<![^\s(=])\d+(?:{_any_of(_COUNTED)})\b|(?<!\w)(?:{_any_of(_ENDINGS)})")
_BANNER = compile_late(r"^(?:_{3,} .+ _{3,}|={3,} .+ ={3,}|-{3,} .+ -{3,})$")
_POINTS = compile_late(r"^>   +\S")
_NAMES = compile_late(
    r"(?<![\w.+@/\\-])(?=[\w.+@/\\:-]*[\d_./\\@])[\w.+@/\\:-]++|\"[^\"\n]*+\"|'[^'\n]*+'|`[^`\n]*+`|\u2018[^\u2019\n]*+\u2019|\d++"
)
_PASSES = compile_late(
    r"^\s*(?:ok|PASS(?:ED)?|[\u2713\u2714])\b|^\s*[\u2713\u2714]|\b(?:PASSED|SKIPPED)\b|\.\.\. (?:ok|skipped)\b|\sok$"
)
_FAILS = compile_late(r"\b(?:FAIL|ERROR|not ok)")
_QUOTES_CODE = compile_late(r"\s*\d+ +\| (?!.* \| )")
# A family consists of the signal's kind, the word before the signal (within 12 characters) and 4 words after it (within
# 60). Chosen: enough to tell different errors apart.
BEFORE_CHARS, BEHIND_CHARS = 12, 60
WORDS_BEHIND = 4  # chosen, as above


class Signal(msgspec.Struct, frozen=True):
    """The signal of a line. weight: how much it matters; 0 for nothing. family: of lines that say the same."""

    weight: float
    family: tuple[str, ...]


NO_SIGNAL = Signal(0.0, ())


def holds_word(line: str, stems: Stems = ALL_STEMS) -> bool:
    """Whether a line contains any stem. A line without one has a signal only by its beginning, see STARTS."""
    return any(map(line.lower().__contains__, stems.small)) or any(map(line.__contains__, stems.capitals))


def read_signal(line: str, stems: Stems = ALL_STEMS) -> Signal:
    """The signal of a line.

    line: at most MAX_CHARS long, without trailing blanks.
    stems: only these are searched for; the line must not contain any other.
    """
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
    """The weight and the family after a look at the line's form: a banner, pytest's mark, or a line of quoted code."""
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
    """The text with a NUL character in place of each name: paths, identifiers, quoted words, numbers."""
    return _NAMES.sub("\0", text)
