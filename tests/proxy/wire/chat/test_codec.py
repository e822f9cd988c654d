"""The dialects of chat completions and of Messages stay in their folders."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.wire.answering import PROMPT_TOO_LONG, ErrorText
from trimtab.proxy.wire.answers.tap import Tap
from trimtab.proxy.wire.answers.usage import Usage
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.messages.codec import COUNT_TOKENS, MESSAGES
from trimtab.proxy.wire.overflow import Kind, Overflow

ROOT = Path(__file__).parents[4]
OF_THE_DIALECT = ("proxy/wire/", "proxy/cli/demo")
"""The dialect's own folder; the demo is a server that speaks it."""
WIRE_NAMES = frozenset(
    {
        "messages", "choices", "content", "tool_calls", "tool_call_id", "function_call", "functions", "tools",
        "tool_choice", "response_format", "max_tokens", "max_completion_tokens", "finish_reason", "delta",
        "reasoning_content", "refusal", "chat.completion", "chat.completion.chunk",
    }
)  # fmt: skip
"""Names of members in a chat completion's request and answer."""
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
    ("proxy/config/schema.py", "messages"): "the name of a dialect",
    ("proxy/config/validation.py", "tools"): "a key of the configuration",
    ("proxy/config/values.py", "chat/completions"): "an address that users paste into the configuration",
    ("proxy/config/policy.py", "messages"): "the name of a dialect",
    ("proxy/models/tokenizer.py", "messages"): "what a server's template is asked for",
    ("proxy/models/tokenizer.py", "content"): "the same",
    ("proxy/models/tokenizer.py", "tools"): "the same",
    ("proxy/models/tokenizer.py", "tool_calls"): "the same: some templates leave calls out",
    ("proxy/models/tokenizer.py", "tool_call_id"): "the same",
    ("proxy/cli/doctor.py", "tools"): "a word of our own table: what a template leaves out",
    ("proxy/summaries/summariser.py", "max_tokens"): "the refused name by which a model that thinks is known",
    ("proxy/cli/serving/agents.py", "chat/completions"): "the end of an address in an agent's settings",
    ("proxy/cli/evaluate/rehearsal.py", "response_format"): "the file that a user has recorded is a request of it",
    ("proxy/cli/evaluate/rehearsal.py", "tool_choice"): "the same",
    ("proxy/cli/evaluate/rehearsal.py", "function_call"): "the same",
    ("proxy/server/admin/api.py", "choices"): "what a reader of the dashboard may choose from",
    ("rules/summary/handoff.py", "refusal"): "why a text is no note",
    ("rules/results/kinds.py", "content"): "a common name of a tool's argument",
    ("rules/summary/files.py", "content"): "the same",
    ("rules/summary/task_items.py", "content"): "the same: where the words of a task stand",
    ("rules/summary/task_list.py", "content"): "the same: where a list stands as text",
    ("proxy/telemetry/spans.py", "messages"): "the name of a dialect",
    ("proxy/account/outcome.py", "messages"): "a figure of our own: how many messages the client sent",
    ("proxy/exchange/tell.py", "max_tokens"): "a figure of our own: the limit that a request sets",
    ("proxy/exchange/for_caller.py", "content"): "a contract of LiteLLM's, which has messages in this form only",
    ("proxy/recall.py", "tool_choice"): "all dialects have it under this name",
    ("proxy/exchange/for_caller.py", "messages"): "what a caller sends is known by it; and a figure of our own",
    ("proxy/exchange/tell.py", "messages"): "a field of our own event: how many messages the client sent",
    ("proxy/server/admin/shapes.py", "messages"): "the same field",
    ("proxy/cli/records/inspect.py", "messages"): "a word of our own table",
    ("proxy/cli/bodies.py", "messages"): "what to do about a body that cannot be read, in a message",
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


def test_counting_has_a_path_of_its_own() -> None:
    assert (MESSAGES.ending, MESSAGES.is_count) == ("/messages", False)
    assert (COUNT_TOKENS.ending, COUNT_TOKENS.is_count) == ("/messages/count_tokens", True)


# Reading the response to a chat completion.


def _delta(index: int = 0, **delta: object) -> dict[str, object]:
    return {"choices": [{"index": index, "delta": delta}]}


def _call(**function: object) -> dict[str, object]:
    return {"tool_calls": [{"index": 0, "function": function}]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10, "x": {"y": 1}}}
EVENTS = [
    _delta(role="assistant", content=""),
    _delta(content="héllo ") | {"usage": None},
    _delta(content="wörld\n"),
    _delta(1, content="other"),
    _delta(reasoning_content="because"),
    _delta(reasoning=" so"),
    _delta(refusal="no"),
    _delta(**_call(name="ls", arguments="")),
    _delta(**_call(arguments='{"a":')),
    _delta(**_call(arguments="1}")),
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    USAGE,
]
TEXTS = sorted(["héllo wörld\n", "other", "because so", "no", "ls", '{"a":1}'])


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


BODIES = [
    _write(EVENTS, tail=b"data: [DONE]\n\n"),
    _write(EVENTS, end=b"\r\n", tail=b"data: [DONE]\r\n\r\n"),
    _write(EVENTS, space=b""),
    _write(EVENTS)[:-2],
    b": ping\n\n" + _write(EVENTS).replace(b"data:", b": keep-alive\nevent: x\nid: 1\nretry: 5\ndata:") + b"\n\n\n",
    _write(EVENTS).replace(b',"delta"', b',\ndata: "delta"'),
    b"data: {bad\n\ndata\n\ndata: [1]\n\nnonsense: x\n\n" + _write(EVENTS) + b'data: {"error":{"message":"x"}}\n\n',
]


@given(st.sampled_from(BODIES), st.lists(st.integers(0, 3000), max_size=30).map(sorted))
def test_the_chunks_do_not_matter(body: bytes, cuts: list[int]) -> None:
    """The result is the same if the stream is cut within a character or a line end."""
    places = [0, *(min(cut, len(body)) for cut in cuts), len(body)]
    chunks = [body[start:stop] for start, stop in pairwise(places)]

    assert _read(*chunks) == (Usage(7, 3), TEXTS)


@pytest.mark.parametrize("body", BODIES)
def test_single_bytes_do_not_matter(body: bytes) -> None:
    """The finest cut of all."""
    assert _read(*(body[at : at + 1] for at in range(len(body)))) == (Usage(7, 3), TEXTS)


@given(
    st.lists(st.binary(max_size=40) | st.sampled_from([b"data:", b"\n", b"{}", b'{"usage":', b"\r\n\r\n"])),
    st.booleans(),
)
def test_garbage_never_raises(chunks: list[bytes], is_stream: bool) -> None:  # noqa: FBT001 - hypothesis gives it
    """Nothing is found in garbage, and nothing is raised."""
    assert _read(*chunks, is_stream=is_stream)[1] == []


@pytest.mark.parametrize(
    "event",
    [
        b'{"usage":{"prompt_tokens":"7"}}',
        b'{"usage":[]}',
        b'{"choices":{}}',
        b'{"choices":[null]}',
        b'{"choices":[{"delta":5}]}',
        b'{"choices":[{"delta":{"content":"\xff"}}]}',
        b'{"choices":' + b"[" * 5000,
        b"\xff\xfe",
        b"NaN",
    ],
)
def test_an_event_of_another_form_is_passed_over(event: bytes) -> None:
    """Nothing is raised, and the other events are read."""
    assert _read(b"data: " + event + b"\n\n" + _write(EVENTS)) == (Usage(7, 3), TEXTS)


def test_the_last_usage_counts() -> None:
    """Some upstreams report it in every chunk. A later null does not remove it."""
    chunks = [{"usage": {"completion_tokens": number}} for number in (1, 2)] + [{"usage": None}]

    assert _read(_write(chunks)) == (Usage(None, 2), [])


def test_the_usage_is_found_beside_content_of_another_form() -> None:
    """An upstream whose content is a list of parts reports its usage all the same."""
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]
    answer = {"choices": [{"index": 0, "message": {"role": "assistant", "content": parts}}], "usage": USAGE["usage"]}

    assert _read(orjson.dumps(answer), is_stream=False)[0] == Usage(7, 3)


@pytest.mark.parametrize(
    ("deltas", "reasoning_tokens", "sent"),
    [
        ([{"content": "x" * 40}], 0, 1000),
        ([{"content": "x" * 40}], 990, 10),
        ([{"content": "x" * 40}], 1, 999),
        ([{"reasoning": "y" * 4000}, {"content": "x" * 40}], 990, 1000),
        ([{"reasoning_content": "summary"}, {"content": "x" * 40}], 990, None),
        ([{"content": "x" * 40}], "many", 1000),
    ],
    ids=["no reasoning", "hidden", "a token of it hidden", "sent whole", "sent as a summary", "of another form"],
)
def test_tokens_of_reasoning_that_was_not_sent_are_told_apart(
    deltas: list[dict[str, str]], reasoning_tokens: object, sent: int | None
) -> None:
    """The completion has a thousand tokens. If only part of its reasoning was sent, the number is unknown."""
    usage = {"completion_tokens": 1000, "completion_tokens_details": {"reasoning_tokens": reasoning_tokens}}
    tap = Tap.of(CHAT, is_stream=True)
    tap.feed(_write([_delta(**delta) for delta in deltas] + [{"choices": [], "usage": usage}]))
    tap.finish()

    assert tap.find_sent_tokens(1000) == sent


def test_a_number_that_cannot_be_is_no_usage() -> None:
    """A number beyond 64 bits is not a count of tokens, and could not be logged."""
    usage, _ = _read(b'data: {"usage":{"completion_tokens":%d}}\n\n' % 10**30)

    assert usage is None or usage.completion_tokens is None


def test_custom_tool_calls_are_counted() -> None:
    """The input of a custom tool is text that the model wrote."""
    call = {"index": 0, "type": "custom", "custom": {"name": "sh", "input": "ls -l"}}

    assert _read(_write([_delta(tool_calls=[call])]))[1] == ["ls -l", "sh"]


def test_an_answer_that_is_no_stream_is_read_whole() -> None:
    """Usage and texts of every choice, in whatever chunks it came."""
    message = {"content": "hi", "reasoning_content": "hm", **_call(name="ls", arguments="{}")}
    choices = [{"index": 0, "message": message}, {"index": 1, "message": {"content": "ho", "tool_calls": None}}]
    body = orjson.dumps({"id": "1", "choices": choices, "usage": USAGE["usage"]}, option=orjson.OPT_INDENT_2)

    expected = (Usage(7, 3), ["hi", "hm", "ho", "ls", "{}"])
    assert _read(body, is_stream=False) == expected
    assert _read(*(body[at : at + 3] for at in range(0, len(body), 3)), is_stream=False) == expected


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"null", b"[]", b"<html>", b'{"choices":null,"usage":null}', b'{"usage":{}']
)
def test_an_answer_without_anything_has_nothing(body: bytes) -> None:
    """It has neither usage nor text."""
    assert _read(body, is_stream=False) == (None, [])


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


@given(st.binary(max_size=40) | st.sampled_from([b"[]", b"[1]", b'{"choices":5}', b'{"choices":[[]]}', b'"x"']))
def test_no_answer_makes_reading_its_refusal_fail(body: bytes) -> None:
    """For any bytes."""
    for status in (200, 400, 500):
        assert isinstance(CHAT.read_refusal(status, body), Overflow | None)


SILENT = [
    {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
    _delta(role="assistant"),
    _delta(role="assistant", content="", refusal=None, tool_calls=[]) | {"usage": None},
    {"choices": [{"index": 0, "delta": {"content": ""}, "logprobs": None, "finish_reason": None}], "error": None},
]
"""Chunks in which the model has said nothing yet. Source: Azure's API, OpenAI's, vLLM's."""


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_an_error_behind_chunks_that_say_nothing_is_the_first_event(end: bytes) -> None:
    """Servers say who will speak before they have read the prompt."""
    error = {"error": {"message": "This model's maximum context length is 16 tokens", "code": 400}}
    first = CHAT.hold_first_event(keeps_all=False)
    assert first.feed(_write(SILENT, end)) == b""
    assert (first.is_done, first.is_greeted) == (False, True)
    first.feed(_write([error], end))
    assert first.is_done
    assert first.data is not None
    assert CHAT.read_refusal(200, first.data) is not None
    assert bytes(first.held) == _write([*SILENT, error], end)


@pytest.mark.parametrize(
    "event",
    [
        *EVENTS[1:],
        _delta(role="assistant", audio={"id": "a"}),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "delta": {"content": ""}}, {"index": 1, "delta": {"content": "x"}}]},
        {"choices": [{"index": 0, "text": "x"}]},
        {"choices": "odd"},
        {"choices": [7]},
    ],
)
def test_a_chunk_that_says_something_is_not_held(event: dict[str, object]) -> None:
    """Nor one of an unknown form."""
    first = CHAT.hold_first_event(keeps_all=False)
    first.feed(_write(SILENT[1:2]))
    first.feed(_write([event]).removesuffix(b"\n"))
    assert (first.is_done, first.data) == (True, None)


def test_a_stream_ends_with_done() -> None:
    """With whatever white space; nothing else is its end."""
    assert CHAT.is_end(b" [DONE]\r")
    assert not CHAT.is_end(b'{"choices":[]}')


def test_an_error_beside_no_choice_ends_the_wait() -> None:
    first = CHAT.hold_first_event(keeps_all=False)
    first.feed(_write([{"choices": [], "error": {"message": "busy"}}]))
    assert first.is_done


def test_a_content_in_parts_is_read_as_its_texts() -> None:
    """Mistral's models that think stream such parts."""
    parts = b'[{"type":"thinking","thinking":[]},{"type":"text","text":"Hi"},{"type":"text","text":" there"}]'
    _, pieces = CHAT.read_answer(b'{"choices":[{"delta":{"content":%b}}]}' % parts, None)
    assert [(piece.place, piece.text) for piece in pieces or ()] == [((0, "content"), "Hi there")]
