"""To which paths of an upstream the operator's own key may be sent.

Law: a path is under a folder only if it stays there in every way that a server may read it: with dot segments resolved,
with escapes undone once or repeatedly, with backslashes as slashes, with parameters and blanks dropped. A path is only
checked, never rewritten.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from urllib.parse import unquote_to_bytes

MAX_ESCAPES = 4
"""Readings of a segment, each with one more level of escapes undone. Chosen: real paths have two levels at most."""
_ODD = re.compile(r"[%\\;#?]|\.\.|/\.?/|/\.?$|[^!-~]")
"""Characters that servers may read in several ways. A path without them has only one reading."""
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SLASHES = re.compile(r"[/\\]")
_LEFT_OUT = re.compile(r"[\x00-\x20\x7f]|[;#?].*", re.DOTALL)
"""What servers may drop from a segment: blanks, control characters, parameters, and everything after `#` or `?`.

Source: RFC 3986 section 3.3; WHATWG URL, section 4.4.
"""


def is_allowed(path: str, base_path: str, allowed_paths: Sequence[str]) -> bool:
    """Whether a path, given without its query, is under `base_path` or matches one of `allowed_paths`.

    Each allowed path is a path, or a folder in the form `/PATH/*`.
    """
    folders = (base_path, *(allowed.removesuffix("/*") for allowed in allowed_paths if allowed.endswith("/*")))
    return path in allowed_paths or any(_is_under(path, folder) for folder in folders)


def _is_under(path: str, folder: str) -> bool:
    """Whether a path is the folder itself or below it."""
    if path != folder and not path.startswith(f"{folder}/"):
        return False
    below = path[len(folder) :]
    return _ODD.search(below) is None or _stays(below)


def _stays(below: str) -> bool:
    """Whether no reading of a path leaves the folder in which it begins.

    The depth is a lower bound for all readings: a segment counts as one level down at most, however many slashes it
    hides, and as many levels up as its worst reading has.
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
    """Each way to read a segment, as its parts between slashes.

    Yields nothing if the segment is malformed or has more than MAX_ESCAPES levels of escapes.
    """
    readings: list[list[str]] = []
    for _ in range(MAX_ESCAPES):
        plain = unicodedata.normalize("NFKC", segment)  # some servers read a full-width dot as a dot
        if "\x00" in plain:  # some servers end the path at NUL
            return
        readings.append([_LEFT_OUT.sub("", part) for part in _SLASHES.split(plain)])
        if "%" not in segment:
            yield from readings
            return
        if _BROKEN_ESCAPE.search(segment):
            return
        try:
            segment = unquote_to_bytes(segment).decode()
        except UnicodeError:  # for example an overlong encoding of a dot or a slash
            return
