"""JSON that the standard library reads is read, and its messages keep their bytes."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_json import ODD, dump

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.codec import Codec, Counting
from trimtab.proxy.wire.json import (
    DECODE_ERRORS,
    decode_any,
    decode_items,
    decode_members,
    mend,
    read_id,
    read_members,
    write_id,
)
from trimtab.proxy.wire.messages.codec import MESSAGES
from trimtab.proxy.wire.responses.codec import RESPONSES
from trimtab.rules.results.pairing import pair_tool_calls


@pytest.mark.parametrize("number", [b"NaN", b"1e999", b"-1E+400", b"-0", b"1e-999", b"9" * 30, b"-" + b"1" * 400])
def test_any_number_is_decoded(number: bytes) -> None:
    msgspec.json.encode(decode_any(b'{"n":[%b]}' % number))


@given(st.binary(max_size=40) | st.text(max_size=20).map(str.encode))
def test_garbage_raises_what_callers_expect(value: bytes) -> None:
    """One of DECODE_ERRORS, or nothing."""
    assert len(mend(value)) == len(value)
    with suppress(*DECODE_ERRORS):
        decode_any(value)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (b"NaN", b"0  "),
        (b"[-Infinity]", b"[-0       ]"),
        (b'"NaN \\" Infinity"', b'"NaN \\" Infinity"'),
        (b"\xef\xbb\xbf1", b"   1"),
        (b'"\xed\xa0\xbd\xed\x95\x9c"', b'"\xef\xbf\xbd\xed\x95\x9c"'),
        (b'"\\ud83d"', b'"\\ufffd"'),
    ],
)
def test_what_is_put_in_its_place(written: bytes, read: bytes) -> None:
    """It has the same length. Within strings, only surrogates are replaced."""
    assert mend(written) == read


@pytest.mark.parametrize("ending", [b"", b"\\", b'"}'])
def test_a_string_that_nothing_ends_goes_to_the_texts_end(ending: bytes) -> None:
    """All quotation marks in it are passed at once. A pattern that restarts at each took minutes for a megabyte."""
    text = b'{"messages":[{"content":NaN}],"x":"' + b'\\" NaN ' * 1000 + ending
    assert mend(text) == text.replace(b"NaN", b"0  ", 1)


DEEP = b"[" * 100_000 + b"]" * 100_000
SPACES = st.sampled_from([b"", b" ", b"\n\t"])
WRITTEN = ODD.map(dump) | st.sampled_from([b"1.50", b'"\\u0061"', b"[ 1 ,2 ]", b'{"a":1,"a":2}', b"1e999"])


@given(st.lists(st.tuples(st.text(max_size=3), WRITTEN), max_size=4), SPACES)
def test_each_member_keeps_its_bytes(members: list[tuple[str, bytes]], space: bytes) -> None:
    """White space around a value does not belong to it. Of a repeated name, the last value counts."""
    pairs = [orjson.dumps(name) + space + b":" + space + value for name, value in members]
    raw = space + b"{" + space + (space + b"," + space).join(pairs) + space + b"}"
    expected = dict(members)

    assert {name: bytes(value) for name, value in decode_members(raw).items()} == expected
    assert read_members(raw) == decode_members(raw)


@pytest.mark.parametrize("raw", [b"", b"{", b"null", b"[]", b'"a"', b'{"a":1} 2', b'{"\xff":1}', b'{"a":%s}' % DEEP])
def test_what_is_no_object_raises_an_expected_error(raw: bytes) -> None:
    """It is invalid JSON, another value, or too deeply nested."""
    with pytest.raises(DECODE_ERRORS):
        read_members(raw)


@pytest.mark.parametrize("raw", [b"", b"[", b"null", b"{}", b"[1] 2", b"[1,]", b"[%s]" % DEEP])
def test_what_is_no_array_raises_an_expected_error(raw: bytes) -> None:
    """The same for arrays."""
    with pytest.raises(DECODE_ERRORS):
        decode_items(raw)


Wire = dict[str, Any]


def _chat(call_id: Wire, answered: Wire | None) -> list[Wire]:
    asked = {**call_id, "type": "function", "function": {"name": "read", "arguments": "{}"}}
    said = [{"role": "assistant", "content": None, "tool_calls": [asked]}]
    named = {"tool_call_id": answered["id"]} if answered else {"tool_name": "read"}
    return said if answered is None else [*said, {"role": "tool", **named, "content": "found"}]


def _responses(call_id: Wire, answered: Wire | None) -> list[Wire]:
    said = [{"type": "function_call", "call_id": call_id["id"], "name": "read", "arguments": "{}"}]
    named = {"call_id": answered["id"]} if answered else {}
    return said if answered is None else [*said, {"type": "function_call_output", **named, "output": "found"}]


def _messages(call_id: Wire, answered: Wire | None) -> list[Wire]:
    said = [{"role": "assistant", "content": [{"type": "tool_use", **call_id, "name": "read", "input": {}}]}]
    named = {"tool_use_id": answered["id"]} if answered else {}
    block = {"type": "tool_result", **named, "content": "found"}
    return said if answered is None else [*said, {"role": "user", "content": [block]}]


DIALECTS = pytest.mark.parametrize(
    ("codec", "key", "write"),
    [(CHAT, "messages", _chat), (RESPONSES, "input", _responses), (MESSAGES, "messages", _messages)],
)


def _pair(codec: Codec, key: str, elements: list[Wire]) -> list[Wire]:
    """The elements after pairing."""
    body = orjson.dumps({"model": "m", key: [{"role": "user", "content": "go"}, *elements]})
    request = codec.read(body)
    before = codec.decode(request, Counting(count_by_heuristic, make_known()))
    outcome = pair_tool_calls(before, count=count_by_heuristic)
    after = outcome.conversation if outcome.decisions else before
    return list(orjson.loads(b"".join(codec.encode(request, before, after)))[key][1:])


@DIALECTS
@pytest.mark.parametrize("ids", [(1, "1"), ("1", 1), (1.0, 1), (0, "0"), (1697377797897, 1697377797897.0)])
def test_ids_are_compared_by_value(
    codec: Codec, key: str, write: Callable[[Wire, Wire | None], list[Wire]], ids: tuple[Any, Any]
) -> None:
    """A number is the same id as its text, on both sides."""
    elements = write({"id": ids[0]}, {"id": ids[1]})
    assert _pair(codec, key, elements) == elements


@DIALECTS
@pytest.mark.parametrize("call_id", [{"id": 1}, {"id": "call_1"}, {"id": None}])
@pytest.mark.parametrize("answered", [{}, {"id": None}, {"id": ""}])
def test_a_result_without_an_id_passes_as_it_is(
    codec: Codec, key: str, write: Callable[[Wire, Wire | None], list[Wire]], call_id: Wire, answered: Wire
) -> None:
    """If it is the only one behind the only call."""
    elements = write(call_id, answered)
    assert _pair(codec, key, elements) == elements


@DIALECTS
@pytest.mark.parametrize("call_id", [{"id": 1}, {"id": "call_1"}])
@pytest.mark.parametrize("answered", [{"id": "other"}, {"id": 7}])
def test_a_result_with_the_id_of_no_call_gets_that_of_its_call(
    codec: Codec, key: str, write: Callable[[Wire, Wire | None], list[Wire]], call_id: Wire, answered: Wire
) -> None:
    """As the call has it, and nothing else changes."""
    assert _pair(codec, key, write(call_id, answered)) == write(call_id, call_id)


@DIALECTS
def test_a_missing_result_has_the_id_that_its_call_has(
    codec: Codec, key: str, write: Callable[[Wire, Wire | None], list[Wire]]
) -> None:
    """A number stays a number."""
    (said,) = write({"id": 7}, None)
    (given,) = write({"id": 7}, {"id": 7})[1:]
    sent, made = _pair(codec, key, [said])
    assert sent == said
    assert _find_id(made) == _find_id(given) == 7


def _find_id(element: Wire) -> Any:
    held = element["content"][0] if isinstance(element.get("content"), list) else element
    return next(held[name] for name in ("tool_call_id", "call_id", "tool_use_id") if name in held)


def test_a_result_may_name_its_tool_as_ollama_does() -> None:
    """It has `tool_name` and no id."""
    elements = [*_chat({}, {}), *_chat({}, {})]
    for at in (1, 3):
        elements[at] = {"role": "tool", "tool_name": "read", "content": "found"}
    assert _pair(CHAT, "messages", elements) == elements


@pytest.mark.parametrize(
    ("value", "text", "json"),
    [
        ("a", "a", b""),
        (1, "1", b"1"),
        (1e300, str(int(1e300)), b"1e300"),
        (float("inf"), "inf", b"null"),
        (True, "", b""),
        ({"id": 1}, "", b""),
    ],
)
def test_what_is_no_id_has_none(value: object, text: str, json: bytes) -> None:
    """Nothing is raised whatever the value is."""
    assert (read_id(value), write_id(value)) == (text, json)
