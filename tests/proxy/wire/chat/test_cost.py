"""Which parts of a chat request's JSON are counted, and in which form."""

import struct
from base64 import b64encode
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_json import dump, odd_objects

from proxy.compaction.tokenizers.exact import count_by_heuristic
from proxy.wire.chat.cost import SEALED_CHARS_PER_TOKEN, read_surroundings
from proxy.wire.chat.message import decode_message
from proxy.wire.codec import UndecodableError
from proxy.wire.content.media import count_part
from proxy.wire.json.repair import DECODE_ERRORS
from rules.tokens.families import find_family
from rules.tokens.messages import LEGACY_CALL_TOKENS, UNSEEN_FILE_TOKENS, count_audio, count_file

GPT, MINI = find_family("gpt-4o").costs, find_family("gpt-4o-mini").costs
DEEP = b"[" * 900 + b"]" * 900
DEEPER = b"[" * 100_000 + b"]" * 100_000


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
        ({"tool_calls": _calls("{}", '{"a":')}, {"tool_calls": _calls("{ }", '{"a":')}),
        ({"tool_calls": _calls("")}, {"tool_calls": [{"function": {"name": "run"}}]}),
        ({"tool_calls": [{"custom": {"name": "run", "input": "ls  -l"}}]}, {"tool_calls": _calls("ls  -l")}),
        ({"role": "tool", "name": "read_file", "content": "x"}, {"role": "tool", "content": "x"}),
        ({"role": "user", "name": 5, "content": "x"}, {"role": "user", "content": "x"}),
        ({"reasoning": "xyz", "reasoning_details": [{"text": "xyz"}]}, {"reasoning": "xyz"}),
        ({"reasoning_details": [{"type": "reasoning.text", "text": "xyz"}]}, {"reasoning_content": "xyz"}),
        ({"reasoning_details": [{"summary": "x"}, {"summary": "yz"}]}, {"reasoning": "xyz"}),
        ({"thinking_blocks": [{"type": "thinking", "thinking": "xyz", "signature": "s" * 99}]}, {"reasoning": "xyz"}),
        ({"reasoning_details": [5, None, {"text": 5}], "thinking_blocks": {"text": "x"}, "refusal": 7}, {}),
        ({"function_call": None, "tool_calls": None, "audio": None}, {}),
        ({"function_call": {}}, {}),
    ],
)
def test_what_says_the_same_costs_the_same(members: dict[str, Any], same: dict[str, Any]) -> None:
    """Arguments count without white space; reasoning counts once, wherever it is; a result's name does not count."""
    assert _message(**members) == _message(**same)


def test_a_call_costs_its_arguments_as_they_are_where_they_are_no_json() -> None:
    """White space is left out of JSON only."""
    assert _message(tool_calls=_calls("ls  -l")) - _message(tool_calls=_calls("ls -l")) == 1
    assert _message(tool_calls=_calls('{ "a":1 } x')) - _message(tool_calls=_calls('{"a":1} x')) == 2


def test_parallel_calls_cost_more_than_one() -> None:
    """All of them are read."""
    one, two, three = (_message(tool_calls=_calls(*['{"a":1}'] * number)) for number in (1, 2, 3))
    assert one < two < three


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
    part = b'{"type":"x","y":%s}' % surrogate
    assert count_part(part, len, GPT) == len(part)
    around = read_surroundings((b'[{"function":{"name":%s}}]' % surrogate, b"", b"", b"", b""))
    assert around.functions == [{"name": "\ufffd"}]


PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">II", 512, 512) + bytes(40_000)
BASE64 = b64encode(PNG).decode()
URL = f"data:image/png;base64,{BASE64}"
JPEG = (
    b"\xff\xd8\xff\xe1"
    + struct.pack(">H", 60_002)
    + bytes(60_000)
    + b"\xff\xc0\x00\x11\x08"
    + struct.pack(">HH", 512, 512)
)


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        ({"type": "image_url", "image_url": {"url": URL}}, 255),
        ({"type": "image_url", "image_url": {"url": URL, "detail": "high"}}, 255),
        ({"type": "image_url", "image_url": {"url": URL, "detail": "low"}}, 85),
        ({"type": "image_url", "image_url": URL}, 255),
        ({"type": "image_url", "image_url": URL, "detail": "low"}, 85),
        ({"type": "input_image", "image_url": URL}, 255),
        ({"type": "input_image", "file_id": "file-1"}, 1445),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BASE64}}, 255),
        ({"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}, 1445),
        ({"type": "image_url", "image_url": {"url": "https://x/low.png", "detail": "high"}}, 1445),
        ({"type": "image_url", "image_url": {"url": "https://x/low.png", "detail": "low"}}, 85),
        ({"type": "image_url", "image_url": {"url": "data:image/jpeg;base64," + b64encode(JPEG).decode()}}, 255),
        ({"type": "image_url", "image_url": {"url": "data:image/jpeg;base64," + b64encode(JPEG[:-4]).decode()}}, 1445),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,A"}}, 1445),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,é"}}, 1445),
        ({"type": "image_url", "image_url": {"url": "data:"}}, 1445),
        ({"type": "image_url", "image_url": None}, 1445),
        ({"type": "image_url", "image_url": [{"url": URL}]}, 1445),
        ({"type": "image_url"}, 1445),
        ({"type": "image", "source": [BASE64]}, 1445),
    ],
)
def test_an_image_costs_by_its_size(part: dict[str, Any], tokens: int) -> None:
    """In whatever form it is sent; as the largest image if its size is not in the request. Never by its base64 text."""
    assert count_part(orjson.dumps(part), len, GPT) == tokens
    low, mini = tokens == 85, 2833 + 5667 * (tokens - 85) // 170
    assert count_part(orjson.dumps(part), len, MINI) == (2833 if low else mini)


LONG = "A" * 9999


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        ({"type": "input_audio", "input_audio": {"data": LONG, "format": "wav"}}, count_audio(9999, is_wave=True)),
        ({"type": "input_audio", "input_audio": {"data": LONG, "format": "mp3"}}, count_audio(9999, is_wave=False)),
        ({"type": "input_audio", "input_audio": {"data": LONG, "format": []}}, count_audio(9999, is_wave=False)),
        ({"type": "input_audio", "data": LONG}, count_audio(9999, is_wave=False)),
        ({"type": "audio_url", "audio_url": {"url": "data:" + "A" * 9994}}, count_file(9999)),
        ({"type": "video_url", "video_url": {"url": "data:" + "A" * 9994}}, count_file(9999)),
        ({"type": "file", "file": {"filename": "a.pdf", "file_data": LONG}}, count_file(9999)),
        ({"type": "input_file", "filename": "a.pdf", "file_data": LONG}, count_file(9999)),
        ({"type": "document", "source": {"type": "base64", "data": LONG}}, count_file(9999)),
        ({"type": "file", "file": {"file_id": "file-1"}}, count_file(None)),
        ({"type": "file", "file": "file-1"}, count_file(None)),
        ({"type": "document", "source": None}, count_file(None)),
    ],
)  # fmt: skip
def test_audio_and_files_cost_their_bounds(part: dict[str, Any], tokens: int) -> None:
    """Their length decides, in whatever form they are sent. One that is only named gets an estimate."""
    assert count_part(orjson.dumps(part), len, GPT) == tokens <= UNSEEN_FILE_TOKENS + 3


@pytest.mark.parametrize(
    "part",
    [
        b"5",
        b"null",
        b'"text"',
        b"{}",
        b'{"type":5,"text":"x"}',
        b'{"type":"later","later":{"text":"x"}}',
        b'{"type":"video_url","video_url":{"url":"https://x/y.mp4"}}',
        b'{"type":"input_audio","input_audio":{"id":"1"}}',
        b'{"type":%s}' % DEEP,
        b'{"type":"x","x":%s}' % DEEPER,
        b'{"type":"\xff"}',
        b'{"type":"x","x":1%s}' % (b"0" * 5000),
        b"{",
    ],
    ids=lambda part: part[:30].decode("latin-1"),
)
def test_any_other_part_costs_its_json(part: bytes) -> None:
    """Parts of an unknown type, and parts that cannot be decoded."""
    assert count_part(part, len, GPT) == len(part.decode("utf-8", "replace"))


KINDS = st.sampled_from(["image_url", "image", "input_audio", "file", "input_file", "document", "video_url", "text"])
PARTS = odd_objects(
    "image_url", "url", "detail", "source", "data", "input_audio", "format", "file", "file_data", type=KINDS
)
MESSAGES = odd_objects(
    "content", "tool_calls", "function_call", "function", "name", "arguments", "reasoning_details", "thinking_blocks",
    role=st.sampled_from(["user", "assistant", "tool", "function"]), tool_calls=st.lists(odd_objects("function", "id")),
)  # fmt: skip


@given(PARTS.map(dump) | st.binary(max_size=60))
def test_any_part_is_counted(raw: bytes) -> None:
    """Nothing is raised, and no count is negative."""
    assert count_part(raw, count_by_heuristic, GPT) >= 0


@given(MESSAGES.map(dump))
def test_any_message_is_counted_or_refused(raw: bytes) -> None:
    """With one of the errors that a codec expects; a counted message costs at least 2 tokens."""
    try:
        tokens = decode_message(raw, count_by_heuristic, GPT).tokens
    except (UndecodableError, *DECODE_ERRORS):
        return
    assert tokens >= 2
