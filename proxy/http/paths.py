"""Which paths of an upstream's origin a request may be for, if the operator's own key goes with it.

Law: a path is under a folder only if it stays there however a server reads it: with dot segments resolved, escapes
undone as often as there are any, backslashes taken for slashes, parameters and blanks left out. A path is judged, and
never rewritten.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from urllib.parse import unquote_to_bytes

MAX_ESCAPES = 4
"""Escapes within escapes; nobody needs more than two."""
_ODD = re.compile(r"[%\\;#?]|\.\.|/\.?/|/\.?$|[^!-~]")
"""What may make one path another; without it, a path is what it says."""
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SLASHES = re.compile(r"[/\\]")
_LEFT_OUT = re.compile(r"[\x00-\x20\x7f]|[;#?].*", re.DOTALL)
"""Blanks and control characters, a segment's parameters, and what ends a path.

Source: RFC 3986 section 3.3; WHATWG URL, section 4.4.
"""


def is_allowed(path: str, base_path: str, allowed_paths: Sequence[str]) -> bool:
    """Whether a path, without its query, is under `base_path`, or matches one of `allowed_paths`.

    Those are a path, or a folder: `/PATH/*`.
    """
    folders = (base_path, *(allowed.removesuffix("/*") for allowed in allowed_paths if allowed.endswith("/*")))
    return path in allowed_paths or any(_is_under(path, folder) for folder in folders)


def _is_under(path: str, folder: str) -> bool:
    """Whether a path is a folder, or below it."""
    if path != folder and not path.startswith(f"{folder}/"):
        return False
    below = path[len(folder) :]
    return _ODD.search(below) is None or _stays(below)


def _stays(below: str) -> bool:
    """Whether no reading of a path leaves the folder that it begins in.

    A segment leads down by one at most, however many slashes are hidden in it; it leads up as often as any reading
    has it.
    """
    depth = 0
    for segment in below.split("/"):
        readings = list(_read(segment))
        if not readings:
            return False
        ups = max(sum(part == ".." for part in reading) for reading in readings)
        is_nothing = any(all(part in {"", "."} for part in reading) for reading in readings)
        depth += -ups if ups else 0 if is_nothing else 1
        if depth < 0:
            return False
    return True


def _read(segment: str) -> Iterator[list[str]]:
    """The parts of a segment as servers may read it; nothing if it cannot be read, or only after too many escapes."""
    readings: list[list[str]] = []
    for _ in range(MAX_ESCAPES):
        plain = unicodedata.normalize("NFKC", segment)  # some servers take a full-width dot for a dot
        if "\x00" in plain:  # some end there
            return
        readings.append([_LEFT_OUT.sub("", part) for part in _SLASHES.split(plain)])
        if "%" not in segment:
            yield from readings
            return
        if _BROKEN_ESCAPE.search(segment):
            return
        try:
            segment = unquote_to_bytes(segment).decode()
        except UnicodeError:  # a dot or a slash in more bytes than it takes, say
            return
