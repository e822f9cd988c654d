"""Describes in plain words what is allowed at each place of a configuration, as the models' fields define it."""

import types
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, Field, GetJsonSchemaHandler, TypeAdapter, ValidationError
from pydantic_core import CoreSchema

Step = str | int
_NUMBERS = {int: "a whole number", float: "a number"}
LACKING = "lacking"
"""The type of pydantic's error for a section that needs a key that it does not have."""
_BOUNDS = {"ge": "{} or more", "gt": "above {}", "le": "at most {}", "lt": "below {}"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """An annotation of a type that says what its values must be.

    `words` are for error messages, to follow "must be". `pattern` is for editors: a regular expression, valid in
    ECMAScript too, that every right value matches. It may match wrong ones.
    """

    words: str
    pattern: str | None = None

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        found = handler(schema)
        return found if self.pattern is None else {**found, "pattern": self.pattern}


@dataclass(frozen=True, slots=True)
class Slot:
    """What is allowed at a place: a type without its annotations, the annotations, and whether null is allowed."""

    kind: Any
    constraints: tuple[Any, ...] = ()
    is_optional: bool = False

    @classmethod
    def of(cls, annotation: Any, constraints: Iterable[Any] = ()) -> "Slot":
        """The slot of an annotation. `constraints`: those that the field adds to it."""
        found, is_optional = tuple(constraints), False
        while True:
            inner = get_args(annotation)
            if get_origin(annotation) is Annotated:
                annotation, found = inner[0], (*inner[1:], *found)
            elif _is_union(annotation) and type(None) in inner and len(inner) == 2:
                annotation, is_optional = inner[inner[0] is type(None)], True
            else:
                return cls(annotation, found, is_optional)

    @property
    def variants(self) -> "tuple[Slot, ...]":
        return tuple(map(Slot.of, get_args(self.kind))) if _is_union(self.kind) else (self,)

    @property
    def section(self) -> type[BaseModel] | None:
        kinds = (slot.kind for slot in self.variants)
        return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)

    @property
    def names(self) -> "Slot | None":
        """What the names must be, if the value may be a mapping with names of the user's choice."""
        kinds = (slot.kind for slot in self.variants)
        return next((Slot.of(get_args(kind)[0]) for kind in kinds if get_origin(kind) is dict), None)

    @property
    def is_mapping(self) -> bool:
        return self.names is not None

    @property
    def text(self) -> "Slot | None":
        return next((slot for slot in self.variants if slot.kind is str), None)

    @property
    def holds_others(self) -> bool:
        return self.section is not None or self.is_mapping or get_origin(self.kind) in {tuple, list}

    def enter(self, step: Step) -> "Slot | None":
        if _is_union(self.kind):
            return next((inner for slot in self.variants if (inner := slot.enter(step))), None)
        if self.section is not None:
            return _enter_section(self.section, step)
        if get_origin(self.kind) is dict:
            return Slot.of(get_args(self.kind)[1])
        if get_origin(self.kind) in {tuple, list} and isinstance(step, int):
            return Slot.of(get_args(self.kind)[0])
        return None

    def takes_quoted(self, value: object) -> bool:
        """Whether a text is needed here, and the value would be right if it were in quotes."""
        slot = self.text
        if slot is None or not isinstance(value, bool | int | float | date):
            return False
        text = str(value).lower() if isinstance(value, bool) else str(value)
        try:
            TypeAdapter(Annotated[str, Field(), *slot.constraints]).validate_python(text)
        except ValidationError:
            return False
        return True

    def words(self) -> str:
        """What a value must be, to follow "must be"."""
        words = next((item.words for item in self.constraints if isinstance(item, Wanted)), None)
        options = ["true", "false"] if self.kind is bool else _list_options(self.kind)
        if words is None and options:
            *others, last = [*options, "null"] if self.is_optional else options
            return f"{', '.join(others)} or {last}" if others else last
        words = words or self._describe_kind()
        return f"{words}, or null" if self.is_optional else words

    def _describe_kind(self) -> str:
        if self.section is not None:
            return f"a mapping with the keys {', '.join(list_keys(self.section))}"
        if self.is_mapping:
            return f"a mapping of names, each to {Slot.of(get_args(self.kind)[1]).words()}"
        if get_origin(self.kind) in {tuple, list}:
            least = " that is not empty" if any(getattr(item, "min_length", 0) for item in self.constraints) else ""
            return f"a list{least}, each item {Slot.of(get_args(self.kind)[0]).words()}"
        if self.kind in _NUMBERS:
            bounds = [
                words.format(f"{bound:g}" if isinstance(bound, float) else bound)
                for name, words in _BOUNDS.items()
                for item in self.constraints
                if (bound := getattr(item, name, None)) is not None
            ]
            return ", ".join([_NUMBERS[self.kind], *([" and ".join(bounds)] if bounds else [])])
        return "a text, in quotes if YAML would read it as another type" if self.kind is str else "something else"


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in {Union, types.UnionType}


def list_keys(section: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in section.model_fields.items()]


def _enter_section(section: type[BaseModel], step: Step) -> Slot | None:
    for name, field in section.model_fields.items():
        if step == (field.alias or name):
            return Slot.of(get_type_hints(section, include_extras=True)[name], field.metadata)
    return None


def _list_options(kind: Any) -> list[str]:
    if get_origin(kind) is Literal:
        return [str(option) for option in get_args(kind)]
    return [str(option.value) for option in kind] if isinstance(kind, type) and issubclass(kind, Enum) else []
