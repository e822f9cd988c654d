"""Single messages and items: bytes <-> Message."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.responses.codec import decode_unit, encode_message
from trimtab.rules.conversation import Media, Message, Role

IMAGE = {"type": "input_image", "image_url": "https://x/cat.png"}


def _decode(raw: bytes | object) -> Message:
    unit = raw if isinstance(raw, bytes) else orjson.dumps(raw)
    (message,) = decode_unit(Counting(count_by_heuristic, make_known()), unit)
    assert message.raw == unit
    return message


def _encode(message: Message) -> Any:
    return orjson.loads(encode_message(message, {}))


@pytest.mark.parametrize(
    ("item", "role", "wire_role", "texts"),
    [
        ({"role": "user", "content": "x"}, Role.USER, "", ("x",)),
        ({"type": "message", "role": "system", "content": "x"}, Role.SYSTEM, "", ("x",)),
        ({"role": "developer", "content": [{"type": "input_text", "text": "x"}]}, Role.SYSTEM, "developer", ("x",)),
        ({"role": "critic", "content": "x"}, Role.OTHER, "critic", ("x",)),
        ({"type": "item_reference", "id": "msg_1"}, Role.ASSISTANT, "", ()),
        ({"id": "msg_1"}, Role.OTHER, "item_reference", ()),
        ({"type": "new_thing", "role": "user", "content": "x"}, Role.OTHER, "new_thing", ()),
        ({"type": 5, "role": "user"}, Role.OTHER, "", ()),
        (
            {"type": "additional_tools", "role": "developer", "tools": []},
            Role.SYSTEM,
            "additional_tools",
            ('{"type":"additional_tools","role":"developer","tools":[]}',),
        ),
    ],
)
def test_who_speaks(item: dict[str, Any], role: Role, wire_role: str, texts: tuple[str, ...]) -> None:
    """A message needs no type. What holds for everything after it counts as a message of the system."""
    message = _decode(item)
    assert (message.role, message.wire_role, message.texts) == (role, wire_role, texts)
    assert encode_message(message, {}) is message.raw


def test_a_message_keeps_its_form_when_it_is_edited() -> None:
    """A string stays a string; parts and their members stay; the last of duplicate keys wins."""
    message = _decode(b'{"content":"a","role":"user","content":"b","seed":123456789012345678901234567890}')
    assert message.texts == ("b",)
    edited = encode_message(replace(message, texts=("b", "c"), edited=True), {})
    assert edited == b'{"content":"b\\n\\nc","role":"user","seed":123456789012345678901234567890}'
    parts = {"role": "user", "content": [{"type": "input_text", "text": "a", "x": 1}, IMAGE]}
    message = _decode(parts)
    assert _encode(replace(message, texts=("b", "c"), edited=True))["content"] == [
        {"type": "input_text", "text": "b", "x": 1},
        IMAGE,
        {"type": "input_text", "text": "c"},
    ]


@pytest.mark.parametrize(
    ("role", "text_type"),
    [(Role.USER, "input_text"), (Role.ASSISTANT, "output_text"), (Role.SYSTEM, "input_text")],
)
def test_a_message_of_ours_has_the_form_of_its_role(role: Role, text_type: str) -> None:
    """Its content has parts, because llama.cpp's server reads only these from the model."""
    made = Message(role, ("a", "b"), media=(Media(orjson.dumps(IMAGE), 85),) if role is Role.USER else (), edited=True)
    assert _encode(made) == {
        "type": "message",
        "role": role,
        "content": [*({"type": text_type, "text": text} for text in "ab"), *([IMAGE] if role is Role.USER else [])],
    }
    assert _decode(_encode(made)).texts == ("a", "b")


def test_members_that_are_not_counted_are_told() -> None:
    """Small ones are ignored."""
    plain = {"role": "user", "content": [{"type": "input_text", "text": "x"}], "phase": "final_answer" * 9}
    assert not _decode(plain).has_uncounted
    assert not _decode(plain | {"x": 1}).has_uncounted
    assert _decode(plain | {"x": "y" * 40}).has_uncounted
    assert _decode({"role": "user", "content": [{"type": "input_text", "text": "x", "y": "z" * 40}]}).has_uncounted
    assert _decode({"type": "function_call_output", "output": "x", "namespace": "y" * 40}).has_uncounted


def test_an_item_that_needs_repair_is_read() -> None:
    """A lone surrogate becomes U+FFFD in what is read; the bytes stay."""
    message = _decode(b'{"role":"user","content":"a\\ud83d"}')
    assert message.texts == ("a\ufffd",)
    said = _decode(b'{"type":"function_call","call_id":"1","name":"ls","arguments":"\\ud83d"},{"type":"reasoning"}')
    assert said.tool_calls[0].arguments == "\ufffd"
