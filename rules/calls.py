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

MAX_ARGUMENT_CHARS = 4096
"""Of one argument: no path is longer, and hardly a command."""
MAX_ARGUMENTS_CHARS = 256 * 1024
"""Longer arguments carry a file to be written: they are not taken apart."""
MAX_STRINGS = 256
"""Of one call's arguments."""
MAX_DEPTH = 6
"""Of nested arguments: deeper ones are not looked into."""

_READING = frozenset({"read", "view", "cat", "open", "show", "get", "fetch", "load"})
_FILE = frozenset({"file", "files", "read", "view", "cat", "open", "contents"})
_WRITING = frozenset({"write", "edit", "create", "replace", "insert", "delete", "remove", "patch", "list"})
_SHELLS = frozenset(
    {"bash", "sh", "zsh", "shell", "terminal", "execute", "exec", "command", "commands", "cmd", "powershell", "console"}
)
_PRINTERS = frozenset({"cat", "head", "tail", "nl", "less", "more", "bat", "batcat", "type", "get-content", "gc"})
_PREFIXES = frozenset({"sudo", "command", "time", "env"})
"""Words before a program's name that change nothing about what it prints."""
_EXTENSIONS = frozenset(
    {"ada", "adb", "asm", "astro", "awk", "bash", "bat", "bazel", "bzl", "c", "cc", "cfg", "cjs", "clj", "cls",
     "cmake", "conf", "cpp", "cr", "cs", "csproj", "css", "csv", "cts", "cu", "cxx", "d", "dart", "editorconfig",
     "el", "elm", "env", "erl", "ex", "exs", "fish", "fs", "fsx", "gitignore", "go", "gql", "gradle", "graphql",
     "groovy", "h", "hbs", "hcl", "hh", "hpp", "hrl", "hs", "htm", "html", "hxx", "i", "ini", "ino", "ipp", "ipynb",
     "j2", "java", "jinja", "jinja2", "jl", "js", "json", "json5", "jsonc", "jsonl", "jsx", "kt", "kts", "less",
     "lisp", "lock", "lua", "m", "make", "markdown", "md", "mdx", "mjs", "mk", "ml", "mli", "mm", "mod", "mts",
     "nim", "nix", "nu", "pas", "patch", "php", "pl", "plist", "pm", "po", "pp", "prisma", "properties", "props",
     "proto", "ps1", "psm1", "py", "pyi", "pyx", "r", "rb", "rkt", "rs", "rst", "s", "sass", "sbt", "scala", "scm",
     "scss", "service", "sh", "sln", "sol", "sql", "sum", "sv", "svelte", "svg", "swift", "tcl", "tex", "tf",
     "tfvars", "thrift", "tmpl", "toml", "ts", "tsv", "tsx", "v", "vb", "vhd", "vhdl", "vim", "vue", "wat", "xml",
     "xsd", "xsl", "yaml", "yml", "zig", "zsh"}
)  # fmt: skip
"""Of files that are edited by hand: what an agent reads there it may copy into an edit, letter for letter."""
_FILE_NAMES = frozenset(
    {"makefile", "gnumakefile", "dockerfile", "containerfile", "gemfile", "rakefile", "jenkinsfile", "justfile",
     "vagrantfile", "procfile", "cmakelists.txt", "requirements.txt", "build", "workspace"}
)  # fmt: skip

_NAME_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_COMMAND_ENDS = re.compile(r"&&|\|\||[;|\n&(){}]")
_WORDS = re.compile(r"[^\s\"'`;|&<>()]+")
_LINES_BEHIND = re.compile(r"(?<=.)(?::\d[\d,:-]*|#L\d[\dL-]*)\Z")
"""What some tools take behind a path: `a.py:10-20`, `a.py#L10`."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")

_decode = msgspec.json.Decoder().decode


def reads_file(call: ToolCall) -> bool:
    """Whether the call prints a file of code or data whose text the agent may copy into an edit.

    A tool that reads by its name, or a shell's cat and its like, with the path of such a file; or a view by an editor.
    """
    parts = _split_name(call.name)
    if parts.isdisjoint(_SHELLS | _READING | {"editor", "edit"}):
        return False
    arguments = _read_arguments(call)
    command = arguments.get("command") if isinstance(arguments, dict) else None
    if not parts.isdisjoint({"editor", "edit"}):
        return command == "view" and any(map(_names_code, _find_strings(arguments)))
    if not parts.isdisjoint(_SHELLS):
        return any(map(_prints_code, _find_strings(arguments)))
    reads = not parts.isdisjoint(_READING) and not parts.isdisjoint(_FILE) and parts.isdisjoint(_WRITING)
    return reads and any(map(_names_code, _find_strings(arguments)))


def has_argument(call: ToolCall, globs: Iterable[str]) -> bool:
    """Whether one of the globs matches an argument: any text in the arguments, or a word of one."""
    texts = list(_find_strings(_read_arguments(call)))
    words = (word for text in texts for word in _WORDS.findall(text))
    wanted = dict.fromkeys(islice((*texts, *words), MAX_ARGUMENT_CHARS))
    return any(fnmatchcase(value, glob) for glob in globs for value in wanted)


def _split_name(name: str) -> set[str]:
    """The words of a tool's name, in whatever way they are joined."""
    return {part.lower() for part in _NAME_PARTS.findall(name[:MAX_STRINGS])}


def _read_arguments(call: ToolCall) -> Any:
    """The arguments, decoded; their text where they are no JSON."""
    if len(call.arguments) > MAX_ARGUMENTS_CHARS:
        return ""
    try:
        return _decode(call.arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return call.arguments


def _find_strings(value: Any) -> Iterator[str]:
    """The texts in decoded arguments, in order; a list of words is a command line, too."""
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


def _names_code(text: str) -> bool:
    """Whether a text is the path of a file of code or data: one word, no address, with an extension that says so."""
    path = _LINES_BEHIND.sub("", text.strip())
    if "\n" in path or "://" in path:
        return False
    name = re.split(r"[/\\]", path)[-1].lower()
    return name in _FILE_NAMES or ("." in name and name.rpartition(".")[2] in _EXTENSIONS)


def _prints_code(text: str) -> bool:
    """Whether a shell's command line prints such a file, and does not write it elsewhere."""
    return any(map(_is_print_of_code, _COMMAND_ENDS.split(text)))


def _is_print_of_code(command: str) -> bool:
    words = [word.strip("\"'") for word in command.split()]
    while words and (words[0] in _PREFIXES or _ASSIGNMENT.match(words[0]) or words[0] in {"bash", "sh", "-lc", "-c"}):
        del words[0]
    if not words or "<<" in command or any(word.startswith((">", "1>")) for word in words):
        return False
    program = re.split(r"[/\\]", words[0])[-1].lower()
    prints = program in _PRINTERS or (program == "sed" and any(word.startswith("-n") for word in words))
    return prints and any(not word.startswith("-") and _names_code(word) for word in words[1:])
