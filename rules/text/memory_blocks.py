"""Blocks of retrieved memory in a text: from `<TAG>` or `<TAG attributes>` to `</TAG>`.

Law: a block ends at the first closing tag of its own name. A tag that is never closed begins no block. Upper and lower
case differ. The time is linear in the text's length for each tag.
"""

import re
from collections.abc import Sequence
from functools import lru_cache


def find_memory(text: str, tags: Sequence[str]) -> list[tuple[int, int]]:
    """The spans (start, stop) of all blocks with one of these tags, oldest first; blocks within blocks do not count."""
    # Most texts have no block, and this test is far quicker than the pattern below.
    if not any(f"</{tag}>" in text for tag in tags):
        return []
    pattern = _find_pattern(tuple(tags))
    spans: list[tuple[int, int]] = []
    unclosed: set[str] = set()
    stop = 0
    while opening := pattern.search(text, stop):
        tag, stop = opening.group(1), opening.end()
        if tag in unclosed:
            continue
        closing = f"</{tag}>"
        end = text.find(closing, stop)
        if end < 0:
            unclosed.add(tag)  # no later tag of this name is closed either: the text is not searched again
            continue
        stop = end + len(closing)
        spans.append((opening.start(), stop))
    return spans


@lru_cache(maxsize=256)
def _find_pattern(tags: tuple[str, ...]) -> re.Pattern[str]:
    """What begins a block. A longer name is another tag."""
    return re.compile(rf"<({'|'.join(map(re.escape, tags))})(?=[>\s])")
