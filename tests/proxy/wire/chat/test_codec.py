"""The dialects of chat completions and of Messages stay in their folders."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import orjson
import pytest

from trimtab.proxy.wire.answering import PROMPT_TOO_LONG, ErrorText
from trimtab.proxy.wire.answers.tap import Tap
from trimtab.proxy.wire.answers.usage import Usage
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.overflow import Kind, Overflow

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


def _delta(index: int = 0, **delta: object) -> dict[str, object]:
    return {"choices": [{"index": index, "delta": delta}]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10, "x": {"y": 1}}}
EVENTS = [_delta(content="hi"), USAGE]
TEXTS = ["hi"]


def _read(*chunks: bytes, is_stream: bool = True) -> tuple[Usage | None, list[str]]:
    """The usage, and each text that is counted."""
    tap = Tap.of(CHAT, is_stream=is_stream)
    for chunk in chunks:
        tap.feed(chunk)
    tap.finish()
    texts: list[str] = []
    tap.count_completion(lambda text: len(texts.append(text) or text))
    assert tap.text_chars == sum(map(len, texts))
    return tap.usage, sorted(texts)


def _write(events: list[dict[str, object]], end: bytes = b"\n", space: bytes = b" ", tail: bytes = b"") -> bytes:
    return b"".join(b"data:" + space + orjson.dumps(event) + end + end for event in events) + tail


@pytest.mark.parametrize(
    "event",
    [
        b'{"usage":{"prompt_tokens":"7"}}',
        b'{"usage":[]}',
        b'{"choices":[{"delta":5}]}',
        b'{"choices":[{"delta":{"content":"\xff"}}]}',
        b'{"choices":' + b"[" * 5000,
        b"\xff\xfe",
    ],
)
def test_an_event_of_another_form_is_passed_over(event: bytes) -> None:
    """Nothing is raised, and the other events are read."""
    assert _read(b"data: " + event + b"\n\n" + _write(EVENTS)) == (Usage(7, 3), TEXTS)


def test_custom_tool_calls_are_counted() -> None:
    """The input of a custom tool is text that the model wrote."""
    call = {"index": 0, "type": "custom", "custom": {"name": "sh", "input": "ls -l"}}

    assert _read(_write([_delta(tool_calls=[call])]))[1] == ["ls -l", "sh"]


def test_an_answer_that_ended_before_it_began_is_an_overflow_and_one_that_was_cut_short_is_none() -> None:
    """The context window was full before the model wrote anything."""

    def answer(content: str) -> bytes:
        choice = {"finish_reason": "model_context_window_exceeded", "message": {"content": content}}
        return orjson.dumps({"choices": [choice]})

    assert CHAT.read_refusal(200, answer("")) == Overflow(Kind.PROMPT)
    wrote = orjson.loads(answer("")) | {"usage": {"prompt_tokens": 3000, "completion_tokens": 125_000}}
    assert CHAT.read_refusal(200, orjson.dumps(wrote)) is None  # the window filled with what the model thought
    assert CHAT.read_refusal(200, answer("Half a")) is None
    event = answer("Half a").replace(b'"message"', b'"delta"')
    assert CHAT.read_refusal(200, event) is None


def test_an_error_in_the_place_of_an_answer_is_read_unless_there_is_an_answer() -> None:
    """Some upstreams refuse with status 200; a response with choices is a completion, whatever other members it has."""
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


def test_a_content_in_parts_is_read_as_its_texts() -> None:
    """Mistral's models that think stream such parts."""
    parts = b'[{"type":"thinking","thinking":[]},{"type":"text","text":"Hi"},{"type":"text","text":" there"}]'
    _, pieces = CHAT.read_answer(b'{"choices":[{"delta":{"content":%b}}]}' % parts, None)
    assert [(piece.place, piece.text) for piece in pieces or ()] == [((0, "content"), "Hi there")]
