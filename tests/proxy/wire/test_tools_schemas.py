"""Tools and schemas in the form in which they are counted."""

from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_json import ODD, dump, odd_objects

from trimtab.proxy.wire.json import decode_or_none, write_compact
from trimtab.proxy.wire.tools import (
    MAX_DECODED_PARTS,
    as_list,
    forces_call,
    has_too_many_parts,
    read_choice,
    read_format,
)
from trimtab.rules.conversation import ToolCall
from trimtab.rules.tokens.messages import MAX_COMPACTED_CHARS, NO_CHOICE, as_counted

DEEPER = b"[" * 100_000 + b"]" * 100_000


def _count_arguments(arguments: str) -> str:
    return as_counted(ToolCall("1", "f", arguments)).arguments


@pytest.mark.parametrize(
    ("value", "items"), [(None, []), ([], []), ([None], [None]), ({"a": 1}, [{"a": 1}]), ("x", ["x"]), (0, [0])]
)
def test_what_is_no_list_is_one_item(value: Any, items: list[Any]) -> None:
    """So a single tool outside of a list is counted."""
    assert as_list(value) == items


@pytest.mark.parametrize("raw", [b"", b"{", b'"\xff"', DEEPER, b"nil"], ids=lambda raw: raw[:5].decode("latin-1"))
def test_what_cannot_be_decoded_is_none(raw: bytes) -> None:
    assert decode_or_none(msgspec.Raw(raw)) is None


@given(ODD)
def test_what_can_be_decoded_is_its_value(value: Any) -> None:
    """An absent member has none."""
    assert decode_or_none(msgspec.Raw(dump(value))) == value
    assert decode_or_none(None) is None


@given(ODD, st.integers(-1, 3))
def test_arguments_count_without_white_space(value: Any, indent: int) -> None:
    """White space outside of strings, that is. Everything else is counted as written."""
    plain = dump(value)
    assert _count_arguments(msgspec.json.format(plain, indent=indent).decode()) == plain.decode()


@pytest.mark.parametrize(
    "arguments",
    ["", "ls  -l", '{"a":', '{ "a":1 } x', '{ "a" : "\ud83d" }', " " * MAX_COMPACTED_CHARS + "1", DEEPER.decode()],
    ids=lambda arguments: f"{len(arguments)}_{arguments[:9]!a}",
)
def test_arguments_that_are_no_json_or_very_long_are_counted_as_written(arguments: str) -> None:
    """Nothing is raised for any text."""
    call = ToolCall("1", "f", arguments)
    assert as_counted(call) is call


@given(st.text() | ODD.map(lambda value: dump(value).decode()))
def test_any_arguments_are_counted(arguments: str) -> None:
    """Only the arguments of a call change, and never get longer."""
    call = ToolCall("1", "f", arguments)
    counted = as_counted(call)
    assert (counted.id, counted.name) == (call.id, call.name)
    assert len(counted.arguments) <= len(arguments)


@pytest.mark.parametrize(
    ("schema", "counted"),
    [
        ({}, {}),
        ({"type": "object", "additionalProperties": False}, {"type": "object"}),
        ({"type": "object", "title": "Top"}, {"title": "Top", "type": "object"}),
        ({"properties": {"a": {"title": "A", "type": "string"}}}, {"properties": {"a": {"type": "string"}}}),
        ({"properties": {"title": {"title": "T"}}}, {"properties": {"title": {}}}),
        ({"properties": {"additionalProperties": 2}}, {"properties": {"additionalProperties": 2}}),
        ({"$defs": {"title": {"title": "T", "a": 1}}}, {"$defs": {"title": {"a": 1}}}),
        ({"anyOf": [{"title": "A", "additionalProperties": {}, "a": 1}, 5]}, {"anyOf": [{"a": 1}, 5]}),
        ({"items": {"properties": {"properties": {"title": "P"}}}}, {"items": {"properties": {"properties": {}}}}),
        ({"items": {"title": ["no", "title"]}}, {"items": {"title": ["no", "title"]}}),
        ({"properties": [{"title": "A"}]}, {"properties": [{}]}),
    ],
)  # fmt: skip
def test_a_response_format_is_counted_as_models_read_it(schema: Any, counted: Any) -> None:
    """The schema's own title comes first; titles of its parts are dropped. A property may be named `title`."""
    assert list(read_format({"schema": schema, "strict": True})) == [orjson.dumps(counted).decode()]


@pytest.mark.parametrize(
    ("described", "texts"),
    [
        ({}, []),
        ({"name": "n", "description": "d"}, []),
        ({"name": "n", "schema": None}, []),
        ({"name": "n", "schema": [{}]}, []),
        ({"name": "n", "schema": {}}, ["n", "{}"]),
        ({"schema": {}, "description": "d", "name": "n"}, ["n", "d", "{}"]),
        ({"schema": {}, "description": 5, "name": []}, ["{}"]),
    ],
)
def test_a_format_without_a_schema_costs_nothing(described: Any, texts: list[str]) -> None:
    """With a schema, its name and description are counted if they are texts, and the schema."""
    assert list(read_format(described)) == texts


@given(odd_objects("schema", "name", "properties", "title", "$defs").filter(lambda value: isinstance(value, dict)))
def test_any_format_is_read(described: dict[str, Any]) -> None:
    """The schema comes last, and is an object."""
    texts = list(read_format(described))
    assert bool(texts) is isinstance(described.get("schema"), dict)
    assert not texts or isinstance(orjson.loads(texts[-1]), dict)


def test_json_with_too_many_parts_is_told_apart() -> None:
    """Strings and commas count, unless the commas are in strings. One such text among several is enough."""
    most = b"[%s]" % (b"1," * MAX_DECODED_PARTS)[:-1]
    more = b"[%s]" % (b"1," * (MAX_DECODED_PARTS + 2))[:-1]
    said = b'"%s"' % (b"," * (2 * MAX_DECODED_PARTS))

    assert not has_too_many_parts([])
    assert not has_too_many_parts([most, said, b"{}"])
    assert has_too_many_parts([b"{}", more, most])


def test_compact_json_has_no_white_space_outside_of_strings() -> None:
    """Integers of any size are written."""
    assert write_compact({"a": [1, " b "], "c": 10**30}) == '{"a":[1," b "],"c":1' + "0" * 30 + "}"


NAMED = {"type": "function", "function": {"name": "f"}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}


@pytest.mark.parametrize(
    ("choice", "name", "is_forced"),
    [
        (None, None, False),
        ("auto", None, False),
        ("none", NO_CHOICE, False),
        ("required", None, True),
        (NAMED, "f", True),
        ({"type": "tool", "name": "f"}, "f", True),
        ({"type": "none"}, NO_CHOICE, False),
        ({"name": 7}, None, True),
        (ALLOWED, None, False),
        ({"type": "allowed_tools", "mode": "required"}, None, True),
    ],
)
def test_a_choice_names_a_tool_or_forces_a_call(choice: Any, name: str | None, *, is_forced: bool) -> None:
    """In the form of each dialect."""
    assert (read_choice(choice), forces_call(choice)) == (name, is_forced)
