"""Tool schemas as TypeScript."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_json import ODD

from trimtab.rules.tokens.messages import (
    MAX_CHARS,
    MAX_DEPTH,
    TYPE_CHARS,
    Schema,
    as_schema,
    render_tools,
)

HEAD, TAIL = "namespace functions {\n\n", "} // namespace functions"
END = " => any;"
TEXT = {"type": "string"}


def _render(parameters: Any, *, nested_comments: bool = True, **function: Any) -> str:
    text = render_tools([{"name": "f", "parameters": parameters, **function}], nested_comments=nested_comments)
    assert text.startswith(HEAD)
    assert text.endswith("\n\n" + TAIL)
    return text[len(HEAD) : -len("\n\n" + TAIL)]


def _refer(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _type(schema: Any, **definitions: Any) -> str:
    text = _render({"properties": {"a": schema}, "$defs": definitions})
    return text.removeprefix("type f = (_: { a?: ").removesuffix(" }) => any;")


@pytest.mark.parametrize(
    ("schema", "rendered"),
    [
        (TEXT, "string"),
        ({"type": "integer"}, "number"),
        ({"type": "null"}, "null"),
        ({"type": "object", "properties": {}}, "object"),
        ({"type": "later"}, "any"),
        ({}, "any"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"type": ["object", "null"], "properties": {"b": TEXT}}, "{ b?: string } | null"),
        ({"type": "array"}, "any[]"),
        ({"type": "array", "items": TEXT}, "string[]"),
        ({"type": "string", "enum": ["x", "y"]}, '"x" | "y"'),
        ({"enum": ["x", 1, 1.5, True, None]}, '"x" | 1 | 1.5 | true | null'),
        ({"const": "x", "type": "string"}, '"x"'),
        ({"const": None}, "null"),
        ({"anyOf": [TEXT, {"type": "null"}]}, "string | null"),
        ({"oneOf": [TEXT, {"type": "array", "items": TEXT}]}, "string | string[]"),
        ({"anyOf": "x", "type": "string"}, "string"),
        ({"allOf": [TEXT, {"type": "null"}]}, "string"),
        (
            {"type": "object", "properties": {"b": TEXT, "c": {"type": "integer"}}, "required": ["c"]},
            "{ b?: string, c: number }",
        ),
        (5, "any"),
    ],
)
def test_a_schema_is_a_type(schema: Any, rendered: str) -> None:
    assert _type(schema) == rendered


@pytest.mark.parametrize(
    ("schema", "definitions", "rendered"),
    [
        (_refer("X"), {"X": TEXT}, "string"),
        ({"$ref": "#/properties/a/items", "items": TEXT}, {}, "string"),
        ({"$ref": "#/$defs/X", "type": "integer"}, {"X": TEXT}, "number"),
        (_refer("X"), {"X": _refer("Y"), "Y": TEXT}, "string"),
        ({"type": "array", "items": _refer("X")}, {"X": {"enum": ["x"]}}, '"x"[]'),
        (_refer("X"), {}, "any"),
        ({"$ref": "other.json#/X"}, {"X": TEXT}, "any"),
        (_refer("X"), {"X": _refer("X")}, "any"),
        (_refer("X"), {"X": {"anyOf": [_refer("X"), TEXT]}}, "any | string"),
        (
            _refer("X"),
            {"X": {"type": "object", "properties": {"n": TEXT, "in": {"type": "array", "items": _refer("X")}}}},
            "{ n?: string, in?: any[] }",
        ),
    ],
)
def test_a_reference_is_what_it_refers_to(schema: Any, definitions: dict[str, Any], rendered: str) -> None:
    """Keys next to it take precedence. A reference to what contains it, or to nothing, becomes `any`."""
    assert _type(schema, **definitions) == rendered


@pytest.mark.parametrize(("length", "rendered"), [(MAX_DEPTH - 1, "string"), (500, "any")])
def test_a_chain_of_references_is_followed_so_far(length: int, rendered: str) -> None:
    chain = {f"X{number}": _refer(f"X{number + 1}") for number in range(length)}
    assert _type(_refer("X0"), **chain, **{f"X{length}": TEXT}) == rendered


@pytest.mark.parametrize(("length", "rendered"), [(MAX_DEPTH - 1, "string"), (MAX_DEPTH, "any")])
def test_objects_within_objects_are_read_so_deep(length: int, rendered: str) -> None:
    schema: Any = TEXT
    for _ in range(length):
        schema = {"type": "object", "properties": {"a": schema}}
    assert f"a?: {rendered} }}" in _type(schema)


@pytest.mark.parametrize(
    ("parameters", "lines"),
    [
        (None, ["type f = () => any;"]),
        ({"title": "Nothing", "properties": {}}, ["type f = () => any;"]),
        ({"properties": {"a": TEXT, "b": TEXT}}, ["type f = (_: { a?: string, b?: string }) => any;"]),
        (
            {"title": "Parameters", "properties": {"a": {"title": "The A", **TEXT}}},
            ["type f = (_: {", "// Parameters", "// The A", "a?: string,", "}) => any;"],
        ),
        (
            {"properties": {"a": {"title": "The A", "description": "One.\n  Two. \n\nFour.", **TEXT}, "b": TEXT}},
            [
                "type f = (_: {",
                "// The A",
                "//",
                "// One.",
                "// Two.",
                "//",
                "// Four.",
                "a?: string,",
                "b?: string,",
                "}) => any;",
            ],
        ),
        (
            {"properties": {"a": {"default": "x", **TEXT}, "b": {"default": None}, "c": {"default": [1, True]}}},
            [
                'type f = (_: { a?: string, // default: "x" b?: any, // default: null c?: any, // default: [1, True] })'
                + END
            ],
        ),
        (
            {"properties": {"a": {"description": " ", "title": "", **TEXT}, "b": {"description": 5, "title": []}}},
            ["type f = (_: { a?: string, b?: any }) => any;"],
        ),
        (
            {"properties": {"a": _refer("X")}, "$defs": {"X": {"title": "X", "description": "An X."}}},
            ["type f = (_: {", "// X", "//", "// An X.", "a?: any,", "}) => any;"],
        ),
        (
            {"properties": {"a": {"type": "object", "properties": {"b": {"title": "B", "description": "A b."}}}}},
            ["type f = (_: {", "a?: {", "  // A b.", "  b?: any,", "},", "}) => any;"],
        ),
    ],
)
def test_a_function_is_a_type_of_its_parameters(parameters: Any, lines: list[str]) -> None:
    """Without a comment, it takes one line. Titles are read only at the top, descriptions everywhere."""
    assert _render(parameters) == "\n".join(lines)


def test_descriptions_stand_above_their_functions() -> None:
    """They are written line by line. Several functions are in one namespace."""
    functions = [{"name": "f", "description": "  Does it.\n  Well. "}, {"name": "g", "description": None}]
    body = "// Does it.\n// Well.\ntype f = () => any;\n\ntype g = () => any;\n\n"
    assert render_tools(functions) == HEAD + body + TAIL
    assert render_tools([]) == HEAD + TAIL


def test_early_models_read_no_comments_within_objects() -> None:
    inner = {"type": "object", "properties": {"b": {"description": "A b.", **TEXT}}}
    parameters = {"properties": {"a": {"description": "An a.", **inner}}}
    text = _render(parameters, nested_comments=False)
    assert text == "type f = (_: {\n// An a.\na?: {\n  b?: string,\n},\n}) => any;"
    assert "A b." in _render(parameters)


def _double(kind: str, name: str) -> Schema:
    other = _refer(name)
    if kind == "properties":
        return {"type": "object", "properties": {"a": other, "b": {"description": "Deep.", **other}}}
    if kind == "types":
        return {"type": ["object", "object"], "properties": {"a": other}}
    return {kind: [other, other]}


def _nest(value: Any, key: str | None, depth: int = 900) -> Any:
    for _ in range(depth):
        value = [value] if key is None else {key: value}
    return value


MANY = {str(number): _refer("X") for number in range(2000)}
CHAIN = {kind: {str(n): _double(kind, str(n + 1)) for n in range(60)} for kind in ("anyOf", "properties", "types")}
HOSTILE: dict[str, Any] = {
    **{f"doubled by {kind}": {"properties": {"a": _refer("0")}, "$defs": chain} for kind, chain in CHAIN.items()},
    "itself": {"properties": {"a": _refer("X")}, "$defs": {"X": _double("anyOf", "X")}},
    "circle": {"properties": {"a": _refer("X")}, "$defs": {"X": _refer("Y"), "Y": _refer("X")}},
    "long description": {"properties": MANY, "$defs": {"X": {"description": "d" * 10**6, **TEXT}}},
    "many lines": {"properties": MANY, "$defs": {"X": {"description": "a\n" * 10**5, **TEXT}}},
    "long default": {"properties": MANY, "$defs": {"X": {"default": ["d"] * 10**5, **TEXT}}},
    "long enum": {"properties": MANY, "$defs": {"X": {"enum": ["d"] * 10**5}}},
    "long name": {"properties": MANY, "$defs": {"X": {"type": "object", "properties": {"n" * 10**6: TEXT}}}},
    "long reference": {"properties": MANY, "$defs": {"X": {"$ref": "#/" + "a/" * 10**6}}},
    "long union": {"properties": MANY, "$defs": {"X": {"anyOf": [TEXT] * 10**5}}},
    "long required": {"properties": MANY, "$defs": {"X": {"required": ["r"] * 10**5, "properties": MANY}}},
    "other members": {"properties": MANY, "$defs": {"X": {**{str(n): n for n in range(10**5)}, **_refer("Y")}}},
    **{f"deep {key}": {"properties": {"a": _nest({}, key)}} for key in ("items", "allOf", "type", "properties")},
    "deep values": {"properties": {"a": {"default": _nest([], None)}, "b": {"const": _nest({}, "c")}}},
    "large integer": {"properties": {"a": {"default": 10**5000, "enum": [10**5000]}}},
}


@pytest.mark.parametrize("parameters", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_schema_is_read_for_ever(parameters: Any) -> None:
    """References multiply their target up to a bound. Only text that the schema itself contains may exceed it.

    The bound is on the text and on the number of rendered types.
    """
    text = render_tools([{"name": "f", "parameters": parameters}] * 20)
    assert text.count("?: ") <= MAX_CHARS / TYPE_CHARS + MAX_DEPTH + 1
    # The first of the long ones is read to its end: each is of a million characters or half of that.
    assert len(text) < 2_100_000
    assert text.count("type f = (") == 20


KEYWORDS = ["type", "properties", "items", "anyOf", "oneOf", "allOf", "enum", "const", "default", "required", "title"]
SCHEMAS = st.recursive(
    ODD | st.sampled_from(["string", "object", "array", "null"]),
    lambda inner: (
        st.dictionaries(st.sampled_from([*KEYWORDS, "description", "$defs", "a"]), inner, max_size=4)
        | st.lists(inner, max_size=3)
        | st.fixed_dictionaries({"$ref": st.sampled_from(["#/", "#/a", "#/$defs/a", "#/properties/a", "#"])})
    ),
    max_leaves=12,
)


@given(st.lists(st.fixed_dictionaries({}, optional={"name": ODD, "description": ODD, "parameters": SCHEMAS}) | ODD))
def test_whatever_stands_in_the_place_of_a_function_is_rendered(values: list[Any]) -> None:
    text = render_tools(list(map(as_schema, values)))
    assert text.startswith(HEAD)
    assert text.endswith(TAIL)
    assert text.count("type ") >= len(values)
