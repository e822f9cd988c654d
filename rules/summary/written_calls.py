"""Calls of tools that a model writes as text, because it has no other way to make them or because it fell out of form.

Law: two kinds. What only a model's own syntax of calls looks like is a call wherever it stands. What may be data as
well (JSON, XML, a line of Python, a fence) is a call only if the text ends in it and no line announces it as data.
"""

import re
from collections.abc import Sequence

FENCE = re.compile(r" {0,3}(?P<marks>`{3,}|~{3,})[ \t]*(?P<language>[\w-]*)")

_SYNTAX = re.compile(
    r"""^\ {0,3}(?:
    <[\w:▁|]{0,40}(?:tool[_▁]?(?:call|use|code|request)|function(?:=|[_▁]call)|invoke\ name|python_tag)
    |<\|(?:channel|start)\|>[^\n<]{0,40}(?:<\|channel\|>)?commentary|\[TOOL_(?:CALL|REQUEST)
    )""",
    re.VERBOSE | re.MULTILINE | re.IGNORECASE,
)
"""At the beginning of a line."""
_SYNTAX_WITHIN = re.compile(
    r"""(?<![`'"])(?:
    <tool_call>\s{0,9}(?:\{\s{0,9}"name"|<function=)
    |<[|\uff5c]tool[_▁]calls?(?:[_▁]section)?[_▁]begin[|\uff5c]>
    |<\|channel\|>commentary
    )""",
    re.VERBOSE,
)
"""With which a line goes on, as some models write it behind their text."""
_JSON = r"""[\[{]\s{0,9}\{?\s{0,9}"(?:name|tool|tool_name|tool_calls?|function|function_call|recipient_name
    |action)"\s{0,9}:
        (?:.*\n){0,4}?.*"(?:arguments|parameters|args|input|tool_input|action_input|function)"\s{0,9}:
        (?!\s{0,9}\{\s{0,9}"(?:type|properties|\$schema)"\s{0,9}:)"""
_LIKE_DATA = re.compile(
    rf"""^\ {{0,3}}(?:
    <([a-z]{{1,20}}(?:_[a-z]{{1,20}}){{1,4}})>\s{{0,9}}<[a-z]
    |Action:\s{{0,9}}\S.*\n\s{{0,9}}Action\ Input:
    |\[\w{{1,60}}\(.{{0,2000}}\)\]\s*$
    |{_JSON}
    )""",
    re.VERBOSE | re.MULTILINE | re.IGNORECASE,
)
_JSON_CALL = re.compile(_JSON, re.VERBOSE | re.IGNORECASE)
_LANGUAGE = re.compile(r"tool|function_call|invoke", re.IGNORECASE)
_ENDS = re.compile(r"[}\])>]\s*\Z")


def has_call_syntax(unfenced: str) -> bool:
    """Whether a call stands in a text without its fences that can be nothing else."""
    return _SYNTAX.search(unfenced) is not None or _SYNTAX_WITHIN.search(unfenced) is not None


def has_any_call(lines: Sequence[str], unfenced: str) -> bool:
    """Whether anything in a text looks like a call, be it data or not."""
    fences = (FENCE.match(line) for line in lines)
    languages = [fence["language"] for fence in fences if fence is not None]
    return has_call_syntax(unfenced) or _LIKE_DATA.search(unfenced) is not None or any(map(_LANGUAGE.match, languages))


def ends_in_call(lines: Sequence[str], unfenced: Sequence[str], goes_on: re.Pattern[str]) -> bool:
    """Whether a text ends in what looks like a call; `unfenced` has the same lines, empty within fences.

    A heading or a line that ends in a colon announces data, unless it says what is done next.
    """
    start = _find_last_fence(lines, unfenced)
    if start is None:
        start = _find_last_like_data(unfenced)
    if start is None:
        return False
    before = next((line for line in reversed(lines[:start]) if line.strip()), "")
    announces = before.rstrip(" *_").endswith(":") or before.lstrip().startswith(("#", "|"))
    return not announces or goes_on.match(before) is not None


def _find_last_fence(lines: Sequence[str], unfenced: Sequence[str]) -> int | None:
    """The line of the fence in which a text ends, if a call stands in it."""
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    if not end or unfenced[end - 1]:
        return None
    start = end - 1
    while start and not (unfenced[start - 1] or not lines[start - 1].strip()):
        start -= 1
    opening = next((index for index in range(end - 2, start - 1, -1) if FENCE.match(lines[index])), None)
    if opening is None:
        return None
    fence = FENCE.match(lines[opening])
    is_tool = fence is not None and _LANGUAGE.match(fence["language"])
    return opening if is_tool or _JSON_CALL.match("\n".join(lines[opening + 1 : end]).lstrip()) else None


def _find_last_like_data(unfenced: Sequence[str]) -> int | None:
    """The first line of the last block without an empty line, from which on it looks like a call to its end."""
    text = "\n".join(unfenced).rstrip()
    start = text.rfind("\n\n") + 1
    found = _LIKE_DATA.search(text, start)
    if found is None or not (_ENDS.search(text) or found[0].lower().lstrip().startswith("action:")):
        return None
    return text.count("\n", 0, found.start())
