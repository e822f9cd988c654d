"""Checks the text of the repository: phrases that are hard to read, and numbers without a reason.

Two laws:

* No phrase of `PHRASES` appears in a docstring, a comment, a message or a page. Each has a plain replacement.
* A module constant that is a number has an explanation: a comment on its line or above it, or a string below it.
  Constants on successive lines may share the comment above the first or the string below the last.

Usage: python scripts/check_words.py [ROOT]
Prints each problem to standard error. The exit status is 1 if there is any.
"""

import ast
import io
import re
import sys
import tokenize
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

CODE = ("proxy", "rules", "bench", "scripts")
WITH_REASONS = ("proxy", "rules")
PAGES = ("README.md", "CHANGELOG.md", "docs/**/*.md", "bench/*.md", "config.example.yaml")

PHRASES = {
    r"\b(?:it|that|this|which) is none\b": "say what it is not",
    r"\bas (?:it|they) came\b": "unchanged",
    r"\bcomes? to nothing\b": "fails",
    r"\bfor good\b": "forever, or no longer",
    r"\bgone by\b": "used",
    r"\bin vain\b": "without effect",
    r"\b(?:is|are|was|were) let be\b": "is left unchanged",
    r"\bnothing but\b": "only",
    r"\b(?:says?|tells?) nothing\b(?! (?:about|of))": "name what is missing",
    r"\bto be had\b": "available",
    r"\bat the (?:least|most)\b": "at least, at most",
    r"\banew\b": "again",
    r"\bwho shows\b": "a request with",
    r"(?<!\bfrom )(?<!\bknow )(?<!\bknows )(?<!\bsays )(?<!\bsay )(?<!\btell )(?<!\bshows )(?<!\bshow )(?<!\bfind )"
    r"(?<!\bplace )(?<!\bplaces )(?<!\bposition )(?<!\bpoint )(?<!\bline )(?<!\bfolder )(?<!\bof )(?<!\band )"
    r"(?<!\bstays )(?<!\bstay )(?<!\bexactly )"
    r"(?<!\bsee )(?<!\bdecides )(?<!\bdirectory )(?<!\bpositions )(?<!\bindex )(?<!\boffset )"
    r"\b[Ww]here (?:it|they|there|none|no|nothing|one|neither|both|all|only|some|its|another)\b": "if",
}
"""Maps each pattern to the text to write instead."""


def find_mistakes(root: Path) -> Iterator[str]:
    """Find each phrase and each number that breaks a law, as `FILE:LINE: PROBLEM`."""
    for pattern in PAGES:
        for path in sorted(root.glob(pattern)):
            yield from check_text(path.read_text("utf-8"), path.relative_to(root))
    for package in CODE:
        for path in sorted((root / package).rglob("*.py")):
            if path.resolve() == Path(__file__).resolve():
                continue  # this file quotes the phrases
            source = path.read_text("utf-8")
            name = path.relative_to(root)
            yield from check_text(source, name)
            if package in WITH_REASONS:
                yield from check_numbers(source, name)


def check_text(text: str, name: Path) -> Iterator[str]:
    """Find each phrase of `PHRASES` in a text. A phrase may continue on the next line."""
    words = [(word, number) for number, line in enumerate(text.splitlines(), 1) for word in line.split() if word != "#"]
    starts = list(accumulate((len(word) + 1 for word, _ in words), initial=0))
    flat = " ".join(word for word, _ in words)
    for pattern, instead in PHRASES.items():
        for match in re.finditer(pattern, flat):
            line = words[bisect_right(starts, match.start()) - 1][1]
            yield f"{name}:{line}: {match[0]!r}: write: {instead}"


def check_numbers(source: str, name: Path) -> Iterator[str]:
    """Find each numeric module constant without an explanation."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0] for token in tokens if token.type == tokenize.COMMENT}
    block: list[tuple[int, str]] = []
    shared = False
    stop = 0
    for node in [*ast.parse(source).body, ast.Pass(lineno=sys.maxsize, end_lineno=sys.maxsize)]:
        constant = _find_number(node)
        if block and (constant is None or node.lineno != stop + 1):
            is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if not shared and not (is_text and node.lineno == stop + 1):
                yield from (f"{name}:{line}: {each}: say where the number comes from" for line, each in block)
            block = []
        if constant is None:
            continue
        shared = node.lineno - 1 in comments if node.lineno != stop + 1 else shared or node.lineno - 1 in comments
        stop = node.end_lineno or node.lineno
        if comments.isdisjoint(range(node.lineno, stop + 1)):
            block.append((node.lineno, constant))


def _find_number(node: ast.stmt) -> str | None:
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        target, value = node.targets[0], node.value
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        target, value = node.target, node.value
    else:
        return None
    allowed = (ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Constant)
    is_number = all(
        isinstance(part, allowed) and (not isinstance(part, ast.Constant) or type(part.value) in {int, float})
        for part in ast.walk(value)
    )
    return target.id if is_number and target.id.isupper() else None


if __name__ == "__main__":
    mistakes = list(find_mistakes(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
    sys.exit("\n".join(mistakes) or 0)
