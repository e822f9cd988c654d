"""Reads what a tool call asks for, from its name and its arguments alone.

Law: linear time, and no error whatever the arguments are: no JSON, megabytes long, deeply nested. Only the beginning of
a very long argument is read.
"""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

import msgspec

from rules.conversation import ToolCall

MAX_ARGUMENT_CHARS = 4096
"""Characters of one argument that are read. Chosen: no path is longer (PATH_MAX of Linux), and few commands are."""
MAX_ARGUMENTS_CHARS = 256 * 1024
"""Longer arguments are not decoded. Chosen: they usually carry a file to be written."""
MAX_STRINGS = 256
"""Strings of one call's arguments that are read. Chosen: more than real calls have."""
MAX_DEPTH = 6
"""Deepest level of nested arguments that is read. Chosen: deeper than the arguments of real tools."""

_READING = frozenset({"read", "view", "cat", "open"})
_FILE = frozenset({"file", "files", "contents", "source", "code", "symbol", "resource", "notebook"})
_JSON_FILE = re.compile(
    r"\.(?:\w*json\w*|\w+rc|avsc|code-workspace|gltf|har|importmap|ipynb|lock|map|tfstate|tfvars|webmanifest)\Z",
    re.IGNORECASE,
)
"""The end of a path whose file usually holds JSON."""

_NAME_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_WORDS = re.compile(r"[^\s\"'`;|&<>()]+")
_LINES_BEHIND = re.compile(r"(?<=.)(?::\d[\d,:-]*|#L\d[\dL-]*)\Z")

_decode = msgspec.json.Decoder().decode


def reads_json_file(call: ToolCall) -> bool:
    """Whether JSON in the result may be the content of a file, which the agent may copy into an exact edit.

    True if the tool's name says that it reads or mentions files, or if an argument names a JSON file.
    """
    # Names are short; the slice only bounds the work on a hostile one.
    parts = {part.lower() for part in _NAME_PARTS.findall(call.name[:MAX_STRINGS])}
    if not parts.isdisjoint(_FILE) or (parts and parts <= _READING):
        return True
    words = (word for text in _find_strings(_read_arguments(call)) for word in _WORDS.findall(text))
    return any("://" not in word and _JSON_FILE.search(_without_lines(word)) for word in words)


def has_argument(call: ToolCall, globs: Iterable[str]) -> bool:
    """Whether one of the globs matches a string in the arguments, or a word of one.

    A path with line numbers after it also matches without them.
    """
    texts = list(_find_strings(_read_arguments(call)))
    words = (word for text in texts for word in _WORDS.findall(text))
    # Here the constant bounds the number of strings and words.
    wanted = dict.fromkeys(islice((*texts, *words), MAX_ARGUMENT_CHARS))
    wanted |= dict.fromkeys(map(_without_lines, wanted))
    return any(fnmatchcase(value, glob) for glob in globs for value in wanted)


def _without_lines(path: str) -> str:
    """A path without the line numbers that some tools accept after it: `a.py:10-20`, `a.py#L10`."""
    return _LINES_BEHIND.sub("", path)


def _read_arguments(call: ToolCall) -> Any:
    """The arguments, decoded; a list of their text and its words if they are not JSON."""
    if len(call.arguments) > MAX_ARGUMENTS_CHARS:
        return ""
    try:
        return _decode(call.arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        text = call.arguments[:MAX_ARGUMENT_CHARS]
        return [text, *_WORDS.findall(text)]


def _find_strings(value: Any) -> Iterator[str]:
    """The strings in decoded arguments, in order. A list of strings also yields them joined, as a command line."""
    return islice(_walk(value, MAX_DEPTH), MAX_STRINGS)


def _walk(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value[:MAX_ARGUMENT_CHARS]
    elif depth > 0 and isinstance(value, dict):
        for item in value.values():
            yield from _walk(item, depth - 1)
    elif depth > 0 and isinstance(value, list):
        words = [item for item in value[:MAX_STRINGS] if isinstance(item, str)]
        if len(words) > 1:
            yield " ".join(words)[:MAX_ARGUMENT_CHARS]
        for item in value[:MAX_STRINGS]:
            yield from _walk(item, depth - 1)
