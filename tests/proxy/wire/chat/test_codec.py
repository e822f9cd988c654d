"""The dialects of chat completions and of Messages stay in their folders."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import orjson
import pytest

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.compactor import Compacted, Compactor
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.answering import PROMPT_TOO_LONG, ErrorText
from trimtab.proxy.wire.chat.codec import CHAT, drop_thinking
from trimtab.proxy.wire.chat.message import decode_message
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.overflow import Kind, Overflow
from trimtab.rules.conversation import Message, Role, ToolCall
from trimtab.rules.policy import OverflowStrategy, Policy
from trimtab.rules.tokens.families import GENERIC

ROOT = Path(__file__).parents[4]
OF_THE_DIALECT = ("proxy/wire/", "proxy/cli/demo")
"""The dialect's own folder; the demo is a server that speaks it."""
WIRE_NAMES = frozenset(
    {
        "choices", "tool_calls", "tool_call_id", "function_call", "tool_choice", "response_format",
        "max_completion_tokens", "finish_reason", "delta", "reasoning_content", "chat.completion",
        "chat.completion.chunk",
    }
)  # fmt: skip
"""Names of members in a chat completion's request and answer, without words that mean much else."""
MESSAGES_NAMES = frozenset(
    {
        "tool_use", "tool_result", "tool_use_id", "redacted_thinking", "input_schema", "stop_reason",
        "content_block_delta", "message_start", "message_delta", "partial_json", "x-anthropic-billing-header",
        "output_format", "max_tokens_to_sample", "server_tool_use",
    }
)  # fmt: skip
"""Names that only the dialect of Messages has."""
_PATH = re.compile(r"chat/completions")
ALLOWED = {
    ("proxy/config/schema.py", "chat/completions"): "paths that a user need not name, and that our own pages keep off",
    ("proxy/config/values.py", "chat/completions"): "an address that users paste into the configuration",
    ("proxy/models/tokenizer.py", "tool_calls"): "what a server's template is asked for",
    ("proxy/models/tokenizer.py", "tool_call_id"): "the same",
    ("proxy/cli/serving/agents.py", "chat/completions"): "the end of an address in an agent's settings",
    ("proxy/cli/evaluate/rehearsal.py", "response_format"): "the file that a user has recorded is a request of it",
    ("proxy/cli/evaluate/rehearsal.py", "tool_choice"): "the same",
    ("proxy/cli/evaluate/rehearsal.py", "function_call"): "the same",
    ("proxy/server/admin/api.py", "choices"): "what a reader of the dashboard may choose from",
    ("proxy/recall.py", "tool_choice"): "all dialects have it under this name",
    ("proxy/cli/records/inputs.py", "function_call"): "a file of requests of any dialect",
}
"""What may be named elsewhere, and why."""
ALLOWED_OF_MESSAGES = {
    ("proxy/wire/tools.py", "tool_use_id"): "servers that speak chat send blocks of this dialect",
    ("proxy/wire/chat/codec.py", "message_start"): "the same: with an event of this dialect in a stream of chat",
    ("proxy/wire/chat/message.py", "tool_use"): "the same: calls in a content are not read, and their results stay",
    ("proxy/wire/tools.py", "tool_use"): "the same: its input is the model's and loads no tool",
}


def _find_texts(path: Path) -> Iterator[str]:
    """The string constants of a module without docstrings, and the fields of its wire structures: values are frozen."""
    tree = ast.parse(path.read_text())
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in said:
            if isinstance(node.value, str | bytes):
                yield node.value if isinstance(node.value, str) else node.value.decode("latin-1")
        elif (
            isinstance(node, ast.ClassDef)
            and any("Struct" in ast.unparse(base) for base in node.bases)
            and ("wire" in path.parts or not any(keyword.arg == "frozen" for keyword in node.keywords))
        ):
            yield from (ast.unparse(one.target) for one in node.body if isinstance(one, ast.AnnAssign))


@cache
def _read_texts(path: Path) -> tuple[str, ...]:
    return tuple(_find_texts(path))


def _find_names(path: Path, names: frozenset[str]) -> Iterator[str]:
    for text in _read_texts(path):
        if text.strip("\"'") in names:
            yield text.strip("\"'")
        yield from _PATH.findall(text) if names is WIRE_NAMES else ()


@pytest.mark.parametrize(
    ("names", "own", "allowed"),
    [(WIRE_NAMES, OF_THE_DIALECT, ALLOWED), (MESSAGES_NAMES, "proxy/wire/messages/", ALLOWED_OF_MESSAGES)],
    ids=["chat", "messages"],
)
def test_no_file_outside_the_dialect_names_its_fields(names, own, allowed) -> None:
    """Rules and proxy get everything about a request through the codec, under its own names."""
    modules = [path for package in ("proxy", "rules") for path in sorted((ROOT / package).rglob("*.py"))]
    found = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in modules
        if not path.relative_to(ROOT).as_posix().startswith(own)
        for name in _find_names(path, names)
    }
    assert found == set(allowed)


@pytest.mark.parametrize(("folder", "names"), [("chat", WIRE_NAMES), ("messages", MESSAGES_NAMES)])
def test_the_dialect_itself_is_found_out(folder: str, names: frozenset[str]) -> None:
    """The test above can fail: in its own folder most of its names are found."""
    modules = (ROOT / "proxy" / "wire" / folder).glob("*.py")
    found = {name for path in modules for name in _find_names(path, names)}
    assert len(found) > len(names) / 2


def test_texts_in_other_forms_are_read() -> None:
    """The input of a custom tool is text that the model wrote; Mistral's models that think stream parts."""
    call = {"index": 0, "type": "custom", "custom": {"name": "sh", "input": "ls -l"}}

    _, pieces = CHAT.read_answer(orjson.dumps({"choices": [{"delta": {"tool_calls": [call]}}]}), None)
    assert sorted(piece.text for piece in pieces or ()) == ["ls -l", "sh"]
    parts = b'[{"type":"thinking","thinking":[]},{"type":"text","text":"Hi"},{"type":"text","text":" there"}]'
    _, pieces = CHAT.read_answer(b'{"choices":[{"delta":{"content":%b}}]}' % parts, None)
    assert [(piece.place, piece.text) for piece in pieces or ()] == [((0, "content"), "Hi there")]


def test_an_answer_of_200_is_an_overflow_if_it_is_empty_at_the_windows_end_or_an_error() -> None:
    """A response with choices is a completion, whatever other members it has."""

    def answer(content: str) -> bytes:
        choice = {"finish_reason": "model_context_window_exceeded", "message": {"content": content}}
        return orjson.dumps({"choices": [choice]})

    assert CHAT.read_refusal(200, answer("")) == Overflow(Kind.PROMPT)
    wrote = orjson.loads(answer("")) | {"usage": {"prompt_tokens": 3000, "completion_tokens": 125_000}}
    assert CHAT.read_refusal(200, orjson.dumps(wrote)) is None  # the window filled with what the model thought
    assert CHAT.read_refusal(200, answer("Half a")) is None
    event = answer("Half a").replace(b'"message"', b'"delta"')
    assert CHAT.read_refusal(200, event) is None
    error = {"error": {"message": "prompt is too long: 5000 tokens > 4096 maximum"}}

    assert CHAT.read_refusal(200, orjson.dumps(error)) == CHAT.read_refusal(400, orjson.dumps(error))
    assert CHAT.read_refusal(200, orjson.dumps({**error, "choices": []})) is None


def test_an_error_is_written_in_openais_form() -> None:
    """A prompt that is too long has the code and the parameter that clients look for; an event says the same."""
    error = ErrorText('too long: "ü"', PROMPT_TOO_LONG)
    said = {"message": 'too long: "ü"', "type": "invalid_request_error", "param": "messages", "code": PROMPT_TOO_LONG}

    body = CHAT.write_error(error, as_event=False)
    assert orjson.loads(body) == {"error": said}
    assert CHAT.write_error(error, as_event=True) == b"data: " + body + b"\n\n"


# Chat requests: bytes <-> Conversation.

SYSTEM = b'{ "role": "system",\n  "content": "Be \\"brief\\" ]}, \\u00e9 \\\\" }'
USER = b'{"content":"hi","role":"user","content":"h\xc3\xa9llo","seed":123456789012345678901234567890}'
CALLER = (
    b'{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function",'
    b'"function":{"name":"ls","arguments":"{\\"a\\": 1}"}}],"x_unknown":{"b":1.50,"a":null}}'
)
RESULT = b'{"tool_call_id":"c1","content":"a.txt\\nb.txt","role":"tool","name":"ls"}'


@pytest.fixture
def counting() -> Counting:
    return Counting(count_by_heuristic, make_known())


def _body(*messages: bytes) -> bytes:
    return b'{"model":"m","messages":[' + b",".join(messages) + b"]}"


def _decode(raw: bytes) -> Message:
    return decode_message(raw, count_by_heuristic, GENERIC.costs)


def test_a_message_is_decoded_to_what_it_says() -> None:
    """Role, texts, calls, answer and name, with the client's own bytes; the last of duplicate keys wins."""
    kept = [replace(_decode(raw), digest=b"", tokens=0, has_reasoning=False) for raw in (SYSTEM, USER, CALLER, RESULT)]

    assert kept == [
        Message(Role.SYSTEM, ('Be "brief" ]}, é \\',), raw=SYSTEM),
        Message(Role.USER, ("héllo",), raw=USER),
        Message(
            Role.ASSISTANT,
            tool_calls=(ToolCall("c1", "ls", '{"a": 1}'),),
            raw=CALLER,
            beside=(("reasoning_content", b'" "'),),
        ),
        Message(Role.TOOL, ("a.txt\nb.txt",), answers="c1", name="ls", raw=RESULT),
    ]


CALLED = b'"function_call":{"name":"draw","arguments":"{}"}'


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (b'{"role":"assistant","content":null,' + CALLED + b"}", [b"draw"]),
        (b'{"role":"user","content":"x",' + CALLED + b"}", []),
        (b'{"role":"assistant","content":"\\"function_call\\" draw"}', []),
        (b'{"role":"assistant","content":"x","function_call":{"name":5}}', []),
        (CALLER[:-1] + b"," + CALLED + b"}", [b"ls"]),
    ],
)
def test_a_function_that_was_called_in_the_legacy_form_keeps_its_declaration(
    said: bytes, kept: list[bytes], counting: Counting
) -> None:
    """Only an answer calls it, by a name, and not beside calls in the newer form."""
    body = b'{"functions":[{"name":"draw"},{"name":"other"},{"name":"ls"}],' + _body(USER, said)[1:]
    request = CHAT.read(body)
    left, saved = CHAT.drop_tools(request, CHAT.decode(request, counting), ("*",), counting)

    assert [name for name in (b"draw", b"other", b"ls") if b'{"name":"%s"}' % name in left] == kept
    assert saved > 0


@pytest.mark.parametrize(
    ("options", "asks_usage"),
    [
        ('{"include_usage":true}', True),
        ('{"include_usage":1}', False),
        ('"x"', False),
    ],
)
def test_a_request_may_want_its_usage(options: str, *, asks_usage: bool) -> None:
    """A value of another type does not count; the upstream decides about it."""
    assert CHAT.read(b'{"messages":[],"stream_options":%b}' % options.encode()).asks_usage is asks_usage


PRUNES = Policy(context_window=4_000, completion_reserve=0, overflow_strategy=OverflowStrategy.PRUNE)
SEALED = {"thinking_blocks": [{"type": "thinking", "thinking": "so", "signature": "c2ln"}]}
DETAILS = {"reasoning_details": [{"type": "reasoning.text", "text": "so", "signature": "c2ln"}]}
TEXT = "".join(f"line {number}: nothing of note in here\n" for number in range(12))


def _compact(model: str, beside: dict[str, object], steps: int = 60) -> Compacted:
    messages: list[dict[str, object]] = [{"role": "user", "content": "Run all."}]
    for step in range(steps):
        call = {"id": f"c{step}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": "so", **beside, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{step}", "content": f"{step}\n{TEXT}"})
    compactor = Compactor(count_by_heuristic)
    request = CHAT.read(orjson.dumps({"model": model, "messages": messages}))
    return compactor.apply(compactor.plan(request, PRUNES), None)


@pytest.mark.parametrize("beside", [SEALED, DETAILS])
def test_all_thinking_is_left_out_once_something_before_was_changed(beside):
    """Of all messages alike, and nothing else. A transcript that stays keeps it, and so does that of another model."""
    compacted = _compact("anthropic/claude-opus-5.5", beside)
    other = _compact("anthropic/claude-opus-4.8", beside)
    assert [one.rule for one in compacted.decisions] == [*(one.rule for one in other.decisions), "thinking"]
    left, messages = orjson.loads(compacted.body)["messages"], orjson.loads(other.body)["messages"]
    assert left == [{name: value for name, value in one.items() if name not in beside} for one in messages]
    assert any(name in one for name in beside for one in messages)
    short = _compact("anthropic/claude-opus-5.5", beside, steps=2)
    assert "thinking" not in {one.rule for one in short.decisions}


def test_only_answers_lose_members():
    """A text that names them is no member."""
    for raw in (b'{"role":"user","thinking_blocks":[]}', b'{"role":"assistant","content":"\\"thinking_blocks\\""}'):
        assert drop_thinking(raw) == raw
