"""Find tool calls that a model wrote as text, instead of making them through the API.

Law: there are two kinds. A model's own call syntax is a call at any place in the text. Text that may also be data
(JSON, XML, a line of Python, a fence) is a call only if the answer ends with it and the line before does not announce
data.
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
"""Call syntax that is recognised at the beginning of a line."""
_SYNTAX_WITHIN = re.compile(
    r"""(?<![`'"])(?:
    <tool_call>\s{0,9}(?:\{\s{0,9}"name"|<function=)
    |<[|\uff5c]tool[_▁]calls?(?:[_▁]section)?[_▁]begin[|\uff5c]>
    |<\|channel\|>commentary
    )""",
    re.VERBOSE,
)
"""Call syntax that is recognised within a line, as some models write it directly after their text."""
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
    """Whether a text (given without its fences) contains a model's own call syntax."""
    return _SYNTAX.search(unfenced) is not None or _SYNTAX_WITHIN.search(unfenced) is not None


def has_any_call(lines: Sequence[str], unfenced: str) -> bool:
    """Whether anything in a text looks like a call, even if it may be data."""
    fences = (FENCE.match(line) for line in lines)
    languages = [fence["language"] for fence in fences if fence is not None]
    return has_call_syntax(unfenced) or _LIKE_DATA.search(unfenced) is not None or any(map(_LANGUAGE.match, languages))


def ends_in_call(lines: Sequence[str], unfenced: Sequence[str], goes_on: re.Pattern[str]) -> bool:
    """Whether a text ends with something that looks like a call and is not announced as data.

    `unfenced` has the same lines, with those in fences made empty. A heading, a table row or a line that ends with a
    colon announces data, unless it says what is done next (`goes_on`).
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
    """The first line of the fence that ends the text, if the fence contains a call."""
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
    """The line at which the last paragraph begins to look like a call, if it does so up to its end."""
    text = "\n".join(unfenced).rstrip()
    start = text.rfind("\n\n") + 1
    found = _LIKE_DATA.search(text, start)
    if found is None or not (_ENDS.search(text) or found[0].lower().lstrip().startswith("action:")):
        return None
    return text.count("\n", 0, found.start())
