"""Scores of source files: definitions.

Law: a score is a function of the lines. The line numbers that `cat -n` and agents' viewers print before each line are
not part of the code.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

DEFINITION_SCORE = 6.0  # chosen: below that of lines with a term of the call, TERM_SCORE
_GUTTER = re.compile(r"\s*\d+(?:\t|\u2192|[|:] ?| {1,2})")
_DEFINES = re.compile(
    r"\s*(?:export\s+|default\s+|pub(?:\([a-z]+\))?\s+|public\s+|private\s+|protected\s+|internal\s+|static\s+|final\s+|"
    r"abstract\s+|async\s+|unsafe\s+|extern\s+(?:\"C\"\s+)?|inline\s+|const\s+|virtual\s+|override\s+)*"
    r"(?:def|class|function\*?|func|fn|impl|struct|enum|trait|interface|type|module|namespace|mod|package|object|record|template|"
    r"macro_rules!|sub|proc|CREATE (?:TABLE|FUNCTION|VIEW|INDEX)|create (?:table|function|view|index))\b[\s(*<{]"
)
_MEMBER = re.compile(
    r"\s*+(?:public|private|protected|internal|static|final|abstract|async|override|virtual|inline|const|unsigned|"
    r"struct|synchronized|get|set)\s[\w<>\[\],.*&?\s]*\w\s*\([^;]*$|"
    r"[A-Za-z_][\w*&<>:\s]*\s[*&]*\w+\([^;]*$|"
    r"(?:export\s+)?(?:const|let|var)\s+\w+\s*=\s*(?:async\s*)?(?:function\b|\([^)]*\)\s*=>|\w+\s*=>)|"
    r"#{2,4} \S|\[[\w.\"-]+\]\s*$"
)
MAX_NUMBERED_LOOKED_AT = 1000  # lines that show whether a text is numbered; chosen
_NUMBER = re.compile(r"\s*\d{1,7}(?=[\t\u2192|: ])")
SAMPLE_CODE = re.compile(
    r"\s*+(?:(?:def|class|import|from|return|if|elif|else|for|while|try|except|with|raise|function|const|let|var|export|"
    r"public|private|protected|static|void|int|char|struct|enum|fn|pub|impl|use|mod|package|func|type|interface|#include|"
    r"#define|#if|#endif|switch|case|self\.|this\.|@\w+|//|/\*|\*|#|\"\"\").*|[\]})]+[;,]?|.*[{;(\[,:]\s*)$"
)


def score_source(texts: Sequence[str]) -> dict[int, float]:
    """Scores of a source file's definitions."""
    lines = (strip_gutter(text[:400].rstrip()) for text in texts)
    defined = (index for index, line in enumerate(lines) if _DEFINES.match(line) or _MEMBER.match(line))
    return dict.fromkeys(defined, DEFINITION_SCORE)


def strip_gutter(line: str) -> str:
    """The line without the line number before it."""
    found = _GUTTER.match(line)
    return line[found.end() :] if found else line


def is_numbered(lines: Sequence[str]) -> bool:
    """Whether nearly all lines of a sample begin with a number, and nearly each number is larger than the last one."""
    numbers = [int(found[0]) for line in lines if (found := _NUMBER.match(line))]
    rising = sum(before < after for before, after in pairwise(numbers))
    return len(numbers) >= 0.9 * len(lines) and rising >= 0.95 * (len(numbers) - 1)


def read_numbers(lines: Sequence[str]) -> list[int]:
    """The number that each line shows, else that of the line before it; empty if the lines are not numbered."""
    if not is_numbered([line for line in lines if line.strip()][:MAX_NUMBERED_LOOKED_AT]):
        return []
    numbers = []
    number = 0
    for line in lines:
        found = _NUMBER.match(line)
        number = int(found[0]) if found else number
        numbers.append(number)
    return numbers


def is_source(lines: Sequence[str]) -> bool:
    """Whether a sample of lines is code, or a numbered view of a file."""
    numbered = is_numbered(lines)
    bare = [strip_gutter(line)[:200].rstrip() if numbered else line[:200].rstrip() for line in lines]
    filled = [line for line in bare if line.strip()]
    coded = sum(SAMPLE_CODE.match(line) is not None for line in filled)
    if numbered:
        return coded >= 0.3 * len(filled)
    defined = sum(_DEFINES.match(line) is not None and not line.startswith("#") for line in filled)
    return coded >= 0.5 * len(filled) and defined >= max(1, 0.004 * len(filled))
