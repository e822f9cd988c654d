"""Find the files that a call reads, writes or changes.

Law: a function of the tool's name, its arguments and its result. A failed read does not count. A tool whose name does
not say that it reads counts as reading nothing.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rules.results.calls import MAX_ARGUMENTS_CHARS, says_failure
from rules.summary.carried.answered import Answered, decode, read_arguments
from rules.summary.carried.file_events import PATH_CHARS, FileAct, FileEvent, normalise_path
from rules.summary.carried.item import normalise
from rules.summary.carried.shell_files import find_shell_events, holds_all
from rules.text.markers import START, tells_omission

SHORT_CHARS = 600
"""A longer result counts as a file's text, even if it contains the words of an error. Chosen: errors are short."""
MOST_PATHS = 32
"""Maximum number of paths that are read from one argument. Chosen: bounds the work."""
EDGE_CHARS = 300
"""Characters at a result's end in which a tool may say that there is more. Chosen: further up, such words
may be the file's own."""

_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_READS = frozenset({"read", "view", "cat", "open", "show", "load", "get"})
_WRITES = frozenset({"write", "create", "save"})
_CHANGES = frozenset(
    {"edit", "replace", "patch", "insert", "update", "modify", "apply", "append", "delete", "remove", "move", "rename",
     "undo", "multiedit", "editor"}
)  # fmt: skip
_SEARCHES = frozenset({"search", "grep", "glob", "find", "list", "ls", "tree"})
_TEXTS = ("content", "contents", "filetext", "text", "newcontent", "code")
_OLD = ("oldstring", "oldstr", "oldtext", "old", "search", "find")
_NEW = ("newstring", "newstr", "newtext", "new", "replace", "replacement")
_COMMANDS = ("command", "cmd", "commands", "script", "commandline")
_SHELLS = frozenset({"bash", "sh", "zsh", "fish", "dash", "powershell", "pwsh", "cmd"})
_STARTS = ("offset", "startline", "lineoffset", "start", "linestart", "from", "viewrange", "ranges", "lineranges")
_LIMITS = ("limit", "nlines", "maxlines", "numlines", "length")
_ENDS = ("endline", "lineend", "end", "to")
_MISSING = re.compile(
    r"no such file|not found|does(?: not|n't) exist|c(?:annot|ould not) (?:find|open|read)|enoent|eacces"
    r"|permission denied|is a directory",
    re.IGNORECASE,
)
_MORE = re.compile(
    r"truncated|more lines|lines? omitted|use (?:the )?[`'\"]?offset|showing lines|file has more"
    r"|output too (?:long|large)",
    re.IGNORECASE,
)
_PATCHED = re.compile(r"^\*\*\* (Update|Add|Delete) File: (.{1,400})$", re.MULTILINE)


def find_file_events(one: Answered, wanted: Callable[[str], bool]) -> Iterator[FileEvent]:
    """Yield what a call does to the wanted files, in order. `wanted` is asked with normalised paths."""
    if one.has_failed:
        return
    arguments = read_arguments(one.call)
    result = _read_result(one)
    has_read = not _tells_failure(result)
    for event in _find_events(one.call.name, arguments, result, wanted):
        if event.act is not FileAct.READ:
            yield event
        elif has_read and not result.startswith(START):  # a result that is one of our placeholders shows no text
            is_partial = event.is_partial or tells_omission(event.text) or bool(_MORE.search(event.text[-EDGE_CHARS:]))
            yield FileEvent(event.path, event.act, event.text, is_partial=is_partial)
        elif has_read:
            yield FileEvent(event.path, event.act)


def _find_events(
    name: str, arguments: Mapping[str, Any], result: str, wanted: Callable[[str], bool]
) -> Iterator[FileEvent]:
    yield from _find_patched(arguments, wanted)
    parts = {part.lower() for part in _PARTS.findall(name[:128])}
    members = {normalise(str(key)[:64]): value for key, value in arguments.items()}
    places = _find_places(members)
    if not places:
        command = _find_command(members)
        if command:
            yield from find_shell_events(command, result, wanted)
        if "skill" in parts or "skills" in parts:
            yield from _find_skill(members, result, wanted)
        return
    act = _tell_act(parts, members)
    for path, place in places:
        if not wanted(path):
            continue
        if act is FileAct.READ:
            yield FileEvent(path, act, result if len(places) == 1 else "", is_partial=_is_partial(place, result))
        elif act is not None:
            yield _tell_change(path, act, members)


def _find_places(members: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The paths that a call names, each with the members next to it, which show what part of the file is meant."""
    places: list[tuple[str, Mapping[str, Any]]] = []
    for key, value in members.items():
        if not ("path" in key or "file" in key or "uri" in key) or key in _TEXTS:
            continue
        for each in value[:MOST_PATHS] if isinstance(value, list) else [value]:
            if isinstance(each, str) and len(each) <= PATH_CHARS and "\n" not in each:
                places.append((normalise_path(each), members))
            elif isinstance(each, dict):
                inner = {normalise(str(name)[:64]): member for name, member in list(each.items())[:MOST_PATHS]}
                paths = (inner[name] for name in inner if "path" in name or "file" in name)
                places.extend((normalise_path(path[:PATH_CHARS]), inner) for path in paths if isinstance(path, str))
    return places


def _find_command(members: Mapping[str, Any]) -> str:
    """The command line that a call runs; several command lines are joined by line breaks."""
    value = next((members[name] for name in _COMMANDS if name in members), None)
    if isinstance(value, str):
        return value
    words = [word for word in value if isinstance(word, str)] if isinstance(value, list) else []
    if words and words[0].rpartition("/")[2].lower().removesuffix(".exe") in _SHELLS:
        return words[-1]
    is_line = bool(words) and not any(" " in word for word in words)
    return (" " if is_line else "\n").join(words)


def _tell_act(parts: set[str], members: Mapping[str, Any]) -> FileAct | None:
    """The kind of thing that a tool does to the files that it names; None if that is not clear."""
    command = members.get("command")
    said = {part.lower() for part in _PARTS.findall(command[:64])} if isinstance(command, str) else parts
    if not said.isdisjoint(_SEARCHES) and said.isdisjoint(_READS | _WRITES | {"replace"}):
        return None
    if not said.isdisjoint(_CHANGES) or _first_text(members, _OLD):
        return FileAct.EDIT
    if not said.isdisjoint(_WRITES):
        return FileAct.WRITE
    return FileAct.READ if _may_read(said) else None


def _may_read(parts: set[str]) -> bool:
    """Whether a tool's name says that it reads."""
    return not parts.isdisjoint(_READS | {"readfile", "readfiles", "viewfile", "openfile", "getfile", "catfile"})


def _tell_change(path: str, act: FileAct, members: Mapping[str, Any]) -> FileEvent:
    """A write or an edit with its text; a change of unknown content if the call does not contain all of it."""
    text = _first_text(members, _TEXTS)
    if act is FileAct.WRITE:
        is_appended = members.get("mode") == "append" or members.get("append") is True
        return FileEvent(path, FileAct.WRITE, text) if text and not is_appended else FileEvent(path, FileAct.CHANGE)
    old, new = _first_text(members, _OLD), _first_text(members, _NEW)
    return FileEvent(path, FileAct.EDIT, new, old) if old else FileEvent(path, FileAct.CHANGE)


def _find_skill(members: Mapping[str, Any], result: str, wanted: Callable[[str], bool]) -> Iterator[FileEvent]:
    """The instruction file that a skill tool shows: by convention SKILL.md in the folder with the skill's name."""
    name = _first_text(members, ("skill", "name", "skillname"))
    path = f"{name}/SKILL.md"
    if name and len(name) <= PATH_CHARS and "\n" not in name and "\n" in result.strip() and wanted(path):
        yield FileEvent(path, FileAct.READ, result)


def _find_patched(arguments: Mapping[str, Any], wanted: Callable[[str], bool]) -> Iterator[FileEvent]:
    """Files in a patch in Codex's format. The text is known only for an added file."""
    for text in arguments.values():
        if not isinstance(text, str) or "*** Begin Patch" not in text:
            continue
        for found in _PATCHED.finditer(text):
            path = normalise_path(found[2])
            if wanted(path):
                added = _read_added(text, found.end() + 1) if found[1] == "Add" else ""
                yield FileEvent(path, FileAct.WRITE if added else FileAct.CHANGE, added)


def _read_added(patch: str, start: int) -> str:
    """The lines that a patch adds from index `start` on, up to the next file."""
    stop = patch.find("\n***", start - 1)
    lines = patch[start : stop if stop >= 0 else len(patch)].split("\n")
    return "\n".join(line.removeprefix("+") for line in lines)


def _is_partial(place: Mapping[str, Any], result: str) -> bool:
    """Whether a result may be only a part of a file: it starts later, or it has as many lines as were asked for."""
    starts = [place[name] for name in _STARTS if place.get(name) is not None]
    if any(not isinstance(start, int) or start > 1 for start in starts):
        return True
    limits = [place[name] for name in (*_LIMITS, *_ENDS) if place.get(name) is not None]
    return any(not isinstance(limit, int) or not (limit == -1 or holds_all(limit, result)) for limit in limits)


def _read_result(one: Answered) -> str:
    """The output of a call, without the JSON object that some agents wrap around it."""
    text = one.result.text if one.result is not None else ""
    value = decode(text) if text.startswith("{") and len(text) <= MAX_ARGUMENTS_CHARS else None
    if not isinstance(value, dict):
        return text
    inner = next((value[name] for name in ("output", "stdout", "content", "result") if name in value), None)
    return inner if isinstance(inner, str) else text


def _tells_failure(result: str) -> bool:
    """Whether a result is empty or says that the file could not be read."""
    return not result.strip() or (len(result) <= SHORT_CHARS and bool(_MISSING.search(result) or says_failure(result)))


def _first_text(members: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return next((members[name] for name in names if isinstance(members.get(name), str)), "")
