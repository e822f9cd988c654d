"""Read calls: with what result, with which arguments, which command line, and what each does to which files.

Laws: no arguments make it fail; only the beginning of long ones is read. Of a command line, what is not clear is not
concluded. Steps are generated one by one, the newest first, so a search for the newest of something can stop early.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

from trimtab.rules.conversation import Message, Role, ToolCall
from trimtab.rules.results.calls import MAX_ARGUMENTS_CHARS, OpenCalls, decode, tells_failure
from trimtab.rules.text.late import compile_late

NAME_CHARS = 128  # Characters read of a tool's name. Chosen: twice OpenAI's bound for the names of functions.
ARGUMENTS_CHARS = 4000  # Of arguments in which a command line and paths are looked for. Chosen: bounds the work.

_PLAIN = compile_late(r"[^\w]|_")
_NAME_PARTS = compile_late(r"[A-Z]?[a-z]+|[A-Z]+")


class Answered(NamedTuple):
    """A call and its result; None if the call was not answered."""

    call: ToolCall
    result: Message | None

    @property
    def has_failed(self) -> bool:
        return self.result is not None and tells_failure(self.result)


class Step(NamedTuple):
    """A message that is not a tool result, and its calls in order."""

    message: Message
    calls: tuple[Answered, ...]


def newest_steps(messages: Sequence[Message]) -> Iterator[Step]:
    """Yield the steps of a transcript, the newest first. Each tool result must follow the message that calls it."""
    results: list[Message] = []
    for message in reversed(messages):
        if message.role is Role.TOOL:
            results.append(message)
            continue
        yield Step(message, _pair(message, results))
        results = []


def _pair(message: Message, results: Sequence[Message]) -> tuple[Answered, ...]:
    """The message's calls with their results; `results` has the newest first."""
    if len(message.tool_calls) == len(results) == 1 and results[0].answers == message.tool_calls[0].id:
        return (Answered(message.tool_calls[0], results[0]),)
    calls = OpenCalls()
    calls.answer(message)
    answers: dict[int, Message] = {}
    for result in reversed(results):
        call = calls.answer(result)
        if call is not None:
            answers[id(call)] = result
    return tuple(Answered(call, answers.get(id(call))) for call in message.tool_calls)


def read_arguments(call: ToolCall) -> dict[str, Any]:
    """Return the members of a call's arguments.

    If the arguments are not a JSON object, their value (or their text, if they are not JSON) is the member "".
    Arguments that were encoded as JSON twice are decoded twice. Arguments of more than MAX_ARGUMENTS_CHARS characters
    have no members.
    """
    if len(call.arguments) > MAX_ARGUMENTS_CHARS:
        return {}
    value = decode(call.arguments)
    if isinstance(value, str) and value.startswith("{"):
        value = decode(value)
    if isinstance(value, dict):
        return value
    return {"": call.arguments if value is None else value}


def read_members(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The members by their plain names."""
    return {normalise(str(key)[:64]): value for key, value in arguments.items()}


@lru_cache(maxsize=2048)
def normalise(word: str) -> str:
    """Return a status or a key in lower case, without spaces and signs. A text of only signs stays as it is."""
    plain = _PLAIN.sub("", word).lower()
    return plain or word.strip()


def split_name(name: str) -> tuple[str, ...]:
    """The words of a tool's or a command's name in snake_case or camelCase, in lower case."""
    return tuple(part.lower() for part in _NAME_PARTS.findall(name[:NAME_CHARS]))


_COMMANDS = ("command", "cmd", "commands", "script", "commandline")
_SHELLS = frozenset({"bash", "sh", "zsh", "fish", "dash", "powershell", "pwsh", "cmd"})
_EDITOR = compile_late(
    r'"command"\s{0,4}:\s{0,4}"(view|create|str|insert|undo|edit|write|read|delete|replace|append)(?:_[a-z]+)?"'
)
"""The `command` of an editing tool. In other tools, `command` is a command line."""
_SEPARATORS = compile_late(r"&&|\|\|?|;|\n")


def find_command(call: ToolCall) -> str | None:
    """Return the command line that a call runs; None if it is a call of another kind."""
    if len(call.arguments) > ARGUMENTS_CHARS or _EDITOR.search(call.arguments):
        return None
    command = read_command(read_members(read_arguments(call)))
    return command if command.strip() else None


def read_command(members: Mapping[str, Any]) -> str:
    """The command line in a call's members; several command lines are joined by line breaks."""
    name, value = next(((name, members[name]) for name in _COMMANDS if name in members), ("", None))
    if isinstance(value, str):
        return value
    words = [word for word in value if isinstance(word, str)] if isinstance(value, list) else []
    if words and words[0].rpartition("/")[2].lower().removesuffix(".exe") in _SHELLS:
        return words[-1]
    are_lines = any(" " in word for word in (words if name == "commands" else words[:1]))
    return ("\n" if are_lines else " ").join(words)


def split_command(command: str) -> list[str]:
    return _SEPARATORS.split(command)


_PATH = compile_late(r"(?<![\w:/])(?:~|\.{1,2})?/?(?>(?:[\w.@+-]{1,64}+/){1,12})[\w.@+-]{1,64}+(?<=\w)")
_URL = compile_late(r"\b[a-z][a-z0-9+.-]{1,15}:(?:\\?/){2}(?:[^\s\"'<>\\]|\\/)*", re.IGNORECASE)
"""URLs: they are not files, even if they end like a path."""
_NAMED = compile_late(
    r'"(?:path|file_?path|file_?name|file|target_?file|notebook_path|absolute_path|relative_path)"\s{0,4}:\s{0,4}"([^"\\]{1,256})"',
    re.IGNORECASE,
)
_ESCAPED = compile_late(r"\\[ntr]|\\(?=[\"'/])")


class Deed(StrEnum):
    """The kind of thing that was done to a file. `NAMED`: a call names it, and nothing more is known."""

    READ = "read"
    WRITTEN = "written"
    EDITED = "edited"
    DELETED = "deleted"
    NAMED = "named"


_DEEDS = {
    **dict.fromkeys(("delete", "remove", "unlink", "rm"), Deed.DELETED),
    **dict.fromkeys(("edit", "replace", "str", "insert", "patch", "update", "append", "modify", "multi"), Deed.EDITED),
    **dict.fromkeys(("create", "write", "save", "touch", "tee", "mkdir"), Deed.WRITTEN),
    **dict.fromkeys(("read", "view", "cat", "open", "show", "head", "tail", "less", "nl", "sed", "grep"), Deed.READ),
}
_READERS = frozenset({
    "cat", "cd", "cut", "diff", "find", "grep", "head", "less", "ls", "nl", "pwd", "rg", "sed", "sort", "tail",
    "tree", "wc",
})  # fmt: skip
"""Commands that only read."""


def find_deeds(call: ToolCall) -> dict[str, Deed]:
    """Return the paths that a call names, and what it does to each."""
    arguments = call.arguments[:ARGUMENTS_CHARS]
    command = find_command(call)
    if command is not None:
        segments = split_command(_URL.sub("", command))
        return {path: _shell_deed(segment, path) for segment in segments for path in _PATH.findall(segment)}
    words = (*_EDITOR.findall(arguments), *split_name(call.name))
    deed = next((_DEEDS[word] for word in words if word in _DEEDS), Deed.NAMED)
    arguments = _URL.sub("", arguments)
    named = _NAMED.findall(arguments)
    paths = named or _PATH.findall(_ESCAPED.sub(" ", arguments))
    return dict.fromkeys(paths, deed)


def _shell_deed(segment: str, path: str) -> Deed:
    words = segment.split()
    before = segment[: segment.find(path)].rstrip()
    if before.endswith(">") and not before.endswith("2>"):
        return Deed.WRITTEN
    if words[0] == "sed" and words[1].startswith("-i"):  # there is a second word: the path
        return Deed.EDITED
    return _DEEDS.get(words[0], Deed.NAMED)


def only_reads(call: ToolCall) -> bool:
    command = find_command(call)
    if command is None:
        return set(find_deeds(call).values()) == {Deed.READ}
    segments = [words for segment in split_command(command) if (words := segment.split())]
    return all(words[0] in _READERS and words[1:2] != ["-i"] for words in segments)
