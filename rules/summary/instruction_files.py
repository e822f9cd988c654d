"""Carry instruction files over a cut: files that were read in messages that are removed.

Law: the text is what a tool showed, or what was written since. A file is carried whole, or only as its path. Files that
the tail shows are not carried. If a file was changed in a way that the transcript does not show, the text says so.
"""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

import msgspec

from trimtab.rules.conversation import CountTokens, Message
from trimtab.rules.summary.calls import newest_steps
from trimtab.rules.summary.files import (
    PATH_CHARS,
    FileAct,
    FileEvent,
    FileState,
    find_file_events,
    follow_events,
    is_same_path,
    take_name,
)
from trimtab.rules.summary.quoting import break_markers, fit, frame, quote_line
from trimtab.rules.text.late import compile_late
from trimtab.rules.text.markers import FILE_SUFFIX

MOST_FILES = 32  # Maximum number of files carried, those that were read last. Chosen.
CHARS_PER_TOKEN = 8
"""A text with more than this many characters for each token of the budget is left out, and its tokens are not counted.
Chosen: a text with so few tokens is rare, and counting takes time."""
SHOWN_PATH_CHARS = 300  # Maximum number of characters shown of a path. Chosen.
_SIGNS = compile_late(r"[*?\[\]/]+")


class InstructionFile(msgspec.Struct, frozen=True):
    """A file that was read. text: empty if unknown. is_partial: not all of it. is_changed: since it was read."""

    path: str
    text: str
    is_partial: bool = False
    is_changed: bool = False


def find_instruction_files(
    removed: Sequence[Message], tail: Sequence[Message], globs: Sequence[str]
) -> tuple[InstructionFile, ...]:
    """Find the files that match a glob and were read in `removed`, except those that `tail` shows.

    The file that was read last is first. A glob with a slash is matched against the whole path, any other against the
    file's name.
    """
    wanted = _Wanted(tuple(globs))
    shown = list(wanted.find(tail))
    states = follow_events(wanted.find(removed))
    found = [state for state in reversed(states.values()) if state.was_read and not _is_shown(state, shown)]
    files: dict[str, InstructionFile] = {}
    for state in found[:MOST_FILES]:
        is_changed = state.is_changed or any(_changes(event, state) for event in shown)
        # The same file may have been read under two paths, so files with equal texts count as one.
        files.setdefault(state.text or f"\0{state.path}", _take(state, is_changed=is_changed))
    return tuple(files.values())


def write_instruction_files(files: Sequence[InstructionFile], *, max_tokens: int, count: CountTokens) -> str:
    """Write the files as a quotation of at most `max_tokens`.

    Files are written whole, in order, as long as they fit; for each other file a line says to read it again. Empty if
    there are no files, or if not even one such line fits.
    """
    return fit(lambda room: _write(files, room, count), max_tokens=max_tokens, count=count) if files else ""


class _Wanted(msgspec.Struct, frozen=True):
    """A predicate: whether a path matches one of the globs. `find` uses it to read a transcript."""

    globs: tuple[str, ...]

    def __call__(self, path: str) -> bool:
        path = path[-PATH_CHARS:]
        name = take_name(path)
        return any(fnmatchcase(path if "/" in glob else name, glob) for glob in self.globs)

    def find(self, messages: Sequence[Message]) -> Iterator[FileEvent]:
        """Yield what happened to the wanted files, the oldest event first."""
        # The longest literal part of each glob: a cheap filter for calls.
        hints = tuple(max(_SIGNS.split(glob), key=len) for glob in self.globs)
        if not hints:
            return iter(())
        reads_skills = any(fnmatchcase("SKILL.md", glob) for glob in self.globs)
        events: list[FileEvent] = []
        for step in newest_steps(messages):
            for one in reversed(step.calls):
                may_read_skill = reads_skills and "skill" in one.call.name[:PATH_CHARS].lower()
                if may_read_skill or any(hint in one.call.arguments for hint in hints):
                    events += reversed(list(find_file_events(one, self)))
        return reversed(events)


def _take(state: FileState, *, is_changed: bool) -> InstructionFile:
    return InstructionFile(state.path, state.text, state.is_partial, is_changed)


def _is_shown(state: FileState, shown: Sequence[FileEvent]) -> bool:
    """Whether the tail shows the whole file, or the same text that is known of it."""
    acts = {FileAct.READ, FileAct.WRITE}
    return any(
        event.act in acts
        and event.text
        and (event.text == state.text or (event.path == state.path and not event.is_partial))
        for event in shown
    )


def _changes(event: FileEvent, state: FileState) -> bool:
    return event.act in {FileAct.EDIT, FileAct.CHANGE} and is_same_path(event.path, state.path)


def _write(files: Sequence[InstructionFile], room: int, count: CountTokens) -> str:
    """First a pointer for each file, as far as they fit; then texts replace pointers, as far as they fit."""
    room -= count(frame(""))
    pieces: dict[int, str] = {}
    for index, file in enumerate(files):
        pointer = f"read it again: {_name(file)}\n"
        cost = count(pointer)
        if cost <= room:
            pieces[index] = pointer
            room -= cost
    for index, pointer in list(pieces.items()):
        file = files[index]
        if not file.text or len(file.text) > CHARS_PER_TOKEN * room:
            continue
        # A file's text must not imitate our heading of another file or of the task list.
        text = f"## {_name(file)}, {FILE_SUFFIX}\n{break_markers(file.text.rstrip())}\n"
        cost = count(text) - count(pointer)
        if cost <= room:
            pieces[index] = text
            room -= cost
    return frame("".join(pieces.values())) if pieces else ""


def _name(file: InstructionFile) -> str:
    notes = [note for note, holds in (("incomplete", file.is_partial), ("changed since", file.is_changed)) if holds]
    return quote_line(file.path, SHOWN_PATH_CHARS) + (f" ({', '.join(notes)})" if notes else "")
