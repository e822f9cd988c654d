"""Declarations of tools go out of a request; those that the transcript needs stay."""

from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_json import odd_objects

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.compactor import Compactor
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.codec import Counting, Request
from trimtab.proxy.wire.dialects import name_codec
from trimtab.proxy.wire.json import decode_members
from trimtab.proxy.wire.messages.message import decode_element
from trimtab.proxy.wire.responses.codec import decode_unit
from trimtab.proxy.wire.tools import (
    MAX_DECODED_PARTS,
    ToolList,
    drop_tools,
    find_referenced,
    find_served,
    find_used,
    forces_call,
    has_too_many_parts,
    read_choice,
    read_format,
)
from trimtab.proxy.wire.transcript.body import Unsent
from trimtab.rules.conversation import NOT_SERVED, Media, Message, Role, Served, ToolCall
from trimtab.rules.tokens.families import find_family
from trimtab.rules.tokens.messages import MAX_COMPACTED_CHARS, NO_CHOICE, as_counted

GLOBS = ("mcp__*", "draw")
NAMES = ("read", "write", "draw", "mcp__jira__list", "mcp__jira__add", "mcpx")
MARKER = {"type": "ephemeral"}


def declare(dialect: str, name: str, **more: object) -> dict[str, object]:
    schema = {"type": "object", "properties": {"path": {"type": "string", "description": f"for {name}, }}]"}}}
    if dialect == "chat":
        return {"type": "function", "function": {"name": name, "parameters": schema}, **more}
    if dialect == "responses":
        return {"type": "function", "name": name, "parameters": schema, **more}
    return {"name": name, "input_schema": schema, **more}


def call(dialect: str, name: str) -> list[dict[str, object]]:
    if dialect == "chat":
        made = {"id": "c", "type": "function", "function": {"name": name, "arguments": "{}"}}
        return [
            {"role": "assistant", "content": None, "tool_calls": [made]},
            {"role": "tool", "tool_call_id": "c", "content": "x"},
        ]
    if dialect == "responses":
        made = {"type": "function_call", "call_id": "c", "name": name, "arguments": "{}"}
        return [made, {"type": "function_call_output", "call_id": "c", "output": "x"}]
    block = {"type": "tool_use", "id": "c", "name": name, "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": "x"}
    return [{"role": "assistant", "content": [block]}, {"role": "user", "content": [result]}]


def choose(dialect: str, name: str) -> dict[str, object]:
    if dialect == "chat":
        return {"type": "function", "function": {"name": name}}
    return {"type": "function" if dialect == "responses" else "tool", "name": name}


def write(dialect: str, tools: object, *said: dict[str, object], **more: object) -> bytes:
    transcript = [{"role": "user", "content": "hi"}, *said]
    key = "input" if dialect == "responses" else "messages"
    return orjson.dumps({"model": "m", "tools": tools, **more, key: transcript}, option=orjson.OPT_INDENT_2)


def drop(dialect: str, body: bytes, globs: tuple[str, ...] = GLOBS) -> tuple[Request, int]:
    """The request that is left, and the tokens that this saves."""
    left = Compactor(count_by_heuristic).clean(name_codec(dialect).read(body), Unsent(tools=globs))
    return left, sum(decision.saved_tokens for decision in left.cleaned)


dialects = pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])


@dialects
@given(names=st.lists(st.sampled_from(NAMES), unique=True, max_size=6), called=st.sampled_from(["", *NAMES]))
def test_exactly_the_unused_tools_that_match_go(dialect: str, names: list[str], called: str) -> None:
    """Every other declaration keeps its bytes and its place, and all other members stay."""
    tools = [declare(dialect, name) for name in names]
    said = call(dialect, called) if called else []
    body = write(dialect, tools, *said, tool_choice={"type": "auto"})
    left, saved = drop(dialect, body)
    stays = [name for name in names if name == called or not any(fnmatchcase(name, glob) for glob in GLOBS)]
    stays = names if called and not stays else stays

    if stays == names:
        assert (left.body, saved) == (body, 0)
        return
    before, after = orjson.loads(body), orjson.loads(left.body)
    assert after.get("tools", []) == [declare(dialect, name) for name in stays]
    gone = set() if stays else {"tools", "tool_choice"}
    assert {**after, "tools": 0} == {**{key: value for key, value in before.items() if key not in gone}, "tools": 0}
    assert saved > 0
    assert drop(dialect, left.body)[0].body == left.body


@dialects
def test_what_a_strict_upstream_refuses_without_tools_goes_with_them(dialect: str) -> None:
    """No empty list is sent, and no choice among no tools."""
    choice = {"type": "any"} if dialect == "messages" else "required"
    more = {} if dialect == "messages" else {"parallel_tool_calls": False}
    body = write(dialect, [declare(dialect, "draw"), declare(dialect, "mcp__a")], tool_choice=choice, **more)
    left, _ = drop(dialect, body)

    transcript = "input" if dialect == "responses" else "messages"
    assert orjson.loads(left.body).keys() == {"model", transcript}
    assert drop(dialect, body.replace(b'"tool_choice"', b'"tool\\u005fchoice"'))[0].body.count(b"tool") <= 1


@dialects
@pytest.mark.parametrize("is_list", [False, True])
def test_a_tool_that_the_choice_names_stays(dialect: str, *, is_list: bool) -> None:
    """Alone or in a list of allowed tools. A forced call to an undeclared tool would be refused."""
    choice = choose(dialect, "mcp__a")
    if is_list:
        inner = {"mode": "auto", "tools": [choice]}
        choice = {"type": "allowed_tools", **({"allowed_tools": inner} if dialect == "chat" else inner)}
    tools = [declare(dialect, name) for name in ("read", "draw", "mcp__a")]
    left, _ = drop(dialect, write(dialect, tools, tool_choice=choice))
    assert orjson.loads(left.body)["tools"] == [tools[0], tools[2]]


def test_legacy_functions_are_tools() -> None:
    """A called function stays, and without functions their choice goes."""
    functions = [{"name": "draw", "parameters": {}}, {"name": "mcp__a", "parameters": {}}]
    said = {"role": "assistant", "content": None, "function_call": {"name": "draw", "arguments": "{}"}}
    body = {
        "model": "m",
        "functions": functions,
        "function_call": "auto",
        "messages": [{"role": "user", "content": "x"}],
    }
    left, _ = drop("chat", orjson.dumps(body))
    assert orjson.loads(left.body).keys() == {"model", "messages"}
    body["messages"].append(said)
    left, _ = drop("chat", orjson.dumps(body))
    assert orjson.loads(left.body) == {**body, "functions": functions[:1]}


def test_tools_of_a_namespace_go_one_by_one() -> None:
    """An empty namespace goes whole. A glob matches the tool's name, alone or behind the namespace's."""
    inner = [declare("responses", "list"), declare("responses", "add")]
    spaces = [{"type": "namespace", "name": name, "tools": inner} for name in ("mcp__jira__", "git__")]
    body = write("responses", [*spaces, {"type": "web_search"}], *call("responses", "add"))
    assert orjson.loads(drop("responses", body)[0].body)["tools"] == [
        {**spaces[0], "tools": inner[1:]}, spaces[1], {"type": "web_search"}
    ]  # fmt: skip
    assert orjson.loads(drop("responses", body, ("list",))[0].body)["tools"] == [
        {**spaces[0], "tools": inner[1:]}, {**spaces[1], "tools": inner[1:]}, {"type": "web_search"}
    ]  # fmt: skip
    quiet = write("responses", [*spaces, {"type": "web_search"}])
    assert orjson.loads(drop("responses", quiet)[0].body)["tools"] == [spaces[1], {"type": "web_search"}]


def test_a_cache_marker_moves_to_the_last_declaration_that_is_left() -> None:
    """Not to one that the model must search for, nor to one with a marker of its own."""
    read, later = declare("messages", "read"), declare("messages", "write", defer_loading=True)
    drawn = declare("messages", "draw", cache_control=MARKER)
    assert orjson.loads(drop("messages", write("messages", [read, later, drawn]))[0].body)["tools"] == [
        {**read, "cache_control": MARKER},
        later,
    ]
    longer = {**read, "cache_control": {**MARKER, "ttl": "1h"}}
    assert orjson.loads(drop("messages", write("messages", [longer, drawn]))[0].body)["tools"] == [longer]
    assert orjson.loads(drop("messages", write("messages", [drawn, read]))[0].body)["tools"] == [read]


def test_a_list_in_which_each_tool_must_be_searched_for_is_not_made() -> None:
    """Anthropic's API refuses it."""
    body = write("messages", [declare("messages", "read", defer_loading=True), declare("messages", "draw")])
    assert drop("messages", body)[0].body == body


def test_a_tool_that_a_result_refers_to_stays() -> None:
    """Anthropic's API refuses a reference to an undeclared tool."""
    found = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "tool_reference", "tool_name": "mcp__a"}]}
    asked, _ = call("messages", "read")
    tools = [declare("messages", name) for name in ("read", "draw", "mcp__a")]
    left, _ = drop("messages", write("messages", tools, asked, {"role": "user", "content": [found]}))
    assert orjson.loads(left.body)["tools"] == [tools[0], tools[2]]


@pytest.mark.parametrize(
    "body",
    [
        b'{"tools":5,"messages":[]}',
        b'{"tools":[5,null,"draw",{"name":5}],"messages":[]}',
        b'{"tools":[{"name":"draw"}],"tools":[{"name":"draw"}],"messages":[]}',
        b'{"to\\u006fls":[{"name":"draw"}],"messages":[]}',
        b'{"messages":[]}',
    ],
)
def test_what_is_not_understood_stays(body: bytes) -> None:
    assert drop("chat", body)[0].body == body


def test_used_names_are_those_of_calls_results_and_references() -> None:
    """Long parts are not searched."""
    part = b'{"type":"server_tool_use","name":"web_search"}'
    reference = b'{"type":"tool_reference","tool_name":"fly"}'
    long = b'{"type":"server_tool_use","name":"hidden","x":"%b"}' % (b"y" * 5000)
    messages = [
        Message(Role.ASSISTANT, tool_calls=(ToolCall("1", "read", "{}"),), media=(Media(part, 1), Media(long, 1))),
        Message(Role.TOOL, ("x",), name="write"),
        Message(Role.USER, ("x",), name="bob", media=(Media(reference, 1),)),
    ]
    assert find_used(messages) == {"read", "write", "web_search", "fly"}


def test_a_list_is_read_once() -> None:
    """The second request with the same list looks both results up, and gets equal bytes."""
    memo = dict[Any, Any]()
    raw = orjson.dumps([declare("chat", "draw"), declare("chat", "read")])
    body = b'{"tools":%b}' % raw
    lists = (ToolList(b'"tools"', raw, b"", ()),)
    first = drop_tools(body, None, lists, frozenset(), GLOBS, memo)
    assert drop_tools(body, None, lists, frozenset(), GLOBS, MappingProxyType(memo)) == first
    assert first[1] == 1


COUNTING = Counting(count_by_heuristic, make_known())
REFERENCES = [{"type": "tool_reference", "tool_name": name} for name in ("dock", "lift", "dock")]


def test_references_and_declarations_in_a_transcript_load_tools() -> None:
    """In a result of the client's search, in one of the server's, and those in a namespace."""
    told = {"type": "tool_result", "tool_use_id": "s", "content": REFERENCES}
    found = {"type": "tool_search_tool_search_result", "tool_references": REFERENCES}
    for role, block in (("user", told), ("assistant", {**told, "type": "tool_search_tool_result", "content": found})):
        (message,) = decode_element(COUNTING, orjson.dumps({"role": role, "content": [block]}))
        assert message.loads == ("dock", "lift")
    inner = {"type": "function", "name": "lift", "parameters": {}}
    tools = [{"type": "function", "name": "dock"}, {"type": "namespace", "name": "mcp__port", "tools": [inner]}, 7]
    items = [
        {"type": "tool_search_call", "call_id": "s"},
        {"type": "tool_search_output", "call_id": "s", "tools": tools},
    ]
    (message,) = decode_unit(COUNTING, b",".join(map(orjson.dumps, items)))
    assert message.loads == ("dock", "mcp__port", "lift")


@pytest.mark.parametrize(
    "raw",
    [
        b'{"content":"tool_reference"}',
        orjson.dumps({"type": "tool_use", "input": REFERENCES}),
        b"[" * 2000 + b'{"type":"tool_reference"}' + b"]" * 2000,
        b'{"type":"tool_reference"',
    ],
)
def test_what_only_looks_like_it_loads_nothing(raw: bytes) -> None:
    """Arguments of a call, odd values, and what cannot be decoded."""
    assert find_referenced(raw) == ()


def test_calls_of_a_server_connect_a_message_with_others_unless_their_pair_is_in_it() -> None:
    """A call of the client goes on with the server's call that has made it."""
    blocks = [
        {"type": "server_tool_use", "id": "a"},
        {"type": "web_search_tool_result", "tool_use_id": "a"},
        {"type": "mcp_tool_use", "id": "b"},
        {"type": "mcp_tool_result", "tool_use_id": "c"},
        {"type": "tool_use", "id": "d", "caller": {"tool_id": "e"}},
        {"type": "tool_result", "tool_use_id": "d"},
    ]
    found = [
        find_served(orjson.dumps(some), map(decode_members, map(orjson.dumps, some))) for some in (blocks, blocks[:2])
    ]
    assert found == [Served(("b",), ("c",), ("e",)), NOT_SERVED]


DEEPER = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    "arguments",
    ["", "ls  -l", '{"a":', '{ "a":1 } x', '{ "a" : "\ud83d" }', " " * MAX_COMPACTED_CHARS + "1", DEEPER.decode()],
    ids=lambda arguments: f"{len(arguments)}_{arguments[:9]!a}",
)
def test_arguments_that_are_no_json_or_very_long_are_counted_as_written(arguments: str) -> None:
    call = ToolCall("1", "f", arguments)
    assert as_counted(call) is call


@pytest.mark.parametrize(
    ("schema", "counted"),
    [
        ({"type": "object", "additionalProperties": False}, {"type": "object"}),
        ({"type": "object", "title": "Top"}, {"title": "Top", "type": "object"}),
        ({"properties": {"a": {"title": "A", "type": "string"}}}, {"properties": {"a": {"type": "string"}}}),
        ({"properties": {"title": {"title": "T"}}}, {"properties": {"title": {}}}),
        ({"anyOf": [{"title": "A", "additionalProperties": {}, "a": 1}, 5]}, {"anyOf": [{"a": 1}, 5]}),
        ({"items": {"properties": {"properties": {"title": "P"}}}}, {"items": {"properties": {"properties": {}}}}),
    ],
)  # fmt: skip
def test_a_response_format_is_counted_as_models_read_it(schema: Any, counted: Any) -> None:
    """The schema's own title comes first; titles of its parts are dropped. A property may be named `title`."""
    assert list(read_format({"schema": schema, "strict": True})) == [orjson.dumps(counted).decode()]


@pytest.mark.parametrize(
    ("described", "texts"),
    [
        ({}, []),
        ({"name": "n", "schema": [{}]}, []),
        ({"name": "n", "schema": {}}, ["n", "{}"]),
        ({"schema": {}, "description": "d", "name": "n"}, ["n", "d", "{}"]),
    ],
)
def test_a_format_without_a_schema_costs_nothing(described: Any, texts: list[str]) -> None:
    """With a schema, its name and description are counted if they are texts, and the schema."""
    assert list(read_format(described)) == texts


@given(odd_objects("schema", "name", "properties", "title", "$defs").filter(lambda value: isinstance(value, dict)))
def test_any_format_is_read(described: dict[str, Any]) -> None:
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


NAMED = {"type": "function", "function": {"name": "f"}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}


@pytest.mark.parametrize(
    ("choice", "name", "is_forced"),
    [
        ("none", NO_CHOICE, False),
        ("required", None, True),
        (NAMED, "f", True),
        ({"type": "tool", "name": "f"}, "f", True),
        ({"type": "none"}, NO_CHOICE, False),
        (ALLOWED, None, False),
        ({"type": "allowed_tools", "mode": "required"}, None, True),
    ],
)
def test_a_choice_names_a_tool_or_forces_a_call(choice: Any, name: str | None, *, is_forced: bool) -> None:
    assert (read_choice(choice), forces_call(choice)) == (name, is_forced)


FORM = {"type": "json_schema", "name": "n", "schema": {"type": "object", "properties": {"a": {"type": "string"}}}}
NONE = {"tool_choice": "none"}
IN_CHAT = {"response_format": {"type": "json_schema", "json_schema": FORM}}
IN_RESPONSES, IN_MESSAGES = {"text": {"format": FORM}}, {"output_config": {"format": FORM}}


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "gpt-4o"])
@pytest.mark.parametrize(
    "members",
    [
        {"chat": {}, "responses": {}, "messages": {}},
        {"chat": NONE, "responses": NONE, "messages": {"tool_choice": {"type": "none"}}},
        {dialect: {"tool_choice": choose(dialect, "read")} for dialect in ("chat", "responses", "messages")},
        {"chat": IN_CHAT, "responses": IN_RESPONSES, "messages": IN_MESSAGES},
    ],
)  # fmt: skip
def test_a_conversation_costs_the_same_in_each_dialect(model: str, members: dict[str, dict[str, object]]) -> None:
    """Messages, calls, results, tools, the choice of a tool and the output format."""
    counted = []
    for dialect, more in members.items():
        counting = Counting(len, make_known(), find_family(model).costs)
        body = write(dialect, [declare(dialect, "read")], *call(dialect, "read"), **more)
        codec = name_codec(dialect)
        transcript = codec.decode(codec.read(body), counting)
        counted.append(([message.tokens for message in transcript.messages], transcript.fixed_tokens))
    assert counted[0] == counted[1] == counted[2]
