"""Keeps questions in a file that the user has named, so that later runs need not make them again.

Law: the file holds text of the session, so only its owner may read it (mode 0600). It is written whole or not at all.
A file of another kind is never overwritten.
"""

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec

from proxy.cli.evaluate.exam import PROMPT_VERSION, ExamQuestion
from proxy.wire.json.decode import DECODE_ERRORS

KIND = "trimtab evaluate: questions"


class CacheError(Exception):
    """The file cannot be used. The message says what to do."""


class _File(msgspec.Struct):
    kind: str
    sets: dict[str, list[ExamQuestion]] = {}


def name_set(session_sha256: str, model: str, questions: int) -> str:
    """The name of a set of questions; it differs if the session, the model, the number or the prompt differs."""
    told = "\0".join((PROMPT_VERSION, session_sha256, model, str(questions)))
    return sha256(told.encode("utf-8", "replace")).hexdigest()


def read_questions(path: Path, name: str) -> list[ExamQuestion]:
    """The questions of a set; empty if there is no such file or set. Raises CacheError."""
    return _read(path).sets.get(name, [])


def keep_questions(path: Path, name: str, questions: Sequence[ExamQuestion]) -> None:
    """Write a set to the file. The file's other sets stay. Raises CacheError."""
    kept = _read(path)
    kept.sets[name] = list(questions)
    try:
        # mkstemp creates a file that only its owner can read.
        number, written = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(number, "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(kept)))
            Path(written).replace(path)
        except OSError:
            with suppress(OSError):
                Path(written).unlink()
            raise
    except OSError as error:
        message = f"{path}: cannot be written ({error.strerror}); name another file with --cache"
        raise CacheError(message) from error


def _read(path: Path) -> _File:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_File)
    except FileNotFoundError:
        return _File(KIND)
    except OSError as error:
        message = f"{path}: cannot be read ({error.strerror}); name another file with --cache"
        raise CacheError(message) from error
    except DECODE_ERRORS:
        found = _File("")
    if found.kind != KIND:
        message = f"{path}: not a file of questions, so it is left unchanged; name another file with --cache"
        raise CacheError(message)
    return found
