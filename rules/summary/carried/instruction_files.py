"""Instruction files that were read among messages that are removed.

Law: the text is what a tool showed, or what was written since; it stands whole, or the path alone stands. Nothing is
carried that the tail shows. A file that was changed in ways that the transcript does not tell is said to be.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rules.conversation import CountTokens, Message
from rules.summary.carried.answered import newest_steps
from rules.summary.carried.file_calls import find_file_events
from rules.summary.carried.file_events import (
    PATH_CHARS,
    FileAct,
    FileEvent,
    FileState,
    follow_events,
    is_same_path,
    take_name,
)
from rules.summary.carried.quotation import fit, frame
from rules.summary.quoting import break_markers, quote_line
from rules.text.markers import FILE_SUFFIX

MOST_FILES = 32
"""The newest are carried."""
CHARS_PER_TOKEN = 8
"""A text of more characters than that for each token of the budget is too long without being counted."""
SHOWN_PATH_CHARS = 300
_SIGNS = re.compile(r"[*?\[\]/]+")


@dataclass(frozen=True, slots=True)
class InstructionFile:
    """A file that was read. `text` is empty if nobody can tell what stands in it; else it may be a part of it."""

    path: str
    text: str
    is_partial: bool = False
    is_changed: bool = False


def find_instruction_files(
    removed: Sequence[Message], tail: Sequence[Message], globs: Sequence[str]
) -> tuple[InstructionFile, ...]:
    """The files that match a glob and were read in `removed`, the last one read first; without those that `tail` shows.

    A glob is matched on the file's name, or on the whole path if it has a slash.
    """
    wanted = _Wanted(tuple(globs))
    shown = list(wanted.find(tail))
    states = follow_events(wanted.find(removed))
    found = [state for state in reversed(states.values()) if state.was_read and not _is_shown(state, shown)]
    files: dict[str, InstructionFile] = {}
    for state in found[:MOST_FILES]:
        is_changed = state.is_changed or any(_changes(event, state) for event in shown)
        # One file may be read under two paths.
        files.setdefault(state.text or f"\0{state.path}", _take(state, is_changed=is_changed))
    return tuple(files.values())


def write_instruction_files(files: Sequence[InstructionFile], *, max_tokens: int, count: CountTokens) -> str:
    """The files as a quotation of at most `max_tokens`: as many as fit word for word, of the others a pointer.

    The first come first. Empty if there are no files, or if not even a pointer fits.
    """
    return fit(lambda room: _write(files, room, count), max_tokens=max_tokens, count=count) if files else ""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Whether a path is wanted, and what happened to the wanted files."""

    globs: tuple[str, ...]

    def __call__(self, path: str) -> bool:
        path = path[-PATH_CHARS:]
        name = take_name(path)
        return any(fnmatchcase(path if "/" in glob else name, glob) for glob in self.globs)

    def find(self, messages: Sequence[Message]) -> Iterator[FileEvent]:
        """What happened to the wanted files, the oldest first."""
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
    """Whether the tail shows all of a file, or as much as is known of it."""
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
    """Pointers to all files that fit, and then texts in the place of pointers."""
    room -= count(frame(""))
    pieces: dict[int, str] = {}
    for index, file in enumerate(files):
        pointer = _point(file)
        cost = count(pointer)
        if cost <= room:
            pieces[index] = pointer
            room -= cost
    for index, pointer in list(pieces.items()):
        file = files[index]
        if not file.text or len(file.text) > CHARS_PER_TOKEN * room:
            continue
        # A file must not tell of another one, nor of a task list, in our own words.
        text = f"## {_name(file)}, {FILE_SUFFIX}\n{break_markers(file.text.rstrip())}\n"
        cost = count(text) - count(pointer)
        if cost <= room:
            pieces[index] = text
            room -= cost
    return frame("".join(pieces.values())) if pieces else ""


def _point(file: InstructionFile) -> str:
    return f"read it again: {_name(file)}\n"


def _name(file: InstructionFile) -> str:
    notes = [note for note, holds in (("incomplete", file.is_partial), ("changed since", file.is_changed)) if holds]
    return quote_line(file.path, SHOWN_PATH_CHARS) + (f" ({', '.join(notes)})" if notes else "")
