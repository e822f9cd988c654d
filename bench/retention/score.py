"""Which facts are left in what a contestant made of an output, and whether the output keeps what it must.

Law: pure, but for the counting.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean

import orjson

from bench.material.tool_outputs import Output
from rules.conversation import CountTokens

SHOWN_CHARS = 80
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_NUMBERED = re.compile(r"[ \t]*\d+(?:\t|: ?|\| ?|→| {2})|[\w./\\-]*[./\\][\w./\\-]+[:(]\d+[:,)-]")
"""A line with a number of its own: a gutter, or a place in a file."""
_MARKER = re.compile(r"\[trimtab|…")
"""From here on it is ours."""


@dataclass(frozen=True, slots=True)
class Scored:
    """What is left of one output: its facts, in order, exactly, and without white space and escapes; its tokens."""

    output: Output
    exact: tuple[bool, ...]
    spaceless: tuple[bool, ...]
    tokens: int
    violations: tuple[str, ...] = ()

    def missing(self) -> list[str]:
        """The facts that are not there exactly, cut for a line."""
        pairs = zip(self.output.facts, self.exact, strict=True)
        return [repr(fact)[:SHOWN_CHARS] for fact, kept in pairs if not kept]


@dataclass(frozen=True, slots=True)
class Share:
    """Of the facts of some outputs, the shares kept; and tokens, a mean of the outputs."""

    facts: int
    exact: float
    spaceless: float
    mean_tokens: float


def score(output: Output, text: str, count: CountTokens) -> Scored:
    """Find the facts again."""
    bare = remove_space(text)
    exact = tuple(fact in text for fact in output.facts)
    spaceless = tuple(remove_space(fact) in bare for fact in output.facts)
    return Scored(output, exact, spaceless, count(text))


def summarise(scored: Sequence[Scored], *, diagnostics_only: bool = False) -> Share | None:
    """Of all outputs or of diagnostics; None where there are none."""
    chosen = [one for one in scored if one.output.is_diagnostic or not diagnostics_only]
    facts = sum(len(one.exact) for one in chosen)
    if not facts:
        return None
    exact, spaceless = sum(sum(one.exact) for one in chosen), sum(sum(one.spaceless) for one in chosen)
    return Share(facts, exact / facts, spaceless / facts, mean(one.tokens for one in chosen))


def find_violations(before: str, after: str, tokens: int, limit_tokens: int) -> Iterator[str]:
    """What a shortened text must not do: cost more than its limit or than before, break JSON, alter numbered lines."""
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
    """Whether it is an object or an array."""
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True


def find_altered_line(before: str, after: str) -> str | None:
    """A line of `after` with a number of its own that is no line of `before`, nor a beginning of one with a marker.

    The marker may stand on the next line. Nor a piece from within a line, where it is not the number that was cut.
    Escapes, blanks at the end and what a carriage return wrote over do not matter.
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
    """Whether it stands behind a letter or a blank of a line: what looks like its number was none."""
    at = before.find(piece)
    return at > 0 and (before[at - 1].isalpha() or before[at - 1] in " \t")


def _read_lines(text: str) -> Iterator[str]:
    for line in _ESCAPES.sub("", text).replace("\r\n", "\n").split("\n"):
        yield line.rstrip().rpartition("\r")[2]


def remove_space(text: str) -> str:
    """The text without white space and escape sequences."""
    return "".join(_ESCAPES.sub("", text).split())
