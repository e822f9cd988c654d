"""Follow what happened to files, as far as a transcript shows it.

Law: values only: events, and the state of a file after them. A file's text is known only if the transcript contains it.
If the text cannot be known for sure, the file counts as changed.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

PATH_CHARS = 4096
"""A longer text is not a path. Chosen: the value of PATH_MAX on Linux."""
EDITED_CHARS = 64 * 1024
"""Edits of a longer file are not followed; it counts as changed. Chosen: each edit searches and copies the text."""
MOST_EDITS = 256
"""Maximum number of edits of one file that are followed after its text was read or written. Chosen: bounds the work."""

MOST_STATES = 64
"""Maximum number of files followed at the same time. For a further one, the file that was read or written longest ago
is dropped. Chosen: twice MOST_FILES of instruction_files.py; bounds the memory."""

_TRAILING_LINES = re.compile(r"(?<=.)(?::\d[\d,:-]{0,40}|#L\d[\dL-]{0,40})\Z")


class FileAct(StrEnum):
    """The kind of thing that a call did to a file."""

    READ = "read"
    WRITE = "write"
    EDIT = "edit"
    """One piece of text was replaced by another."""
    CHANGE = "change"
    """A change that the transcript does not show."""


@dataclass(frozen=True, slots=True)
class FileEvent:
    """One thing that a call did to a file.

    `text` is what was read or written, or what replaced `old`; empty if it is unknown. `is_partial`: the file may have
    more text than `text`.
    """

    path: str
    act: FileAct
    text: str = ""
    old: str = ""
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class FileState:
    """A file's text as last known.

    `text` is empty if it is unknown. `is_changed`: the file was changed since. `edits` is the number of edits that were
    applied to the text.
    """

    path: str
    text: str = ""
    is_partial: bool = False
    is_changed: bool = False
    was_read: bool = False
    edits: int = 0

    def follow(self, event: FileEvent) -> "FileState":
        """Return the state after an event of the same file."""
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
    """Return each file's state after the events (oldest first), by path.

    The file that was read or written last is the last one.
    """
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
    """Return the last part of a path."""
    return path.rpartition("/")[2]
