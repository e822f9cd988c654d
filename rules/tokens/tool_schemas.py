"""Tool schemas as the TypeScript text that OpenAI's models read.

Law: total for any JSON in the place of a schema; what cannot be rendered becomes `any`. The form is inferred from
recorded requests: with it, the counts of seven in eight of them are exact. Similar public code: openai/harmony
(src/encoding.rs) and hmarr/openai-chat-tokens.
"""

from collections import ChainMap
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

import msgspec

Schema = MutableMapping[str, Any]
MAX_DEPTH = 16
"""Levels of nested objects. A deeper schema, or one that refers to itself, becomes `any` there. Chosen: deeper than
real tools."""
MAX_CHARS = 200_000
"""Rough bound on the rendered text of all functions. Chosen: above real tool lists. Hostile references multiply their
target at each level."""
TYPE_CHARS = 16
"""Taken off the bound for each type. Chosen: about the length of one; it bounds schemas of many empty types."""
_KEYWORDS = frozenset(
    {
        "title", "description", "default", "type", "enum", "const", "items", "properties", "required", "anyOf", "oneOf",
        "allOf",
    }
)  # fmt: skip
"""The only keys of a schema that are read."""
_ANY = "any"
_SIMPLE = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}


def render_tools(functions: Sequence[Schema], *, nested_comments: bool = True, max_chars: int = MAX_CHARS) -> str:
    """The TypeScript namespace of all functions; each has a `name`, `description` and `parameters`.

    nested_comments: false for models before gpt-4o, which read no descriptions inside objects.
    max_chars: once about this many characters are rendered, the rest becomes `any`.
    """
    renderer = _Renderer(max_chars, nested_comments=nested_comments)
    blocks = (renderer.render(function) for function in functions)
    return "namespace functions {\n\n" + "".join(f"{block}\n\n" for block in blocks) + "} // namespace functions"


def as_schema(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


class _Place(msgspec.Struct, frozen=True):
    """The position of a type: its depth, its indent, and the references followed to reach it."""

    depth: int = 0
    indent: str = ""
    references: frozenset[str] = frozenset()


class _Renderer:
    """Renders functions one by one; `#/...` refers to the parameters of the current function."""

    def __init__(self, max_chars: int, *, nested_comments: bool) -> None:
        self._root: Schema = {}
        self._nested_comments = nested_comments
        self._chars_left = max_chars

    def render(self, function: Schema) -> str:
        self._root = as_schema(function.get("parameters"))
        name, title = function.get("name"), self._root.get("title")
        name = name if isinstance(name, str) else _ANY
        lines = [*_comment(function.get("description"), "")]
        body = list(self._render_properties(self._root, _Place()))
        if body and isinstance(title, str) and title:
            body.insert(0, f"// {title}")
        if not body:
            lines.append(f"type {name} = () => any;")
        elif _needs_lines(body):
            lines += [f"type {name} = (_: {{", *body, "}) => any;"]
        else:
            lines.append(f"type {name} = (_: {_join(body)}) => any;")
        return "\n".join(lines)

    def _render_properties(self, schema: Schema, place: _Place) -> Iterator[str]:
        """The lines of all properties, each with its comments above it."""
        listed = schema.get("required")
        listed = listed if isinstance(listed, list) else ()
        self._chars_left -= len(listed)
        required = {name for name in listed if isinstance(name, str)}
        for name, value in as_schema(schema.get("properties")).items():
            if self._chars_left < 0:
                return
            resolved, inner = self._resolve(as_schema(value), place)
            yield from self._render_comments(resolved, inner)
            mark = "" if name in required else "?"
            default = f" // default: {_literal(resolved['default'])}" if "default" in resolved else ""
            self._chars_left -= len(name) + len(default)
            inner = _Place(inner.depth + 1, inner.indent, inner.references)
            yield f"{inner.indent}{name}{mark}: {self._render_type(resolved, inner)},{default}"

    def _render_comments(self, schema: Schema, place: _Place) -> Sequence[str]:
        title, description = schema.get("title"), schema.get("description")
        comments = [*_title(title, description, place.indent)] if place.depth == 0 else []
        if place.depth == 0 or self._nested_comments:
            comments += _comment(description, place.indent)
        read = sum(len(text) for text in (title, description) if isinstance(text, str))
        self._chars_left -= max(read, sum(map(len, comments)))
        return comments

    def _render_type(self, schema: Schema, place: _Place) -> str:
        self._chars_left -= TYPE_CHARS
        if place.depth > MAX_DEPTH or self._chars_left < 0:
            return _ANY
        schema, place = self._resolve(schema, place)
        inner = _Place(place.depth + 1, place.indent, place.references)
        members = _union(schema)
        if members:
            return " | ".join(self._render_type(member, inner) for member in members)
        literals = " | ".join(map(_literal, _values(schema)))
        if literals:
            self._chars_left -= len(literals)
            return literals
        kind = schema.get("type")
        if kind == "array":
            return f"{self._render_type(as_schema(schema.get('items')), inner)}[]"
        if kind == "object":
            return self._render_object(schema, place)
        return _SIMPLE.get(kind, _ANY) if isinstance(kind, str) else _ANY

    def _render_object(self, schema: Schema, place: _Place) -> str:
        lines = list(self._render_properties(schema, _Place(place.depth, place.indent + "  ", place.references)))
        if not lines:
            return "object"
        if self._nested_comments and not _needs_lines(lines):
            return _join(lines)
        return "\n".join(("{", *lines, place.indent + "}"))

    def _resolve(self, schema: Schema, place: _Place) -> tuple[Schema, _Place]:
        """The target of `$ref` with the keys next to it; an empty target if the reference is part of itself."""
        references = place.references
        for _ in range(MAX_DEPTH):
            reference = schema.get("$ref")
            if not isinstance(reference, str) or not reference.startswith("#/"):
                break
            self._chars_left -= len(reference)
            found: Any = None
            if reference not in references:
                found = self._root
                for key in reference[2:].split("/"):
                    found = as_schema(found).get(key)
            references |= {reference}
            found = as_schema(found)
            beside = {key: schema[key] for key in _KEYWORDS if key in schema}
            schema = {key: found[key] for key in (*_KEYWORDS, "$ref") if key in found} | beside
        return schema, _Place(place.depth, place.indent, references)


def _union(schema: Schema) -> Sequence[Schema]:
    """The alternative types of a union; empty if the schema is not a union."""
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return [as_schema(member) for member in schema[key]]
    if isinstance(schema.get("allOf"), list):
        return [as_schema(member) for member in schema["allOf"][:1]]
    if isinstance(schema.get("type"), list):
        kinds = dict.fromkeys(kind for kind in schema["type"] if isinstance(kind, str))
        return [ChainMap({"type": kind}, schema) for kind in kinds] or [{}]
    return ()


def _values(schema: Schema) -> Sequence[Any]:
    """The values that a type allows; empty if it does not list values."""
    values = schema.get("enum")
    if isinstance(values, list):
        return values
    return (schema["const"],) if "const" in schema else ()


def _needs_lines(lines: Sequence[str]) -> bool:
    return any("\n" in line or line.lstrip().startswith("//") for line in lines)


def _join(lines: Sequence[str]) -> str:
    return "{ " + " ".join(line.strip() for line in lines).rstrip(",") + " }"


def _title(title: Any, description: Any, indent: str) -> Iterator[str]:
    if isinstance(title, str) and title:
        yield f"{indent}// {title}"
        if isinstance(description, str) and description:
            yield f"{indent}//"


def _comment(text: Any, indent: str) -> Iterator[str]:
    if isinstance(text, str) and text.strip():
        for line in text.strip().split("\n"):
            yield f"{indent}// {line.strip()}".rstrip()


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        return "null" if value is None else str(value)
    except (RecursionError, ValueError):
        return _ANY
