"""Find the files that a call or a command line reads, writes or changes, and follow what happened to them.

Laws: a function of the tool's name, its arguments and its result. A failed read does not count. A tool whose name does
not say that it reads counts as reading nothing. A command line is read in linear time, and not by a full shell parser:
an unclear command counts as a change, or as a read of unknown text. A file's text is known only if the transcript
contains it; if it cannot be known for sure, the file counts as changed.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice, pairwise
from typing import Any

import msgspec
from msgspec.structs import replace

from trimtab.rules.conversation import ToolCall
from trimtab.rules.results.calls import MAX_ARGUMENTS_CHARS, decode, says_failure
from trimtab.rules.summary.calls import Answered, read_arguments, read_command, read_members, split_name
from trimtab.rules.text.late import compile_late
from trimtab.rules.text.markers import START, tells_omission

PATH_CHARS = 4096  # A longer text is not a path. Chosen: the value of PATH_MAX on Linux.
EDITED_CHARS = 64 * 1024  # Edits of a longer file are not followed. Chosen: each edit searches and copies the text.
MOST_EDITS = 256  # Of one file that are followed after its text was read or written. Chosen: bounds the work.

MOST_STATES = 64
"""Maximum number of files followed at the same time. For a further one, the file that was read or written longest ago
is dropped. Chosen: twice MOST_FILES of instruction_files.py; bounds the memory."""

_TRAILING_LINES = compile_late(r"(?<=.)(?::\d[\d,:-]{0,40}|#L\d[\dL-]{0,40})\Z")


class FileAct(StrEnum):
    READ = "read"
    WRITE = "write"
    EDIT = "edit"  # One piece of text was replaced by another
    CHANGE = "change"  # A change that the transcript does not show


class FileEvent(msgspec.Struct, frozen=True):
    """What a call did to a file. `text`: read, or written for `old`; empty if unknown. is_partial: not all of it."""

    path: str
    act: FileAct
    text: str = ""
    old: str = ""
    is_partial: bool = False


class FileState(msgspec.Struct, frozen=True):
    """A file's text as last known, or empty. is_changed: since then. edits: how many were applied to the text."""

    path: str
    text: str = ""
    is_partial: bool = False
    is_changed: bool = False
    was_read: bool = False
    edits: int = 0

    def follow(self, event: FileEvent) -> "FileState":
        if event.act is FileAct.READ:
            return self._read(event)
        if event.act is FileAct.WRITE:
            return replace(self, text=event.text, is_partial=False, is_changed=not event.text, edits=0)
        text = self._edit(event)
        return replace(self, is_changed=True) if text is None else replace(self, text=text, edits=self.edits + 1)

    def _read(self, event: FileEvent) -> "FileState":
        # If the whole text is known and unchanged, a partial read adds nothing.
        knows_more = self.text and not self.is_changed and not self.is_partial
        if not event.text or (event.is_partial and knows_more):
            return replace(self, was_read=True)
        return replace(self, text=event.text, is_partial=event.is_partial, is_changed=False, was_read=True, edits=0)

    def _edit(self, event: FileEvent) -> str | None:
        """The text after an edit; None if the result is uncertain, as `old` does not occur exactly once."""
        is_known = event.act is FileAct.EDIT and event.old and self.text and not self.is_changed
        if not is_known or self.edits >= MOST_EDITS or len(self.text) + len(event.text) > EDITED_CHARS:
            return None
        before, found, after = self.text.partition(event.old)
        return before + event.text + after if found and event.old not in after else None


def follow_events(events: Iterable[FileEvent]) -> dict[str, FileState]:
    """Each file's state after the events (oldest first), by path; the file that was touched last is the last one."""
    states: dict[str, FileState] = {}
    for event in events:
        if event.act in {FileAct.READ, FileAct.WRITE}:
            state = states.pop(event.path, FileState(event.path))
            states[event.path] = state.follow(event)
            if len(states) > MOST_STATES:
                del states[next(iter(states))]
            continue
        for path, state in states.items():
            if not state.is_changed and is_same_path(path, event.path):
                states[path] = state.follow(event)
    return states


def is_same_path(one: str, other: str) -> bool:
    """Whether two paths may name the same file: they are equal, or one ends with the other."""
    return one == other or one.endswith("/" + other) or other.endswith("/" + one)


def normalise_path(path: str) -> str:
    """Return a path with slashes only, without quotes, `file://`, a leading `./`, and line numbers after it."""
    path = _TRAILING_LINES.sub("", path.strip().strip("\"'`").replace("\\", "/"))
    return path.removeprefix("file://").removeprefix("./")


def take_name(path: str) -> str:
    return path.rpartition("/")[2]


COMMAND_CHARS = 64 * 1024  # Characters read of a command line. Chosen: bounds the work.

_HEREDOC = compile_late(r"<<-?[ \t]{0,4}(?P<quote>['\"]?)\\?(?P<end>\w{1,40})(?P=quote)")
_FED = "\0"  # First character of the word that replaces a here-document
_SEPARATORS = compile_late(r"(&&|\|\||[;|\n])")
_WORDS = compile_late(r"\"[^\"\n]*\"|'[^'\n]*'|>{1,2}|[^\s\"'<>&()]+")
_READERS = frozenset({"cat", "bat", "batcat", "nl", "less", "more", "type", "get-content", "gc"})
_PART_READERS = frozenset({"head", "tail", "sed", "awk"})
_SILENT = frozenset({"cd", "set", "export", "source", "pushd", "true", "sleep", "mkdir", "touch", "test", "[", ":"})
_CHANGERS = frozenset({"tee", "mv", "cp", "rm", "patch", "dd", "truncate", "perl", "ed", "git", "python", "python3"})
_LINES = compile_late(r"(\d{1,9}),(\d{1,9})p\Z")


def find_shell_events(command: str, result: str, wanted: Callable[[str], bool]) -> Iterator[FileEvent]:
    """Yield what a command line does to the wanted files, in order; `result` is its output."""
    command, bodies = _take_heredocs(command[:COMMAND_CHARS])
    pieces = _SEPARATORS.split(command)
    lines = [_WORDS.findall(piece) for piece in pieces[::2]]
    separators = [*pieces[1::2], ""]
    known = {word: normalise_path(word) for words in lines for word in words[1:] if len(word) <= PATH_CHARS}
    known = {word: path for word, path in known.items() if wanted(path)}
    if not known:
        return
    printing = sum(
        bool(words) and _program(words) not in _SILENT and _find_redirection(words) is None for words in lines
    )
    for words, separator in zip(lines, separators, strict=True):
        paths = list(dict.fromkeys(known[word] for word in words[1:] if word in known))
        for path in paths:
            target = _find_redirection(words)
            if target is not None and normalise_path(target[1]) == path:
                body = _find_body(words, bodies) if target[0] == ">" else ""
                yield FileEvent(path, FileAct.WRITE if body else FileAct.CHANGE, body)
            elif _changes(words):
                yield FileEvent(path, FileAct.CHANGE)
            elif _program(words) in _READERS or _program(words) in _PART_READERS:
                is_alone = printing == len(paths) == 1
                is_part = separator == "|" or not _is_whole(words, result)
                yield FileEvent(path, FileAct.READ, result if is_alone else "", is_partial=is_part)


def holds_all(most_lines: int, result: str) -> bool:
    """Whether a result is the whole file if at most `most_lines` lines from its beginning were asked for."""
    return result.count("\n") + 1 < most_lines


def _take_heredocs(command: str) -> tuple[str, list[str]]:
    """The command with one word in place of each here-document, and the texts of these."""
    command = command.replace(_FED, "")
    kept: list[str] = []
    bodies: list[str] = []
    at = 0
    while found := _HEREDOC.search(command, at):
        start = command.find("\n", found.end())
        if start < 0:
            break
        kept.append(f"{command[at : found.start()]} {_FED}{len(bodies)} {command[found.end() : start + 1]}")
        stop = command.find(f"\n{found['end']}", start)
        bodies.append(command[start + 1 : stop if stop >= 0 else len(command)])
        at = stop + 1 + len(found["end"]) if stop >= 0 else len(command)
    return "".join((*kept, command[at:])), bodies


def _find_body(words: Sequence[str], bodies: Sequence[str]) -> str:
    """The here-document that a command writes; only `cat` is known to write it unchanged."""
    fed = next((word for word in words if word.startswith(_FED)), "")
    return bodies[int(fed[1:])] if fed and _program(words) == "cat" else ""


def _program(words: Sequence[str]) -> str:
    return words[0].rpartition("/")[2].lower() if words else ""


def _changes(words: Sequence[str]) -> bool:
    program = _program(words)
    return program in _CHANGERS or (program == "sed" and any(word.startswith(("-i", "--in-place")) for word in words))


def _find_redirection(words: Sequence[str]) -> tuple[str, str] | None:
    """The sign (`>` or `>>`) and the file to which a program's output goes; None if it is not redirected."""
    for sign, target in pairwise(words):
        if sign in {">", ">>"} and not target.startswith(("/dev/", "&")):
            return sign, target
    return None


def _is_whole(words: Sequence[str], result: str) -> bool:
    """Whether a program shows a whole file. If first lines were asked for, fewer must have come than were asked for."""
    if _program(words) in _READERS:
        return True
    ranges = [found for word in words[1:] if (found := _LINES.search(word.strip("\"'")))]
    if _program(words) == "sed":
        return len(ranges) == 1 and int(ranges[0][1]) <= 1 and holds_all(int(ranges[0][2]), result)
    numbers = [word.lstrip("-n=") for word in words[1:] if word.lstrip("-n=").isdecimal()]
    asked = int(numbers[0][:9]) if numbers else 10
    return _program(words) == "head" and holds_all(asked, result)


SHORT_CHARS = 600  # A longer result is a file's text, whatever words it has. Chosen: errors are short.
MOST_PATHS = 32  # Maximum number of paths that are read from one argument. Chosen: bounds the work.
EDGE_CHARS = 300
"""Characters at a result's end in which a tool may say that there is more. Chosen: further up, such words
may be the file's own."""

_READS = frozenset({"read", "view", "cat", "open", "show", "load", "get"})
_READS_FILES = frozenset({"readfile", "readfiles", "viewfile", "openfile", "getfile", "catfile"})
_WRITES = frozenset({"write", "create", "save"})
_CHANGES = frozenset(
    {"edit", "replace", "patch", "insert", "update", "modify", "apply", "append", "delete", "remove", "move", "rename",
     "undo", "multiedit", "editor"}
)  # fmt: skip
_SEARCHES = frozenset({"search", "grep", "glob", "find", "list", "ls", "tree"})
_TEXTS = ("content", "contents", "filetext", "text", "newcontent", "code")
_OLD = ("oldstring", "oldstr", "oldtext", "old", "search", "find")
_NEW = ("newstring", "newstr", "newtext", "new", "replace", "replacement")
_STARTS = ("offset", "startline", "lineoffset", "start", "linestart", "from", "viewrange", "ranges", "lineranges")
_LIMITS = ("limit", "nlines", "maxlines", "numlines", "length")
_ENDS = ("endline", "lineend", "end", "to")
_MISSING = compile_late(
    r"no such file|not found|does(?: not|n't) exist|c(?:annot|ould not) (?:find|open|read)|enoent|eacces"
    r"|permission denied|is a directory",
    re.IGNORECASE,
)
_MORE = compile_late(
    r"truncated|more lines|lines? omitted|use (?:the )?[`'\"]?offset|showing lines|file has more"
    r"|output too (?:long|large)",
    re.IGNORECASE,
)
_PATCHED = compile_late(r"^\*\*\* (Update|Add|Delete) File: (.{1,400})$", re.MULTILINE)


def find_file_events(one: Answered, wanted: Callable[[str], bool]) -> Iterator[FileEvent]:
    """Yield what a call does to the wanted files, in order. `wanted` is asked with normalised paths."""
    if one.has_failed:
        return
    arguments = read_arguments(one.call)
    result = _read_result(one)
    says_missing = len(result) <= SHORT_CHARS and (_MISSING.search(result) or says_failure(result))
    has_read = bool(result.strip()) and not says_missing
    for event in _find_events(one.call.name, arguments, result, wanted):
        if event.act is not FileAct.READ:
            yield event
        elif has_read and not result.startswith(START):  # a result that is one of our placeholders shows no text
            is_partial = event.is_partial or tells_omission(event.text) or bool(_MORE.search(event.text[-EDGE_CHARS:]))
            yield FileEvent(event.path, event.act, event.text, is_partial=is_partial)
        elif has_read:
            yield FileEvent(event.path, event.act)


def find_written(call: ToolCall) -> frozenset[str]:
    """The files that a call writes or changes with texts in its arguments; a command line only with here-documents."""
    arguments = read_arguments(call)
    members = read_members(arguments)
    command = read_command(members)
    found = [*_find_patched({**arguments, "command line": command}, _any)]
    if not _find_places(members):
        shell = find_shell_events(command, "", _any) if command else ()
        found += [event for event in shell if event.act is FileAct.WRITE]
    else:
        found += [event for event in _find_events(call.name, arguments, "", _any) if event.act is not FileAct.READ]
    return frozenset(event.path for event in found)


def _any(_: str) -> bool:
    return True


def _find_events(
    name: str, arguments: Mapping[str, Any], result: str, wanted: Callable[[str], bool]
) -> Iterator[FileEvent]:
    yield from _find_patched(arguments, wanted)
    parts = split_name(name)
    members = read_members(arguments)
    places = _find_places(members)
    if not places:
        command = read_command(members)
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
                inner = read_members(dict(islice(each.items(), MOST_PATHS)))
                paths = (inner[name] for name in inner if "path" in name or "file" in name)
                places.extend((normalise_path(path[:PATH_CHARS]), inner) for path in paths if isinstance(path, str))
    return places


def _tell_act(parts: Sequence[str], members: Mapping[str, Any]) -> FileAct | None:
    """The kind of thing that a tool does to the files that it names; None if that is not clear."""
    command = members.get("command")
    said = set(split_name(command[:64]) if isinstance(command, str) else parts)
    if not said.isdisjoint(_SEARCHES) and said.isdisjoint(_READS | _WRITES | {"replace"}):
        return None
    if not said.isdisjoint(_CHANGES) or _first_text(members, _OLD):
        return FileAct.EDIT
    if not said.isdisjoint(_WRITES):
        return FileAct.WRITE
    return None if said.isdisjoint(_READS | _READS_FILES) else FileAct.READ


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


def _first_text(members: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return next((members[name] for name in names if isinstance(members.get(name), str)), "")
