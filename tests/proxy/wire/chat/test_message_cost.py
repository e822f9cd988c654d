"""Which parts of a chat request's JSON are counted, and in which form."""

from typing import Any

import orjson
import pytest

from trimtab.proxy.wire.chat.message import SEALED_CHARS_PER_TOKEN, decode_message, read_tools_and_format
from trimtab.proxy.wire.tools import read_fixed
from trimtab.rules.tokens.families import find_family
from trimtab.rules.tokens.messages import LEGACY_CALL_TOKENS

GPT = find_family("gpt-4o").costs


def _message(**members: Any) -> int:
    """Characters that a message costs beyond its frame."""
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


def test_a_legacy_call_costs_its_name_and_its_arguments() -> None:
    """The legacy form of a call. Values of another type are counted by their JSON."""
    assert _message(function_call={"name": "run", "arguments": "abc"}) == LEGACY_CALL_TOKENS + 6
    assert _message(function_call={"name": "run", "arguments": {"a": 1}}) == LEGACY_CALL_TOKENS + 3 + len('{"a":1}')
    assert _message(function_call={"name": "run"}) == LEGACY_CALL_TOKENS + 3


def test_sealed_reasoning_costs_by_its_length() -> None:
    """It is encrypted and in base64."""
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
