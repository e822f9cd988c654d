"""Find lines of code in the calls that a cut removes: what the model wrote last, word for word.

A model writes the same script or patch again with small changes, so it needs more of it than the names.

Laws: the newest call comes first, the lines of a call in their order. A line is whole and has a name that the reader
does not see yet. No line comes twice, and none that is in the calls of the tail. Linear, and only READ_CHARS characters
are read.
"""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from trimtab.rules.conversation import Message
from trimtab.rules.summary.anchors.names import READ_CHARS, find_names, read_arguments
from trimtab.rules.summary.quoting import quote_line

LINE_CHARS = 200
"""A longer line is left out. Chosen: it is data."""
VALUE_CHARS = 20_000
"""Characters read of one argument. Chosen: more than the index has room for."""


def find_code(
    removed: Sequence[Message], tail: Sequence[Message], present: AbstractSet[str]
) -> Iterator[tuple[str, ...]]:
    """Yield the lines of each message's calls in which an argument has several lines, the newest message first.

    A line needs a name that is not `present` (known to the reader already).
    """
    seen = {line.strip() for message in tail for line in _find_lines(message)}
    left = READ_CHARS
    for message in reversed(removed):
        left -= sum(len(call.arguments) for call in message.tool_calls)
        if left < 0:
            return
        lines: list[str] = []
        for line in _find_lines(message):
            if (bare := line.strip()) not in seen and find_names(bare) - present:
                seen.add(bare)
                lines.append(line)
        if lines:
            yield tuple(lines)


def _find_lines(message: Message) -> Iterator[str]:
    """The lines with their indentation, safe to quote; not those that are too long."""
    for value in read_arguments(message.tool_calls):
        lines = value[:VALUE_CHARS].split("\n")
        for line in lines if len(lines) > 1 else ():
            bare = line.strip()
            if bare and len(bare) <= LINE_CHARS:
                indent = len(line) - len(line.lstrip())
                yield " " * min(indent, LINE_CHARS) + quote_line(bare, LINE_CHARS * 2)
