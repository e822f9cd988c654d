"""What is allowed at a place of the configuration, read from the models and described in words."""

from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import AfterValidator, BaseModel, Field

from trimtab.proxy.config.schema import Config
from trimtab.proxy.config.values import Slot, Wanted, list_keys


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Inner(BaseModel):
    size: int = Field(1, gt=0)
    other: str = Field("", alias="else")
    maybe: Annotated[int, Ge(3)] | None = None


class Outer(BaseModel):
    inner: Inner = Inner()
    named: dict[str, Inner] = {}
    many: tuple[Inner, ...] = ()
    either: Inner | str = ""


def refuse_blanks(text: str) -> str:
    if " " in text:
        raise ValueError
    return text


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (bool, "true or false"),
        (bool | None, "true, false or null"),
        (Literal["a", "b", "c"], "a, b or c"),
        (Literal["a"], "a"),
        (Colour, "red or blue"),
        (Annotated[int, Ge(0)], "a whole number, 0 or more"),
        (Annotated[float, Gt(0.0), Le(1.0)], "a number, above 0 and at most 1"),
        (Annotated[int, Lt(9)] | None, "a whole number, below 9, or null"),
        (int, "a whole number"),
        (str, "a text, in quotes if YAML would read it as another type"),
        (Annotated[str, Wanted("HOST:PORT")] | None, "HOST:PORT, or null"),
        (Inner, "a mapping with the keys size, else, maybe"),
        (dict[str, int], "a mapping of names, each to a whole number"),
        (tuple[bool, ...], "a list, each item true or false"),
        (Annotated[list[int], Wanted("a list of primes")], "a list of primes"),
        (Annotated[list[int], MaxLen(3)], "a list, each item a whole number"),
        (Annotated[list[int], MinLen(1)], "a list that is not empty, each item a whole number"),
    ],
)
def test_a_type_is_said_in_words(kind: Any, words: str) -> None:
    """The words follow `must be`."""
    assert Slot.of(kind).words() == words


def test_a_fields_own_bounds_count() -> None:
    """Pydantic keeps them outside the type."""
    size = Slot.of(Inner).enter("size")
    assert size is not None
    assert size.words() == "a whole number, above 0"


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (("inner", "size"), "a whole number, above 0"),
        (("inner", "maybe"), "a whole number, 3 or more, or null"),
        (("inner", "else"), Slot.of(str).words()),
        (("named", "any", "size"), "a whole number, above 0"),
        (("many", 7, "size"), "a whole number, above 0"),
        (("either", "size"), "a whole number, above 0"),
        (("inner", "other"), None),
        (("inner", "size", 0), None),
        (("nope",), None),
    ],
)
def test_a_path_leads_through_sections_mappings_and_lists(steps: tuple[str | int, ...], words: str | None) -> None:
    """The path has the keys as they are written. The result is None if there is no such place."""
    slot: Slot | None = Slot.of(Outer)
    for step in steps:
        slot = slot.enter(step) if slot is not None else None
    assert (slot.words() if slot is not None else None) == words


@pytest.mark.parametrize(
    ("kind", "value", "would_do"),
    [
        (str, 5, True),
        (str, True, True),
        (Annotated[str, AfterValidator(refuse_blanks)], 5, True),
        (Literal["a"], 5, False),
        (str, ["a"], False),
        (str, None, False),
        (Annotated[str, Field(pattern="^x")], 5, False),
        (int, "5", False),
    ],
)
def test_quotes_are_advised_only_if_they_would_help(kind: Any, value: object, *, would_do: bool) -> None:
    """That is: text is needed, and the value in quotes would be right."""
    assert Slot.of(kind).takes_quoted(value) is would_do


def test_a_union_may_be_what_any_of_its_types_is() -> None:
    """A list or a mapping is entered by an index or a name. A text or a section is both."""
    both = Slot.of(tuple[int, ...] | dict[Annotated[str, MinLen(1)], Inner | str] | None)
    assert (both.is_mapping, both.section, both.text) == (True, None, None)
    assert both.names is not None
    assert both.names.constraints == (MinLen(1),)
    index, name = both.enter(0), both.enter("a")
    assert index is not None
    assert name is not None
    assert (index.kind, index.section, name.section) == (int, None, Inner)
    assert name.text is not None
    assert name.enter("size") == Slot.of(Inner).enter("size")
    assert name.enter(0) is None
    assert Slot.of(tuple[int, ...]).enter("a") is None


def test_every_place_of_the_configuration_has_words() -> None:
    """No place is described as `something else`, the words for a type that this module does not know."""
    open_slots, seen = [Slot.of(Config)], 0
    while open_slots:
        slot = open_slots.pop()
        seen += 1
        assert "something else" not in slot.words(), slot
        steps = list_keys(slot.section) if slot.section is not None else ["any"] if slot.holds_others else []
        open_slots += [inner for step in steps if (inner := slot.enter(step)) is not None]
    assert seen > 50
