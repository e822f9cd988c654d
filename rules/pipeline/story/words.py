"""The words of sentences: numbers, places, tools.

Law: no text of a conversation. A tool's name is said only if it looks like one.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from rules.pipeline.story.values import OUTSIDE

MAX_SPANS = 12
"""The most places that a sentence names one by one. Chosen: about a line and a half on a terminal."""
MAX_TOOLS = 4
"""The most tools that a sentence names. Chosen: agents call two or three tools for nearly everything."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def say_number(number: int, one: str, many: str = "") -> str:
    """A number with its noun: `1 message`, `1,200 messages`."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def say_list(items: Sequence[str]) -> str:
    """Items in a row: `a`, `a and b`, `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""


def say_places(elements: Iterable[int]) -> str:
    """Indexes of messages, neighbours joined: `message 3`, `messages 3, 5 and 7-12`; empty without any."""
    inside = sorted({element for element in elements if element != OUTSIDE})
    spans: list[list[int]] = []
    for element in inside:
        if spans and element == spans[-1][-1] + 1:
            spans[-1][1:] = [element]
        else:
            spans.append([element])
    named = [f"{span[0]}-{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans]
    if len(named) > MAX_SPANS:
        rest = sum(span[-1] - span[0] + 1 for span in spans[MAX_SPANS:])
        named = [*named[:MAX_SPANS], f"{rest:,} more"]
    return f"message{'' if len(inside) == 1 else 's'} {say_list(named)}" if inside else ""


def say_tools(names: Iterable[str]) -> str:
    """The tools of results, the most frequent first: `bash`, `bash, read_file and 3 other tools`; empty without any."""
    counted = Counter(names)
    known = [name for name, _ in sorted(counted.items(), key=lambda each: (-each[1], each[0])) if _NAME.fullmatch(name)]
    rest = len(counted) - len(known[:MAX_TOOLS])
    others = [say_number(rest, "other tool")] if rest else []
    if not known:
        return ""
    return say_list([*known[:MAX_TOOLS], *others])
