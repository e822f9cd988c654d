"""Scores of lines: how much each line of a text matters, by the kind of the text.

Law: lines in, numbers out; a score is a function of the lines and does not depend on the budget. The scores are chosen;
`python -m bench.retention.run --only facts` measures what the excerpts keep.

- Changes: diffs, and logs of commits.
- Documents and HTML pages: headings, and the beginning of each paragraph.
- Search results and listings: the first lines of every file or folder score higher than its later lines.
- Source files: definitions. The line numbers that `cat -n` and agents' viewers print before each line are not code.
- Logs (of tests, builds, linters and servers), and any text of no other kind: lines with a signal, and lines of a rare
  shape. Lines next to a strong signal have a share of its score. Other lines have no score.

The shape of a line is what is left of it without numbers, paths, identifiers and quoted words. A line whose shape
occurs once among thousands matters. If the parts that were taken out hardly vary within a shape (an error code, for
example), they are content and not names; then the line itself is the shape.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise, takewhile

from trimtab.rules.results.signals import ALL_STEMS, MAX_CHARS, NO_SIGNAL, WARNING, Signal, read_signal
from trimtab.rules.text.late import compile_late

# Chosen: a line that names a file before the changed lines, and these before the headers of hunks.
FILE_SCORE, HUNK_SCORE, CHANGE_SCORE, SUBJECT_SCORE, COMMIT_SCORE = 4.8, 1.5, 2.4, 6.0, 1.0
_FILE = ("diff --git ", "Index: ")
_HEADER = (
    "index ", "new file", "deleted file", "similarity ", "rename ", "copy ", "old mode", "new mode",
    "Binary ", "GIT binary",
)  # fmt: skip
_COMMIT = compile_late(r"commit [0-9a-f]{7,40}\b")


def mark_changes(lines: Sequence[str]) -> dict[int, float]:
    """Scores of the lines of diffs: files, then changed lines, then headers of hunks; 0 for all others in a diff."""
    scores: dict[int, float] = {}
    for start in [index for index, line in enumerate(lines) if line.startswith(_FILE[0])]:
        if start in scores:
            continue
        for index in range(start, len(lines)):
            line = lines[index]
            if index > start and line and line[0] not in " +-@\\" and not line.startswith((*_FILE, *_HEADER)):
                break
            scores[index] = _score_change(line)
    return scores


def _score_change(line: str) -> float:
    if line.startswith(_FILE):
        return FILE_SCORE
    if line.startswith("@@"):
        return HUNK_SCORE
    is_change = line[:1] in {"+", "-"} and not line.startswith(("+++ ", "--- "))
    return CHANGE_SCORE if is_change and len(line.strip()) > 1 else 0.0


def score_commits(texts: Sequence[str]) -> dict[int, float]:
    scores: dict[int, float] = {}
    waits_for_subject = False
    for index, text in enumerate(texts):
        if _COMMIT.match(text):
            waits_for_subject = True
            scores[index] = COMMIT_SCORE
        elif waits_for_subject and text.startswith("    ") and text.strip():
            waits_for_subject = False
            scores[index] = SUBJECT_SCORE
    return scores


def is_commits(lines: Sequence[str]) -> bool:
    """Whether a sample of lines is a log of commits without their changes."""
    return sum(_COMMIT.match(line) is not None for line in lines) >= 3 and not any(
        line.startswith(_FILE) for line in lines
    )


# Chosen: headings, then first lines of paragraphs, then other lines, then lines of tags only.
TITLE_SCORE, OPENING_SCORE, LINE_SCORE, TAG_SCORE = 6.0, 3.0, 1.0, 0.2
MAX_OPENING_SHARE = 0.2  # Of a document's lines that begin with one word. Chosen: in logs, more lines do.
_HEADING = compile_late(r"#{1,6} \S|[A-Z][A-Z0-9 ,'()/-]{3,60}$|\s*<(?:h[1-6]|title|th|caption)\b", re.ASCII)
_UNDERLINE = compile_late(r"(?:=+|-+|~+|\^+)\s*$")
_PAGE = compile_late(r"\s*(?:<!doctype html|<html|<\?xml|<head|<body)", re.IGNORECASE)
_TAGS_ONLY = compile_late(r"\s*(?:</?[a-zA-Z][^>]*>\s*)+$")
_IN_PAGE = compile_late(r"(?i)\s*</?(?:script|style|svg|path|link|meta)\b")


def score_prose(texts: Sequence[str]) -> dict[int, float]:
    scores: dict[int, float] = {}
    for index, text in enumerate(texts):
        line = text[:400].rstrip()
        if not line.strip():
            continue
        underlined = index + 1 < len(texts) and len(line) >= 3 and _UNDERLINE.match(texts[index + 1][:400])
        if _HEADING.match(line) or underlined:
            scores[index] = TITLE_SCORE
        elif _TAGS_ONLY.match(line) or _IN_PAGE.match(line):
            scores[index] = TAG_SCORE
        else:
            begins = index == 0 or not texts[index - 1].strip()
            scores[index] = OPENING_SCORE if begins else LINE_SCORE
    return scores


def is_page(lines: Sequence[str]) -> bool:
    return any(_PAGE.match(line[:200]) for line in lines[:5])


def is_prose(lines: Sequence[str]) -> bool:
    """Whether a sample of lines is a document: it has headings, or mostly lines of many words and few signs."""
    filled = [line.strip() for line in lines if line.strip()]
    openings = Counter(line.split()[0] for line in filled if line[0].isalnum())
    if openings and openings.most_common(1)[0][1] > MAX_OPENING_SHARE * len(filled):
        return False
    wordy = sum(len(line.split()) >= 6 and sum(map(str.isalpha, line)) >= 0.7 * len(line) for line in filled)
    headed = sum(_HEADING.match(line) is not None for line in filled)
    return wordy >= 0.55 * len(filled) or (headed >= 3 and wordy >= 0.35 * len(filled))


# Chosen: matches before their context, headings of folders before entries.
MATCH_SCORE, CONTEXT_SCORE, HEADING_SCORE, ENTRY_SCORE = 4.0, 1.0, 5.0, 2.0
FILE_DECAY = 0.5  # exponent of a line's rank in its file or folder; chosen
_GREP = compile_late(
    r"(?P<file>(?!\d+[-/:.]\d)(?:[A-Za-z]:)?(?=[^\s:]*[A-Za-z])[^\s:]+?(?=[:-]\d+[:-]))?(?(file)[:-])(?P<line>(?!0\d)\d+)(?P<sign>[:-])"
)
_VERDICT = compile_late(r"(?:\d+:)?\s*(?:(?:fatal )?error|warning|note|info|[EWFCRN]\d{3,4})\b\s*[:\[(]?(?! ?=)")
"""The text that a compiler or a linter writes after a position in a file. A search result has code there."""
_LONG_LISTING = compile_late(r"[-dlbcps][rwxsStT-]{9}[.+@]?\s")
_FOLDER = compile_late(r"\S.*:$")
_PATH = compile_late(r"(?:\./|/|[\w.@+-]+/)[^\s:]*$")


def score_matches(texts: Sequence[str]) -> dict[int, float]:
    """Scores of the lines of grep and similar tools: matches before context, the first matches of each file first."""
    scores: dict[int, float] = {}
    seen: Counter[str] = Counter()
    for index, text in enumerate(texts):
        found = _GREP.match(text[:400])
        if found is None:
            continue
        file = found["file"] or ""
        if found["sign"] == ":":
            scores[index] = MATCH_SCORE * (1 + seen[file]) ** -FILE_DECAY
            seen[file] += 1
        elif text[found.end() : found.end() + 200].strip():
            scores[index] = CONTEXT_SCORE
    return scores


def score_listing(texts: Sequence[str]) -> dict[int, float]:
    """Scores of a listing's lines: headings of folders, then the first entries of each folder."""
    scores: dict[int, float] = {}
    seen: Counter[str] = Counter()
    folder = ""
    for index, text in enumerate(texts):
        line = text.rstrip()
        if _FOLDER.match(line) and "/" in line:
            folder = line
            scores[index] = HEADING_SCORE
        elif line:
            place = folder or line.rpartition("/")[0]
            scores[index] = ENTRY_SCORE * (1 + seen[place]) ** -FILE_DECAY
            seen[place] += 1
    return scores


def is_matches(lines: Sequence[str]) -> bool:
    """Whether a sample of lines is the output of a search.

    Its lines begin with a file and a line number, or with a number alone. If messages of a compiler or a linter follow,
    it is not a search.
    """
    found = [match for line in lines if (match := _GREP.match(line[:400]))]
    if len(found) < 0.6 * len(lines) or not any(match["sign"] == ":" for match in found):
        return False
    named = sum(match["file"] is not None for match in found)
    if named < 0.9 * len(found):
        # Without files: a search in one file has rising numbers with gaps; `cat -n` has no gaps.
        steps = [int(after["line"]) - int(before["line"]) for before, after in pairwise(found)]
        return not named and sum(step > 0 for step in steps) >= 0.9 * len(steps) and any(step != 1 for step in steps)
    return not any(_VERDICT.match(match.string, match.end()) for match in found)


def is_listing(lines: Sequence[str]) -> bool:
    listed = sum(_LONG_LISTING.match(line) is not None or _PATH.match(line.rstrip()) is not None for line in lines)
    return listed >= 0.8 * len(lines)


_DIGITS = b"0123456789"
_NAMED = compile_late(rb"(?<![^\s,;|])[^\s,;|/.\"'=_\\`\xe2]*+[/.\"'=_\\`\xe2][^\s,;|]*+")
"""A word that contains a sign of names, such as a slash, a dot or a quote. 0xE2 is the first byte of curly quotes."""
# If a shape has at least 8 lines, and at least 8 for each distinct line, each distinct line counts as a shape. Chosen:
# fewer lines do not show that the parts taken out hardly vary.
MIN_GROUP = 8
LINES_A_VALUE = 8

Shape = bytes | str


def find_rare(lines: Sequence[str]) -> tuple[list[int], float]:
    """Find the lines with a unique shape.

    Returns their indexes, and how much that says: 0 if all lines have different shapes, nearly 1 if nearly all have the
    same.
    """
    by_line: dict[str, Shape] = {
        line: _NAMED.sub(b"", line.encode("utf-8", "surrogatepass").translate(None, _DIGITS))
        for line in dict.fromkeys(lines)
    }
    counts, values = Counter(map(by_line.__getitem__, lines)), Counter(by_line.values())
    coded = {
        shape for shape, number in counts.items() if number >= MIN_GROUP and number >= LINES_A_VALUE * values[shape]
    }
    told_apart = {line: line if shape in coded else shape for line, shape in by_line.items()}
    shapes = list(map(told_apart.__getitem__, lines))
    counts = Counter(shapes)
    told = 1 - len(counts) / max(len(lines), 1)
    if 1 not in counts.values():
        return [], told
    return [index for index, shape in enumerate(shapes) if counts[shape] == 1], told


DEFINITION_SCORE = 6.0  # chosen: below that of lines with a term of the call, TERM_SCORE
_GUTTER = compile_late(r"\s*\d+(?:\t|\u2192|[|:] ?| {1,2})")
_DEFINES = compile_late(
    r"\s*(?:export\s+|default\s+|pub(?:\([a-z]+\))?\s+|public\s+|private\s+|protected\s+|internal\s+|static\s+|final\s+|"
    r"abstract\s+|async\s+|unsafe\s+|extern\s+(?:\"C\"\s+)?|inline\s+|const\s+|virtual\s+|override\s+)*"
    r"(?:def|class|function\*?|func|fn|impl|struct|enum|trait|interface|type|module|namespace|mod|package|object|record|template|"
    r"macro_rules!|sub|proc|CREATE (?:TABLE|FUNCTION|VIEW|INDEX)|create (?:table|function|view|index))\b[\s(*<{]"
)
_MEMBER = compile_late(
    r"\s*+(?:public|private|protected|internal|static|final|abstract|async|override|virtual|inline|const|unsigned|"
    r"struct|synchronized|get|set)\s[\w<>\[\],.*&?\s]*\w\s*\([^;]*$|"
    r"[A-Za-z_][\w*&<>:\s]*\s[*&]*\w+\([^;]*$|"
    r"(?:export\s+)?(?:const|let|var)\s+\w+\s*=\s*(?:async\s*)?(?:function\b|\([^)]*\)\s*=>|\w+\s*=>)|"
    r"#{2,4} \S|\[[\w.\"-]+\]\s*$"
)
MAX_NUMBERED_LOOKED_AT = 1000  # lines that show whether a text is numbered; chosen
_NUMBER = compile_late(r"\s*\d{1,7}(?=[\t\u2192|: ])")
SAMPLE_CODE = compile_late(
    r"\s*+(?:(?:def|class|import|from|return|if|elif|else|for|while|try|except|with|raise|function|const|let|var|export|"
    r"public|private|protected|static|void|int|char|struct|enum|fn|pub|impl|use|mod|package|func|type|interface|#include|"
    r"#define|#if|#endif|switch|case|self\.|this\.|@\w+|//|/\*|\*|#|\"\"\").*|[\]})]+[;,]?|.*[{;(\[,:]\s*)$"
)


def score_source(texts: Sequence[str]) -> dict[int, float]:
    lines = (strip_gutter(text[:400].rstrip()) for text in texts)
    defined = (index for index, line in enumerate(lines) if _DEFINES.match(line) or _MEMBER.match(line))
    return dict.fromkeys(defined, DEFINITION_SCORE)


def strip_gutter(line: str) -> str:
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


FAMILY_DECAY = 0.6
"""A signal's score is divided by its rank in its family to this power. Chosen: the second line of a family says less
than the first."""
NEIGHBOURS = ((1, 0.45), (-1, 0.27))
"""Lines around a strong signal: distance, and share of its score. Chosen: the line after it gets more than the one
before."""
FRAMES_LOOKED_AT = 400  # lines after the start of a traceback; chosen: longer than usual tracebacks
_TRACEBACK = "Traceback (most recent call last)"
RARE_SCORE = 3.0  # Score of a line with a unique shape in a text whose other lines all have one shape. Chosen.


def score_log(texts: Sequence[str]) -> dict[int, float]:
    cut = {text: text[:MAX_CHARS].partition("\n")[0].rstrip() for text in dict.fromkeys(texts)}
    lines = list(map(cut.__getitem__, texts))
    changes = mark_changes(lines)
    signals = {index: signal for index, signal in _read_signals(lines).items() if index not in changes}
    scores = _score_signals(signals)
    rare, told = find_rare(lines)
    for index in rare:
        if lines[index].strip():
            scores[index] = scores.get(index, 0.0) + RARE_SCORE * told
    _add_neighbours(scores, lines, signals)
    _add_frames(scores, lines)
    return scores | changes


def _read_signals(lines: Sequence[str]) -> dict[int, Signal]:
    """The signals of lines that have any, by index; equal lines are read once."""
    different = dict.fromkeys(lines)
    stems = ALL_STEMS.find("\n".join(different))
    read = ((line, read_signal(line, stems)) for line in different)
    signals = {line: signal for line, signal in read if signal is not NO_SIGNAL}
    return {index: signals[line] for index, line in enumerate(lines) if line in signals} if signals else {}


def _score_signals(signals: Mapping[int, Signal]) -> dict[int, float]:
    """Scores by index. In each family of signals, the first line matters most, then the second and the last one."""
    totals = Counter(signal.family for signal in signals.values())
    seen: Counter[object] = Counter()
    scores = {}
    for index, signal in signals.items():
        rank = seen[signal.family]
        seen[signal.family] += 1
        nearest = min(rank, 2 * (totals[signal.family] - 1 - rank) + 1)
        scores[index] = signal.weight * float((1 + nearest) ** -FAMILY_DECAY)
    return scores


def _add_neighbours(scores: dict[int, float], lines: Sequence[str], signals: Mapping[int, Signal]) -> None:
    """Add scores for the lines next to a strong signal, except if they have a strong signal themselves."""
    strong = {index for index, signal in signals.items() if signal.weight >= WARNING}
    for index, score in [(index, scores[index]) for index in signals if index in strong]:
        for distance, share in NEIGHBOURS:
            at = index + distance
            line = lines[at].strip() if 0 <= at < len(lines) and at not in strong else ""
            if line:
                scores[at] = max(scores.get(at, 0.0), score * share * min(1.0, (len(line) + 8) / 20))


def _add_frames(scores: dict[int, float], lines: Sequence[str]) -> None:
    """Add scores for the frames of Python tracebacks: shares of the exception's score, most for the innermost frame."""
    opening = {line for line in dict.fromkeys(lines) if _TRACEBACK in line}
    for start in [index for index, line in enumerate(lines) if line in opening] if opening else ():
        stop = start + 1 + sum(1 for _ in takewhile(_is_frame, lines[start + 1 : start + 1 + FRAMES_LOOKED_AT]))
        if stop >= len(lines):
            continue
        score = max(scores.get(stop, 0.0), 1.0)
        scores[start] = max(scores.get(start, 0.0), score / 2)
        for distance in range(1, stop - start):
            share = 0.85 if distance <= 2 else 0.5 if distance <= 6 else 0.3 / (1 + distance / 8)
            scores[stop - distance] = score * share


def _is_frame(line: str) -> bool:
    return line[:1] in {" ", "\t"} and _TRACEBACK not in line
