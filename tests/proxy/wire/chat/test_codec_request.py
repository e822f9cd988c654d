"""Chat requests: bytes <-> Conversation."""

from dataclasses import replace

import orjson
import pytest

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.compactor import Compacted, Compactor
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.chat.codec import CHAT, drop_thinking
from trimtab.proxy.wire.chat.message import decode_message
from trimtab.proxy.wire.codec import Counting
from trimtab.rules.conversation import Message, Role, ToolCall
from trimtab.rules.policy import OverflowStrategy, Policy
from trimtab.rules.tokens.families import GENERIC

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


def test_what_stands_outside_the_messages_is_read() -> None:
    """Model, stream, the completion limit under either key, and the JSON that costs tokens."""
    body = (
        b'{"tools":[ {"a":1} ],"functions":null,"tool_choice":"none","response_format":{},"max_tokens":5,'
        b'"messages":[],"model":"m"}'
    )
    request = CHAT.read(body)
    other = CHAT.read(b'{"messages":[],"max_completion_tokens":7,"max_tokens":5,"stream":true,"model":3}')

    assert (request.model, request.stream, request.max_tokens, request.is_reasoning) == ("m", False, 5, False)
    assert (request.raws, request.fixed) == ((), (b'[ {"a":1} ]', b"", b'"none"', b"", b"{}"))
    assert (other.model, other.stream, other.max_tokens) == ("", True, 7)
    assert other.is_reasoning


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
