"""What a tool call asks for, told from its name and its arguments alone.

Law: linear, and total on any arguments: no JSON at all, megabytes of them, deeply nested ones. Only the beginning of
a very long argument is read.
"""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

import msgspec

from rules.conversation import ToolCall
from rules.results.tools.shell import names_code, prints_code, without_lines

MAX_ARGUMENT_CHARS = 4096
"""Of one argument: no path is longer, and hardly a command."""
MAX_ARGUMENTS_CHARS = 256 * 1024
"""Longer arguments carry a file to be written: they are not taken apart."""
MAX_STRINGS = 256
"""Of one call's arguments."""
MAX_DEPTH = 6
"""Of nested arguments: deeper ones are not looked into."""

MAX_COMMAND_CHARS = 8 * 1024
"""Of all of one call's command lines: they are read word by word."""

_READING = frozenset({"read", "view", "cat", "open"})
_FETCHING = frozenset({"show", "get", "fetch", "load", "display"})
_FILE = frozenset({"file", "files", "contents", "source", "code", "symbol", "resource", "notebook"})
_OTHERWISE = frozenset(
    {"write", "edit", "create", "replace", "insert", "delete", "remove", "patch", "list", "search", "grep", "glob",
     "lint", "lints", "diagnostics", "problems", "directory", "dir", "folder", "tree", "url", "page", "web", "image",
     "names"}
)  # fmt: skip
"""Tools that do something else, whatever they read besides."""
_SHELLS = frozenset(
    {"bash", "sh", "zsh", "shell", "terminal", "execute", "exec", "command", "commands", "cmd", "powershell", "console",
     "run", "tmux", "stdin", "ipython", "python"}
)  # fmt: skip
_PATH_KEYS = frozenset({"path", "paths", "file", "files", "filename", "filepath", "uri", "include"})
"""Words in the name of an argument that is a path, whatever it looks like."""

_NAME_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_WORDS = re.compile(r"[^\s\"'`;|&<>()]+")
_SEPARATORS = re.compile(r"[/\\]")
_EXTENSION = re.compile(r"(?!\d+\Z)\w{1,12}\Z")

_decode = msgspec.json.Decoder().decode


def reads_file(call: ToolCall) -> bool:
    """Whether the call prints a file whose text the agent may copy into an edit.

    A tool that reads by its name, with any path, or a view by an editor; or a shell's cat and its like, with the path
    of a file of code or data.
    """
    parts = _split_name(call.name)
    is_editor = not parts.isdisjoint({"editor", "edit"})
    is_shell = not parts.isdisjoint(_SHELLS)
    is_reader = _is_reader(parts)
    if not (is_editor or is_shell or is_reader):
        return False
    arguments = _read_arguments(call)
    if is_editor:
        is_reader = isinstance(arguments, dict) and arguments.get("command") == "view"
    if is_reader and any(_is_path(key, text) for key, text in _find_texts(arguments)):
        return True
    return is_shell and not is_editor and any(map(prints_code, _find_commands(arguments)))


def has_argument(call: ToolCall, globs: Iterable[str]) -> bool:
    """Whether one of the globs matches an argument: any text in the arguments, or a word of one.

    A path matches without the lines that may stand behind it, too.
    """
    texts = list(_find_strings(_read_arguments(call)))
    words = (word for text in texts for word in _WORDS.findall(text))
    wanted = dict.fromkeys(islice((*texts, *words), MAX_ARGUMENT_CHARS))
    wanted |= dict.fromkeys(map(without_lines, wanted))
    return any(fnmatchcase(value, glob) for glob in globs for value in wanted)


def _is_reader(parts: set[str]) -> bool:
    """Whether a tool reads files, by its name."""
    if not parts.isdisjoint(_OTHERWISE):
        return False
    fetches = not parts.isdisjoint(_FETCHING) and not parts.isdisjoint(_FILE)
    return fetches or not parts.isdisjoint(_READING) or {"find", "symbol"} <= parts


def _is_path(key: str, text: str) -> bool:
    """Whether an argument is the path of a file: it is called so, or looks so."""
    path = without_lines(text.strip().removeprefix("file://"))
    if not path or "\n" in path or "://" in path or path.endswith(("/", "\\")):
        return False
    return not _PATH_KEYS.isdisjoint(_split_name(key)) or names_code(path) or _looks_like_a_path(path)


def _looks_like_a_path(text: str) -> bool:
    *folders, name = _SEPARATORS.split(text)
    _, dot, extension = name.rpartition(".")
    return len(text.split()) == 1 and (bool(folders) or (dot == "." and _EXTENSION.match(extension) is not None))


def _split_name(name: str) -> set[str]:
    """The words of a tool's name, in whatever way they are joined."""
    return {part.lower() for part in _NAME_PARTS.findall(name[:MAX_STRINGS])}


def _read_arguments(call: ToolCall) -> Any:
    """The arguments, decoded; their text and its words where they are no JSON."""
    if len(call.arguments) > MAX_ARGUMENTS_CHARS:
        return ""
    try:
        return _decode(call.arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        text = call.arguments[:MAX_ARGUMENT_CHARS]
        return [text, *_WORDS.findall(text)]


def _find_commands(arguments: Any) -> Iterator[str]:
    """The texts in decoded arguments, as many as may be read as command lines."""
    left_chars = MAX_COMMAND_CHARS
    for text in _find_strings(arguments):
        left_chars -= len(text)
        if left_chars < 0:
            return
        yield text


def _find_strings(value: Any) -> Iterator[str]:
    """The texts in decoded arguments, in order; a list of words is a command line, too."""
    return (text for _, text in _find_texts(value))


def _find_texts(value: Any) -> Iterator[tuple[str, str]]:
    """The same, each with the name of the argument that it stands in."""
    return islice(_walk("", value, MAX_DEPTH), MAX_STRINGS)


def _walk(key: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value[:MAX_ARGUMENT_CHARS]
    elif depth > 0 and isinstance(value, dict):
        for name, item in value.items():
            yield from _walk(name, item, depth - 1)
    elif depth > 0 and isinstance(value, list):
        words = [item for item in value[:MAX_STRINGS] if isinstance(item, str)]
        if len(words) > 1:
            yield key, " ".join(words)[:MAX_ARGUMENT_CHARS]
        for item in value[:MAX_STRINGS]:
            yield from _walk(key, item, depth - 1)
