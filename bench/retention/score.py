"""Finds which facts are left in a contestant's text, and whether the text breaks a law.

Law: pure, except for counting.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean

import orjson

from bench.material.tool_outputs import Output
from trimtab.rules.conversation import CountTokens

SHOWN_CHARS = 80
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_NUMBERED = re.compile(r"[ \t]*\d+(?:\t|: ?|\| ?|→| {2})|[\w./\\-]*[./\\][\w./\\-]+[:(]\d+[:,)-]")
"""A line with its own number: a gutter, or a place in a file."""
_MARKER = re.compile(r"\[trimtab|…")
"""The beginning of trimtab's own text."""


@dataclass(frozen=True, slots=True)
class Scored:
    """What is left of one output: its facts in order (exactly, and without white space and escapes), and its tokens."""

    output: Output
    exact: tuple[bool, ...]
    spaceless: tuple[bool, ...]
    tokens: int
    violations: tuple[str, ...] = ()

    def missing(self) -> list[str]:
        """The facts that are not in the text exactly, shortened to one line each."""
        pairs = zip(self.output.facts, self.exact, strict=True)
        return [repr(fact)[:SHOWN_CHARS] for fact, kept in pairs if not kept]


@dataclass(frozen=True, slots=True)
class Share:
    """The shares of facts kept in some outputs, and the mean tokens of the outputs."""

    facts: int
    exact: float
    spaceless: float
    mean_tokens: float


def score(output: Output, text: str, count: CountTokens) -> Scored:
    """Look for the facts in the text."""
    bare = remove_space(text)
    exact = tuple(fact in text for fact in output.facts)
    spaceless = tuple(remove_space(fact) in bare for fact in output.facts)
    return Scored(output, exact, spaceless, count(text))


def summarise(scored: Sequence[Scored], *, diagnostics_only: bool = False) -> Share | None:
    """Summarise all outputs, or only diagnostics; None if there are no facts."""
    chosen = [one for one in scored if one.output.is_diagnostic or not diagnostics_only]
    facts = sum(len(one.exact) for one in chosen)
    if not facts:
        return None
    exact, spaceless = sum(sum(one.exact) for one in chosen), sum(sum(one.spaceless) for one in chosen)
    return Share(facts, exact / facts, spaceless / facts, mean(one.tokens for one in chosen))


def find_violations(before: str, after: str, tokens: int, limit_tokens: int) -> Iterator[str]:
    """Laws that a shortened text breaks.

    It must not exceed its limit, break JSON, or alter a numbered line.
    """
    if tokens > limit_tokens:
        yield f"{tokens} tokens, {limit_tokens} allowed"
    if is_json(before):
        if not is_json(after):
            yield "no JSON any more"
        return
    altered = find_altered_line(before, after)
    if altered is not None:
        yield f"a numbered line is altered: {altered!r:.{SHOWN_CHARS}}"


def is_json(text: str) -> bool:
    """Whether the text is a JSON object or array."""
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True


def find_altered_line(before: str, after: str) -> str | None:
    """A numbered line of `after` that is neither a line of `before` nor the beginning of one followed by a marker.

    The marker may be on the next line. A piece from the middle of a line is allowed if its number was not cut. Escapes,
    trailing spaces, and text that a carriage return overwrote are ignored. None if all lines are right.
    """
    known: dict[str, list[str]] = defaultdict(list)
    for line in _read_lines(before):
        if found := _NUMBERED.match(line):
            known[found[0]].append(line)
    lines = [*_read_lines(after), ""]
    for line, following in pairwise(lines):
        found = _NUMBERED.match(line)
        if found is None or line in known[found[0]]:
            continue
        marker = _MARKER.search(line)
        piece = line[: marker.start()].rstrip() if marker else line
        is_cut = marker is not None or _MARKER.match(following) is not None
        if is_cut and any(each.startswith(piece) for each in known[found[0]]):
            continue
        if not _is_within(piece, before):
            return line
    return None


def _is_within(piece: str, before: str) -> bool:
    """Whether a letter or a space precedes it in a line: then what looks like a line number is not one."""
    at = before.find(piece)
    return at > 0 and (before[at - 1].isalpha() or before[at - 1] in " \t")


def _read_lines(text: str) -> Iterator[str]:
    for line in _ESCAPES.sub("", text).replace("\r\n", "\n").split("\n"):
        yield line.rstrip().rpartition("\r")[2]


def remove_space(text: str) -> str:
    """The text without white space and escape sequences."""
    return "".join(_ESCAPES.sub("", text).split())
