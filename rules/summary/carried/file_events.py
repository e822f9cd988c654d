"""What happened to a file, as far as a transcript tells.

Law: values, and the state of a file after them. A text is known only if the transcript holds it; what cannot be known
for sure is called changed.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

PATH_CHARS = 4096
"""A longer text is no path."""
EDITED_CHARS = 64 * 1024
"""A longer file's edits are not followed."""
MOST_EDITS = 256
"""Of one file that are followed."""

MOST_STATES = 64
"""Files that are followed at once: the one that was read or written first is forgotten for a further one."""

_TRAILING_LINES = re.compile(r"(?<=.)(?::\d[\d,:-]{0,40}|#L\d[\dL-]{0,40})\Z")


class FileAct(StrEnum):
    """What a call did to a file."""

    READ = "read"
    WRITE = "write"
    EDIT = "edit"
    """One piece of text gave way to another."""
    CHANGE = "change"
    """In a way that the transcript does not tell."""


@dataclass(frozen=True, slots=True)
class FileEvent:
    """`text` is what was read or written, or what was put in the place of `old`; empty if nobody can tell.

    `is_partial` is set if more stands in the file than in `text`.
    """

    path: str
    act: FileAct
    text: str = ""
    old: str = ""
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class FileState:
    """A file's text as it was last known; `is_changed` if it was changed since."""

    path: str
    text: str = ""
    is_partial: bool = False
    is_changed: bool = False
    was_read: bool = False
    edits: int = 0

    def follow(self, event: FileEvent) -> "FileState":
        """The state after an event of the same file."""
        if event.act is FileAct.READ:
            return self._read(event)
        if event.act is FileAct.WRITE:
            return replace(self, text=event.text, is_partial=False, is_changed=not event.text, edits=0)
        text = self._edit(event)
        return replace(self, is_changed=True) if text is None else replace(self, text=text, edits=self.edits + 1)

    def _read(self, event: FileEvent) -> "FileState":
        """A part tells less than what is known of the whole, unless that has changed."""
        knows_more = self.text and not self.is_changed and not self.is_partial
        if not event.text or (event.is_partial and knows_more):
            return replace(self, was_read=True)
        return replace(self, text=event.text, is_partial=event.is_partial, is_changed=False, was_read=True, edits=0)

    def _edit(self, event: FileEvent) -> str | None:
        """The text with one piece replaced; None if it does not stand there exactly once."""
        is_known = event.act is FileAct.EDIT and event.old and self.text and not self.is_changed
        if not is_known or self.edits >= MOST_EDITS or len(self.text) + len(event.text) > EDITED_CHARS:
            return None
        before, found, after = self.text.partition(event.old)
        return before + event.text + after if found and event.old not in after else None


def follow_events(events: Iterable[FileEvent]) -> dict[str, FileState]:
    """Each file's state after events, the oldest first, in the order in which they were last read or written."""
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
    """Whether two paths may name one file: they are equal, or one of them goes on before the other."""
    return one == other or one.endswith("/" + other) or other.endswith("/" + one)


def normalise_path(path: str) -> str:
    """A path with slashes, without `./` and quotes around it and without the lines that may be named behind it."""
    path = _TRAILING_LINES.sub("", path.strip().strip("\"'`").replace("\\", "/"))
    return path.removeprefix("file://").removeprefix("./")


def take_name(path: str) -> str:
    """The file's own name."""
    return path.rpartition("/")[2]
