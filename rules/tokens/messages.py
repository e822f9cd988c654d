"""Counts the prompt tokens of a request, given a tokenizer and the model's family.

Law: arithmetic only. The tokenizer comes in as `count`. JSON comes in decoded, or as the text that is counted.

Tools are rendered as the TypeScript text that OpenAI's models read, whatever JSON is in the place of a schema; what
cannot be rendered becomes `any`. The form is inferred from recorded requests: with it, the counts of seven in eight are
exact. Similar public code: openai/harmony (src/encoding.rs) and hmarr/openai-chat-tokens.

"Recorded requests" below are requests to real APIs with the `prompt_tokens` that these reported
(`bench.tokens.run`).
"""

from collections import ChainMap
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec

from trimtab.rules.conversation import CountTokens, Message, Role, ToolCall
from trimtab.rules.prefix import digest_message
from trimtab.rules.tokens.families import GENERIC, Costs

MESSAGE_TOKENS = 3
"""Frame of each message. Source: the formula of the OpenAI cookbook; exact on 99 % of 659 recorded plain requests."""
ROLE_TOKENS = 1
NAME_TOKENS = 1
"""Added for a `name` that differs from the role. Source: recorded requests."""
FUNCTION_TOKENS = -2
LEGACY_CALL_TOKENS = 3
"""Added to results and calls in the legacy `function_call` form. Source: hmarr/openai-chat-tokens."""
SYSTEM_TOKENS = -4
"""Added to the first system message if there are tools, because it shares their frame. Source:
hmarr/openai-chat-tokens."""
PARALLEL_TOKENS = 20
PARALLEL_CALL_TOKENS = -7
"""Added to the JSON in which the model reads parallel calls. Source: residuals of 24 recorded requests."""
MAX_JOINED_CHARS = 1024 * 1024
"""Parallel calls with longer arguments are counted one by one. Chosen: joining them would take two more copies in
memory."""
MAX_COMPACTED_CHARS = 1024 * 1024
"""Longer arguments of a call are counted as written. Chosen: removing white space takes three times their memory."""
NAME_CHARS = 64
"""The tokens of names up to this length are remembered. Chosen: longer than real ones."""
NO_CHOICE = "none"
# For `tool_choice`: none, and a named function.
NO_CHOICE_TOKENS = 1
NAMED_CHOICE_TOKENS = 7
"""Source: residuals of recorded requests; litellm uses the same numbers."""
OTHER_TOOL_TOKENS = 50
"""Added to the JSON of a tool that is not a function. Source: one recorded request with a grammar."""
FORMAT_TOKENS = 10
"""Added to the name and schema of a response format. Source: residuals of 78 recorded requests, mean error 3 %."""
RENDERED_SHARE = 2
RENDERED_CHARS = 2048
"""The TypeScript of tools has at most RENDERED_SHARE times the characters of their JSON, and RENDERED_CHARS more.
Chosen: without references the two are about equally long. Hostile references double the text at each level."""
TAIL_CHARS = 32
"""Characters of a text's end that are counted with and without a line break after them. Chosen: longer than a token."""


class ToolsAndFormat(msgspec.Struct, frozen=True):
    """The parts of a request outside its messages that the model reads too.

    functions: the tools that are functions; functions_json: all of them as one JSON text.
    others: the JSON of each tool that is not a function.
    choice: the function that must be called, or NO_CHOICE; None if the model is free.
    format_texts: name, description and schema of the response format, as the texts that are counted.
    """

    functions: Sequence[dict[str, Any]] = ()
    functions_json: str = ""
    others: Sequence[str] = ()
    choice: str | None = None
    format_texts: Sequence[str] = ()


def count_message(
    message: Message,
    count: CountTokens,
    costs: Costs = GENERIC.costs,
    extra_texts: Iterable[str] = (),
    *,
    calls: Sequence[ToolCall] | None = None,
) -> int:
    """Prompt tokens of one message.

    extra_texts: texts outside its content, such as reasoning. calls: as servers render them; None for the message's.
    """
    tokens = MESSAGE_TOKENS + ROLE_TOKENS + costs.frame_tokens
    tokens += sum(map(count, message.texts))
    if extra_texts:
        tokens += sum(map(count, extra_texts))
    is_legacy_result = message.role is Role.TOOL and message.answers is None
    tokens += FUNCTION_TOKENS if is_legacy_result else 0
    if message.name and (message.role is not Role.TOOL or is_legacy_result):  # for other results the call has the name
        tokens += count(message.name) + (NAME_TOKENS if message.name != message.role_name else 0)
    calls = message.tool_calls if calls is None else calls
    tokens += _count_calls(calls, count, costs) if calls and not costs.drops_calls else 0
    return tokens + sum([part.tokens for part in message.media]) if message.media else tokens


def finish_message(message: Message, count: CountTokens) -> Message:
    """The message as one that a rule has changed: with its tokens and its digest as its texts are now."""
    return replace(message, edited=True, tokens=count_message(message, count), digest=digest_message(message))


def as_counted(call: ToolCall) -> ToolCall:
    """The call with its arguments as servers render them: JSON without white space. Very long ones stay unchanged."""
    if len(call.arguments) > MAX_COMPACTED_CHARS:
        return call
    try:
        compact = msgspec.json.format(call.arguments.encode(), indent=-1).decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return call
    return ToolCall(call.id, call.name, compact, call.id_json, call.form, call.shortens)


def count_calls(calls: Sequence[ToolCall], count: CountTokens) -> int:
    """Tokens of a message's calls, up to what each family of models adds to all calls alike."""
    return _count_calls(tuple(map(as_counted, calls)), count, GENERIC.costs)


def _count_calls(calls: Sequence[ToolCall], count: CountTokens, costs: Costs) -> int:
    """Tokens of a message's tool calls, with what their names cost in the answering messages.

    The model reads a single call as a message to its function, and several as one call whose JSON holds them all.
    """
    if not calls:
        return 0
    if len(calls) == 1:
        (call,) = calls
        count_name = _count_known_name if len(call.name) <= NAME_CHARS else _count_name
        return count_name(call.name, count) + costs.call_tokens + count(call.arguments)
    tokens = sum(count(f"functions.{call.name}") for call in calls)
    uses = (f'{{"recipient_name":"functions.{call.name}","parameters":{call.arguments}}}' for call in calls)
    if sum(len(call.arguments) for call in calls) > MAX_JOINED_CHARS:
        together = sum(map(count, uses))
    else:
        together = count('{"tool_uses":[' + ",".join(uses) + "]}")
    return max(tokens + together + PARALLEL_TOKENS + PARALLEL_CALL_TOKENS * len(calls), 0)


def _count_name(name: str, count: CountTokens) -> int:
    """The tokens of a function's name in a single call: of the message to the function, and of its answer."""
    return count(f"functions.{name}") + count(name)


_count_known_name = lru_cache(maxsize=1024)(_count_name)  # a session calls the same few functions again and again


def count_format(around: ToolsAndFormat, count: CountTokens, costs: Costs) -> int:
    formats = sum(map(count, around.format_texts)) + (FORMAT_TOKENS if around.format_texts else 0)
    return costs.priming_tokens + formats


def count_tools(around: ToolsAndFormat, count: CountTokens, costs: Costs) -> int:
    if costs.drops_tools:
        return 0
    tokens = sum(count(text) + OTHER_TOOL_TOKENS for text in around.others)
    if around.functions or around.others:
        tokens += costs.tools_tokens
    if not around.functions:
        return tokens
    if not costs.reads_typescript:
        return tokens + count(around.functions_json)
    max_chars = RENDERED_SHARE * len(around.functions_json) + RENDERED_CHARS
    tokens += count(render_tools(around.functions, nested_comments=costs.nested_comments, max_chars=max_chars))
    if around.choice == NO_CHOICE:
        return tokens + NO_CHOICE_TOKENS
    if around.choice is None or costs.is_reasoning:
        return tokens
    return tokens + NAMED_CHOICE_TOKENS + count(around.choice)


def count_shared_frame(first: Message, count: CountTokens, costs: Costs) -> int:
    """Tokens that functions add to a leading system message; negative if they save some.

    The model reads the functions in the same frame, after a line break.
    """
    if costs.drops_tools or first.role is not Role.SYSTEM or not costs.reads_typescript or costs.is_reasoning:
        return 0
    tail = first.texts[0][-TAIL_CHARS:] if first.texts else ""
    with_break = count(tail + "\n") - count(tail) if tail and not tail.endswith("\n") else 0
    return SYSTEM_TOKENS + with_break


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
