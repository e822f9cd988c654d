"""Messages of chat requests: which are refused, what they cost, and what their digest depends on."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.chat.message import (
    SEALED_CHARS_PER_TOKEN,
    decode_message,
    encode_message,
    read_tools_and_format,
)
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.tools import read_fixed
from trimtab.proxy.wire.transcript.body import UndecodableError
from trimtab.rules.conversation import Arguments, Message, Role, ToolCall
from trimtab.rules.tokens.families import GENERIC, find_family
from trimtab.rules.tokens.messages import LEGACY_CALL_TOKENS, MESSAGE_TOKENS, NAME_TOKENS, ROLE_TOKENS

FRAME = MESSAGE_TOKENS + ROLE_TOKENS
DEEP = b"[" * 100_000 + b"]" * 100_000


def _body(*messages: bytes) -> bytes:
    return b'{"model":"m","messages":[' + b",".join(messages) + b"]}"


def _decode(raw: bytes) -> Message:
    return decode_message(raw, count_by_heuristic, GENERIC.costs)


def _try(body: bytes) -> bool:
    """Whether a body can be decoded, edited and encoded; anything but UndecodableError passes through."""
    counting = Counting(count_by_heuristic, make_known())
    try:
        request = CHAT.read(body)
        original = CHAT.decode(request, counting)
        edited = [replace(message, texts=("new",), edited=True) for message in original.messages]
        encoded = b"".join(CHAT.encode(request, original, original.edit(edited)))
    except UndecodableError:
        return False
    assert len(CHAT.read(encoded).raws) == len(original.messages) == len(request.raws)
    return True


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"messages":null}',
        b'{"messages":"hi"}',
        b'{"x":' + DEEP + b',"messages":[]}',
        _body(b"5"),
        _body(b"{}"),
        _body(b'{"role":5}'),
        _body(b'{"role":"user"}', b'{"role":["user"]}'),
        _body(b'{"role":"user","content":"\xff"}'),
        _body(b'{"role":"user","content":' + DEEP + b"}"),
    ],
    ids=lambda body: body[:40].decode("latin-1") + f"_{len(body)}",
)
def test_what_is_no_chat_request_is_undecodable(body: bytes) -> None:
    """No JSON, no list of messages, a message that is no object with a role: one error for all of them."""
    assert not _try(body)


@pytest.mark.parametrize(
    "message",
    [
        b'{"role":"user","content":[{"type":["text"],"text":"x"}]}',
        b'{"role":"assistant","tool_calls":[{"function":{"arguments":{"n":%d}}}]}' % 10**30,
        b'{"role":"assistant","tool_calls":[{"type":"later","n":%d}]}' % 10**30,
        b'{"role":"user","seed":%d}' % 10**4000,
    ],
    ids=lambda message: message[:60].decode(),
)
def test_odd_values_do_not_keep_a_transcript_from_being_read(message: bytes) -> None:
    """Valid JSON is decoded, even if only an upstream can judge its values."""
    assert _try(_body(message))


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (b"null", ()),
        (b"[null,5,[]]", ()),
        (b'[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]', (ToolCall("1", "f", "{}"),)),
        (b'[{"id":"1","function":{"name":"f","arguments":{"a":[1]}}}]', (ToolCall("1", "f", '{"a":[1]}'),)),
        (
            b'[{"id":"1","function":{"name":"f"}},{"id":"2","function":{"arguments":""}}]',
            (ToolCall("1", "f", ""), ToolCall("2", "", "")),
        ),
        (b'[{"id":"1","type":"custom","custom":{"name":"sh","input":"ls"}}]', (ToolCall("1", "sh", "ls"),)),
        (b'[{"id":"1","type":"later","x":2}]', (ToolCall("1", "later", '{"id":"1","type":"later","x":2}'),)),
        (b'[{"id":null,"function":{"name":null,"arguments":null}}]', (ToolCall("", "", "null"),)),
    ],
)
def test_tool_calls_are_read_in_any_form(calls: bytes, expected: tuple[ToolCall, ...]) -> None:
    """Functions, custom tools, types yet to come, arguments that are not text. Other values are ignored."""
    assert _decode(b'{"role":"assistant","tool_calls":%s}' % calls).tool_calls == expected


ALL_MEMBERS = b'"cache_control":0,"prompt_cache_breakpoint":0,"index":0,"type":"function","custom":0'


@pytest.mark.parametrize(
    ("call", "shortens"),
    [
        (b'{"id":"1","function":{"name":"f","arguments":"{}","input":0},%b}' % ALL_MEMBERS, Arguments.JSON),
        (b'{"id":"1","custom":{"name":"sh","input":"ls"}}', Arguments.TEXT),
        (b'{"id":"1","function":{"name":"f","arguments":"{}"},"signature":"x"}', Arguments.FIXED),
        (b'{"id":"1","function":{"name":"f","arguments":"{}","signature":"x"}}', Arguments.FIXED),
        (b'{"id":"1","type":"later"}', Arguments.FIXED),
    ],
)
def test_arguments_of_a_call_with_unknown_members_or_reasoning_stay(call: bytes, shortens: Arguments) -> None:
    """A server may have signed the call."""
    (read,) = _decode(b'{"role":"assistant","tool_calls":[%b]}' % call).tool_calls
    assert read.shortens is shortens
    raw = (
        b'{"role":"assistant","thinking_blocks":[],"tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]}'
    )
    assert [call.shortens for call in _decode(raw).tool_calls] == [Arguments.FIXED]


def test_new_arguments_leave_all_else() -> None:
    """They are written as the client wrote the old ones. Content and other calls keep their bytes."""
    same = b'{ "id":"0","function":{"name":"f","arguments":"{}"} }'
    fixed = b'{ "id":"1","function":{"name":"f","arguments":"{\\"a\\":1}"},"x":1.50 }'
    said = b'{"id":2,"function":{"name":"f","arguments":"{\\"a\\":1}"}}'
    whole = b'{"id":"3","function":{"name":"f","arguments":{"a":1}}}'
    custom = b'{"id":"4","custom":{"name":"sh","input":"ls"}}'
    raw = b'{"role":"assistant","content":"\\u0041","tool_calls":[%b]}'
    message = _decode(raw % b",".join((same, b"null", fixed, said, whole, custom)))
    assert [call.id_json for call in message.tool_calls] == [b"", b"", b"2", b"", b""]

    calls = tuple(replace(call, arguments='{"a":2}') for call in message.tool_calls[1:])
    calls = (message.tool_calls[0], *calls[:-1], replace(calls[-1], arguments="rm"))
    new = said.replace(b":1}", b":2}"), whole.replace(b":1}", b":2}"), custom.replace(b"ls", b"rm")
    edited = replace(message, tool_calls=calls, edited=True)
    assert encode_message(edited) == raw % b",".join((same, b"null", fixed, *new))


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (b'{"role":"user","content":"%s"}' % (b"x" * 400), 100),
        (b'{"role":"user","content":[{"type":"text","text":"%s"}]}' % (b"x" * 400), 100),
        (b'{"role":"assistant","content":null,"reasoning_content":"%s"}' % (b"x" * 400), 100),
        (b'{"role":"assistant","reasoning":"%s","refusal":"xxxx"}' % (b"x" * 400), 101),
        (b'{"role":"user","name":"abcd"}', 1 + NAME_TOKENS),
        (
            b'{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"abcd","arguments":"%s"}}]}' % (b"x" * 40),
            GENERIC.costs.call_tokens + 1 + 4 + 10,
        ),
    ],
)
def test_every_text_is_counted(message: bytes, tokens: int) -> None:
    """Content, parts, reasoning, refusal, name and a call, which is read as a message to `functions.abcd`."""
    assert _decode(message).tokens == FRAME + tokens


BASE = b"""{"role":"user","tool_call_id":"1","content":[{"type":"text","text":"a"},
{"type":"image_url","image_url":{"url":"u","detail":"low"}}],
"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}"""


MARKERS = [b'"cache_control":{"type":"ephemeral"}', b'"prompt_cache_breakpoint":{"mode":"explicit"}']


@pytest.mark.parametrize("marker", MARKERS)
@pytest.mark.parametrize(
    "plain",
    [
        b'{"role":"user","content":[{"type":"text","text":"a"}]}',
        b'{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}',
        b'{"role":"user","content":[{"type":"later","x":1}]}',
        b'{"role":"assistant","tool_calls":[{"id":"c","type":"later","x":{}}]}',
    ],
)
def test_a_rolling_marker_changes_neither_digest_nor_tokens(plain: bytes, marker: bytes) -> None:
    """It moves to another message at each request, so parts that are counted by their JSON are counted without it."""
    marked = plain.replace(b'"type"', marker + b',"type"')
    assert marked != plain
    assert (_decode(marked).digest, _decode(marked).tokens) == (_decode(plain).digest, _decode(plain).tokens)


@pytest.mark.parametrize(
    "same",
    [
        orjson.dumps(orjson.loads(BASE), option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2),
        BASE.replace(b'{"url":"u","detail":"low"}', b'{"detail":"low", "url" : "\\u0075"}'),
        BASE.replace(b'"role"', b'"cache_control":{},"prompt_cache_breakpoint":{"mode":"explicit"},"role"'),
    ],
)
def test_the_digest_ignores_how_it_is_written(same: bytes) -> None:
    """Key order, white space, escapes and cache markers do not change the digest."""
    assert same != BASE
    assert _decode(same).digest == _decode(BASE).digest


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"user"', b'"assistant"'),
        (b'"text":"a"', b'"text":"b"'),
        (b'"tool_call_id":"1"', b'"tool_call_id":"2"'),
        (b'"id":"c"', b'"id":"d"'),
        (b'"name":"f"', b'"name":"g"'),
        (b'"arguments":"{}"', b'"arguments":"{ }"'),
        (b'"url":"u"', b'"url":"v"'),
        (b'"detail":"low"', b'"detail":"high"'),
        (b'"text":"a"}', b'"text":"a"},{"type":"text","text":""}'),
    ],
)
def test_the_digest_tells_what_was_said_apart(old: bytes, new: bytes) -> None:
    """Another role, text, answered call, call or image gives another digest."""
    assert old in BASE
    assert _decode(BASE.replace(old, new)).digest != _decode(BASE).digest


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b'"content":"error","is_error":true', True),
        (b'"content":"x","status":"error"', True),
        (b'"content":[{"type":"text","text":"x","is_error":true}]', True),
        (b'"content":[{"type":"text","text":"x"},{"type":"y","isError":true}]', True),
        (b'"content":"x","isError": true ', True),
        (b'"content":{"is_error":true}', False),
        (b'"content":"x","is_error":false,"isError":null,"status":"success"', False),
        (b'"content":"x","is_error":"true"', False),
        (b'"content":[{"type":"text","text":"is_error: true"}]', False),
    ],
)
def test_a_result_may_be_called_an_error(said: bytes, *, expected: bool) -> None:
    """Anthropic, MCP and LangChain do so, in the message or in a part. Only results can be errors."""
    assert _decode(b'{"role":"tool","tool_call_id":"a",' + said + b"}").is_error is expected
    assert not _decode(b'{"role":"user",' + said + b"}").is_error


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        (
            b'"reasoning":"so","reasoning_details":[{"type":"reasoning.text","text":"so"}]',
            {"reasoning": " ", "reasoning_details": []},
        ),
        (b'"thinking_blocks":[{}],"reasoning_content":""', {"reasoning_content": " ", "thinking_blocks": []}),
        (b'"reasoning_content":null,"reasoning":3', {}),
    ],
)
def test_a_message_of_ours_has_beside_it_what_the_clients_has(beside: bytes, expected: dict[str, object]) -> None:
    """The same members, each with an empty value of the same kind; none for a value that says nothing."""
    found = _decode(b'{"role":"assistant","content":"a",' + beside + b"}").beside
    made = encode_message(Message(Role.ASSISTANT, ("ours",), edited=True, beside=found))
    assert orjson.loads(made) == {"role": "assistant", "content": "ours", **expected}
    assert _decode(b'{"role":"user","content":"a",' + beside + b"}").beside == ()


def test_what_gateways_and_older_clients_write_otherwise_is_noticed() -> None:
    """The legacy form of calls has no id; blocks of Messages may be content parts. A member that is null is none."""
    legacy = b'"content":null,"function_call":{"name":"f","arguments":"{}"}'
    block = b'"content":[{"type":"tool_use","id":"t","name":"f","input":{}}]'
    assert all(_decode(b'{"role":"assistant",%b}' % call).has_unread_calls for call in (legacy, block))
    for other in (b'"function_call":null', b'"content":"a \\"tool_use\\"","tool_calls":[{"id":"a"}]'):
        assert not _decode(b'{"role":"assistant",%b}' % other).has_unread_calls
    called = b'{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"server_tool_use","id":"s"}]}'
    answered = b'{"role":"assistant","content":[{"type":"web_search_tool_result","tool_use_id":"s"}]}'
    assert (_decode(called).served.opens, _decode(answered).served.closes) == (("s",), ("s",))
    assert [_decode(b'{"role":"%b","tool_name":"f"}' % role).name for role in (b"tool", b"user")] == ["f", None]


# Which parts of a chat request's JSON are counted, and in which form.

GPT = find_family("gpt-4o").costs


def _message(**members: Any) -> int:
    return _raw_message(orjson.dumps({"role": "assistant", **members})) - _raw_message(b'{"role":"assistant"}')


def _raw_message(raw: bytes) -> int:
    return decode_message(raw, len, GPT).tokens


def _calls(*arguments: str) -> list[dict[str, Any]]:
    return [{"id": "1", "type": "function", "function": {"name": "run", "arguments": text}} for text in arguments]


@pytest.mark.parametrize(
    ("members", "same"),
    [
        ({"tool_calls": _calls('{"a": [1, 2],\n "b": {} }')}, {"tool_calls": _calls('{"a":[1,2],"b":{}}')}),
        (
            {"tool_calls": _calls('{ "a": " b " }', "{ }", "{}")},
            {"tool_calls": _calls('{"a":" b "}', "{}", "{ }")},
        ),
        ({"tool_calls": [{"custom": {"name": "run", "input": "ls  -l"}}]}, {"tool_calls": _calls("ls  -l")}),
        ({"role": "tool", "name": "read_file", "content": "x"}, {"role": "tool", "content": "x"}),
        ({"reasoning": "xyz", "reasoning_details": [{"text": "xyz"}]}, {"reasoning": "xyz"}),
        ({"reasoning_details": [{"type": "reasoning.text", "text": "xyz"}]}, {"reasoning_content": "xyz"}),
        ({"reasoning_details": [{"summary": "x"}, {"summary": "yz"}]}, {"reasoning": "xyz"}),
        ({"thinking_blocks": [{"type": "thinking", "thinking": "xyz", "signature": "s" * 99}]}, {"reasoning": "xyz"}),
        ({"reasoning_details": [5, None, {"text": 5}], "thinking_blocks": {"text": "x"}, "refusal": 7}, {}),
        ({"function_call": None, "tool_calls": None, "audio": None}, {}),
    ],
)
def test_what_says_the_same_costs_the_same(members: dict[str, Any], same: dict[str, Any]) -> None:
    """Arguments count without white space; reasoning counts once, wherever it is; a result's name does not count."""
    assert _message(**members) == _message(**same)


def test_legacy_calls_cost_their_texts_and_sealed_reasoning_its_length() -> None:
    """Arguments of another type are counted by their JSON."""
    assert _message(function_call={"name": "run", "arguments": "abc"}) == LEGACY_CALL_TOKENS + 6
    assert _message(function_call={"name": "run", "arguments": {"a": 1}}) == LEGACY_CALL_TOKENS + 3 + len('{"a":1}')
    assert _message(function_call={"name": "run"}) == LEGACY_CALL_TOKENS + 3
    sealed = {"type": "reasoning.encrypted", "data": "A" * 600}
    assert _message(reasoning_details=[sealed, {"text": "xyz"}]) == 600 // SEALED_CHARS_PER_TOKEN + 3


def test_lone_surrogates_are_counted_as_one_character() -> None:
    """They can occur in any text, and no tokenizer accepts them."""
    surrogate = rb'"\ud83d"'
    for key in (b"reasoning", b"name", b"content", b"refusal"):
        plain, damaged = (_raw_message(b'{"role":"user","%s":%s}' % (key, text)) for text in (b'"x"', surrogate))
        assert damaged == plain
    around = read_fixed((b'[{"function":{"name":%s}}]' % surrogate, b"", b"", b"", b""), read_tools_and_format)
    assert around.functions == [{"name": "\ufffd"}]
