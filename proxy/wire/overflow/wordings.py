"""Reads wordings.txt, the table of how servers word a refusal.

Law: only that table says what a wording means and where its numbers are.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from trimtab.rules.text.late import compile_late

NUMBER = r"\d{1,20}+(?:[,_]\d{3}(?!\d)){0,6}+"
"""Matches a whole number, which may have thousands separators."""
_PARTS = {
    "ASKER": "(?:prompt|input|request|messages?|conversation|sequence)",
    "WINDOW": "context[ _](?:length|size|window|limit)",
    "MAX_TOKENS": "max_(?:completion_|output_)?tokens",
    "IS": r"(?: (?:is|of|only|at|to|be|currently|allowed|limited|set)){0,4}\s{0,2}[:=(\[]?\s{0,2}",
    "RATE": r"(?:per (?:minute|min|hour|day|month|second)\b|\b[TR]P[MD]\b)",
}
_ROW = re.compile(r"^(\S[^:\n]*): (.*)\n((?:    .*\n)+)", re.MULTILINE)


class Kind(StrEnum):
    PROMPT = "prompt"
    GENERATION = "generation"  # the completion, while it was being generated
    STRING = "string"  # one string of the request
    COMPLETION = "completion"  # the completion that was requested
    SIZE = "size"  # the body in bytes, or the request for a rate limit


class Wording(NamedTuple):
    """A row of the table. The named groups of `pattern` are numbers, by their meaning."""

    section: str
    server: str
    sample: str
    pattern: re.Pattern[str]

    @property
    def kind(self) -> Kind | None:
        return Kind(self.section) if self.section in set(Kind) else None


def _read_table() -> Iterator[Wording]:
    table = Path(__file__).with_suffix(".txt").read_text("utf-8")
    for section in table.split("\n[")[1:]:
        title, _, rows = section.partition("]\n")
        for server, sample, words in _ROW.findall(rows + "\n"):
            yield Wording(title, server, sample, _compile(words))


def _compile(words: str) -> re.Pattern[str]:
    pattern = "|".join(line[4:] for line in words.splitlines())
    pattern = re.sub("<([A-Z_]+)>", lambda part: _PARTS[part[1]], pattern)
    # A match must not be part of 300K or 1.5, which are not whole numbers.
    pattern = re.sub(r"(?<!\?P)<([a-z]+)>", lambda name: rf"(?P<{name[1]}>{NUMBER})(?!\.\d| ?[km]\b)", pattern)
    return compile_late(pattern, re.IGNORECASE)


_ROWS = tuple(_read_table())
_NO_MEANINGS = {"figures", "code", "beside a completion"}
MEANINGS = tuple(row for row in _ROWS if row.section not in _NO_MEANINGS)
"""Rows that say what a text is about; the first that matches decides."""
FIGURES = tuple(row for row in _ROWS if row.section == "figures")
"""Rows that say where the numbers of a text are. For each meaning the first match counts; MEANINGS come first."""
RATE, CODE, BESIDE = (
    next(row for row in _ROWS if row.section == section) for section in ("rate limit", "code", "beside a completion")
)
