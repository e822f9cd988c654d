"""The problems of a configuration's values, as sentences. pydantic finds them, and the models say what is allowed.

Law: a message never repeats a value that may contain a secret, and never quotes pydantic.
"""

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from trimtab.proxy.config.document import SECRET_KEYS, SHOWN_CHARS, Path, Problem, is_within
from trimtab.proxy.config.words import LACKING, Slot, list_keys

M = TypeVar("M", bound=BaseModel)

MAX_ROUNDS = 8
"""Chosen: enough for every nested section. Each round removes the wrong values and validates again, because pydantic
checks a whole section only if all of its values are right."""
STAND_IN = "*"
"""Replaces a required text that is wrong."""
_LEFT_OVER = frozenset({"too_short", LACKING})
"""Problems that a value may have only because wrong parts of it were taken out."""
_WRONG_KEY = "[key]"
"""pydantic writes this after the name of a mapping's key if the key itself is wrong."""


@dataclass(frozen=True, slots=True)
class Validated(Generic[M]):
    """A model of the data, and the problems of the data.

    If there are problems, the model is that of the remaining data: a value at one of the paths `wrong` has its default,
    or a stand-in if it is in a list. None if nothing valid remains.
    """

    model: M | None
    problems: list[Problem]
    wrong: set[Path]


def validate(data: Any, model: type[M]) -> Validated[M]:
    problems: dict[Problem, None] = {}
    wrong: set[Path] = set()
    for _ in range(MAX_ROUNDS):
        try:
            return Validated(model.model_validate(data), list(problems), wrong)
        except ValidationError as error:
            data, before = copy.deepcopy(data), frozenset(wrong)
            found = [_read(item, model, before) for item in error.errors(include_url=False)]
            inner = [path for path, _, _ in found]
            for path, slot, words in found:
                if any(len(path) < len(other) and other[: len(path)] == path for other in inner):
                    continue  # for example, a list is too short only because its wrong items are gone
                if not is_within(path, before):  # else the problem is one of a stand-in
                    problems.update(dict.fromkeys(words))
                wrong.add(path)
                _take_out(data, path, slot)
    return Validated(None, list(problems), wrong)


def show(path: Path, value: object) -> str:
    """The value as YAML writes it, and a space; an empty text if it may contain a secret or is no single value."""
    if not SECRET_KEYS.isdisjoint(path):
        return ""
    if value is None or isinstance(value, bool):
        return f"{'null' if value is None else str(value).lower()} "
    if not isinstance(value, str | int | float | date):
        return ""
    text = str(value)
    if "@" in text or "?" in text or (path[-1:] == ("store",) and "://:" in text):  # URLs with a password
        return ""
    shown = repr(value) if isinstance(value, str) else text
    return f"{shown} " if len(shown) <= SHOWN_CHARS else f"{shown[:SHOWN_CHARS]}… "


def _read(item: Any, model: type[BaseModel], wrong: Iterable[Path]) -> tuple[Path, Slot | None, list[Problem]]:
    kind, value = item["type"], item["input"]
    path, slot = _find(item["loc"], kind, model)
    if kind in _LEFT_OVER and any(other[: len(path)] == path for other in wrong):
        return path, slot, []
    if kind == "value_error":
        said = str(item["ctx"]["error"]).split("\n")
        return path, slot, [Problem(path, f"{show(path, value) if path else ''}{line}") for line in said]
    if kind == "missing":
        return path, slot, [Problem(path[:-1], f"{path[-1]} is required")]
    if slot is None:
        return path, slot, [Problem(path, f"unknown key{_suggest(path, model)}")]
    shown = "" if slot.holds_others and value is not None else show(path, value)
    wanted = "a text: put it in quotes" if slot.takes_quoted(value) else slot.words()
    return path, slot, [Problem(path, f"{shown}must be {wanted}")]


def _find(location: tuple[str | int, ...], kind: str, model: type[BaseModel]) -> tuple[Path, Slot | None]:
    """The path of one of pydantic's locations, and the slot there; None for an unknown key.

    A location consists of keys and indexes. After them may be parts that are not in the file: the mark of a wrong key,
    or the name of one type of a union. So the location is followed only as far as the models' fields go.
    """
    path: Path = ()
    slot, outer = Slot.of(model), None
    for index, step in enumerate(location):
        is_last = index == len(location) - 1
        if outer is not None and outer.is_mapping and step == _WRONG_KEY and is_last and kind != "extra_forbidden":
            return path, outer.names
        inner = slot.enter(step)
        if inner is None:
            return (path, slot) if slot.section is None else ((*path, step), None)
        path, slot, outer = (*path, step), inner, slot
    return path, slot


def _suggest(path: Path, model: type[BaseModel]) -> str:
    slot: Slot | None = Slot.of(model)
    for step in path[:-1]:
        slot = slot.enter(step) if slot else None
    known = list_keys(slot.section) if slot and slot.section else []
    near = get_close_matches(str(path[-1]), known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known here: {', '.join(known)}" if known else ""


def _take_out(data: Any, path: Path, slot: Slot | None) -> None:
    parent = data
    for step in path[:-1]:
        parent = parent[step]
    if not path:
        data.clear()
    elif isinstance(path[-1], int) or path[-1] not in parent:
        parent[path[-1]] = {} if slot and slot.section else STAND_IN
    else:
        del parent[path[-1]]
