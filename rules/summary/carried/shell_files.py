"""Find the files that a command line reads, writes or changes.

Law: linear, and not a full shell parser. An unclear command counts as a change, or as a read of unknown text.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from rules.summary.carried.file_events import PATH_CHARS, FileAct, FileEvent, normalise_path

COMMAND_CHARS = 64 * 1024
"""Characters read of a command line. Chosen: bounds the work."""

_HEREDOC = re.compile(r"<<-?[ \t]{0,4}(?P<quote>['\"]?)\\?(?P<end>\w{1,40})(?P=quote)")
_FED = "\0"
"""First character of the word that replaces a here-document."""
_SEPARATORS = re.compile(r"(&&|\|\||[;|\n])")
_WORDS = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|>{1,2}|[^\s\"'<>&()]+")
_READERS = frozenset({"cat", "bat", "batcat", "nl", "less", "more", "type", "get-content", "gc"})
_PARTS = frozenset({"head", "tail", "sed", "awk"})
_SILENT = frozenset({"cd", "set", "export", "source", "pushd", "true", "sleep", "mkdir", "touch", "test", "[", ":"})
_CHANGERS = frozenset({"tee", "mv", "cp", "rm", "patch", "dd", "truncate", "perl", "ed", "git", "python", "python3"})
_LINES = re.compile(r"(\d{1,9}),(\d{1,9})p\Z")


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
    printing = sum(map(_prints, lines))
    for words, separator in zip(lines, separators, strict=True):
        paths = list(dict.fromkeys(known[word] for word in words[1:] if word in known))
        for path in paths:
            target = _find_redirection(words)
            if target is not None and normalise_path(target[1]) == path:
                body = _find_body(words, bodies) if target[0] == ">" else ""
                yield FileEvent(path, FileAct.WRITE if body else FileAct.CHANGE, body)
            elif _changes(words):
                yield FileEvent(path, FileAct.CHANGE)
            elif _reads(words):
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


def _prints(words: Sequence[str]) -> bool:
    return bool(words) and _program(words) not in _SILENT and _find_redirection(words) is None


def _reads(words: Sequence[str]) -> bool:
    return _program(words) in _READERS or _program(words) in _PARTS


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
