"""What values look like: names and types, without what varies from run to run."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

KINDS = {dict: "object", list: "array", tuple: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
WORDS = frozenset(
    {"cache_miss", "compaction", "endpoint", "error", "event", "fate", "instead", "kind", "level", "mode", "outcome"}
    | {"result", "retry", "rule"}
    | {"type", "name", "form", "summary_kind", "summary_instead", "digest_instead", "dialect"}
)
"""Members whose values are words that others may compare with: the words are shown, too."""
_ID = re.compile(r"\b[0-9a-f]{12,}\b")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def describe(values: Iterable[Any]) -> str:
    """The members of all of these values, a line each; `?` after a name: not each of the values has it."""
    return "\n".join(_walk("", list(values), is_optional=False))


def list_members(values: Sequence[Mapping[str, Any]]) -> str:
    """The names of the members of these values in one line."""
    names = sorted({name for each in values for name in each})
    return ", ".join(name if all(name in each for each in values) else f"{name}?" for name in names)


def _walk(path: str, values: Sequence[Any], *, is_optional: bool) -> Iterator[str]:
    found = {_name(path, value) for value in values}
    lists: list[Any] = [one for value in values if isinstance(value, list | tuple) for one in value]
    objects: list[Mapping[str, Any]] = [value for value in values if isinstance(value, dict)]
    is_plain = (found == {"array"} and lists) or (found == {"object"} and any(objects))
    if path and (is_optional or not is_plain):  # else the lines below say it
        yield f"{path}{'?' if is_optional else ''}: {' | '.join(sorted(found))}".rstrip()
    if lists:
        yield from _walk(f"{path}[]", lists, is_optional=False)
    for name in sorted({name for each in objects for name in each}):
        having = [each[name] for each in objects if name in each]
        yield from _walk(f"{path}.{name}" if path else name, having, is_optional=len(having) < len(objects))


def _name(path: str, value: object) -> str:
    if isinstance(value, str) and (path in WORDS or path.rpartition(".")[2] in WORDS):
        return f'"{value}"'
    return "null" if value is None else KINDS[type(value)]


def blur(text: str) -> str:
    """A text without the numbers and ids in it."""
    return _NUMBER.sub("N", _ID.sub("ID", text))
