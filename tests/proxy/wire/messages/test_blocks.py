"""An element is split into its blocks; cache markers come off without a trace."""

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_json import dump, odd_objects

from trimtab.proxy.wire.json import DECODE_ERRORS
from trimtab.proxy.wire.messages.blocks import find_content, split_blocks, split_parts, strip_markers

MARKER = b'"cache_control":{"type":"ephemeral"}'
TEXT = b'{ "type":"text", "text" :"a \\"cache_control\\":{} b"}'
RESULT = b'{"type":"tool_result","tool_use_id":"c","content":"out"}'
IMAGE = b'{"type":"image","source":{"type":"url","url":"https://x/y.png"}}'


def _element(*blocks: bytes, separator: bytes = b",") -> bytes:
    return b'{"role":"user", "content":[' + separator.join(blocks) + b"]}"


def _content(raw: bytes) -> msgspec.Raw:
    return msgspec.Raw(find_content(raw))


@given(st.lists(st.sampled_from([TEXT, RESULT, IMAGE, b"1", b"[]"]), max_size=6), st.sampled_from([b",", b" ,\n "]))
def test_each_block_keeps_its_bytes(blocks: list[bytes], separator: bytes) -> None:
    raw = _element(*blocks, separator=separator)
    assert [block.raw for block in split_blocks(raw, _content(raw))] == blocks


def test_a_block_that_must_be_repaired_keeps_its_bytes() -> None:
    """A lone surrogate stays in `raw`, and is replaced in `clean`. Blocks after it are found."""
    broken = b'{"type":"text","text":"\\ud83d"}'
    raw = _element(RESULT, broken, TEXT)
    clean = raw.replace(b"\\ud83d", b"\\ufffd")
    blocks = split_blocks(raw, _content(clean))
    assert [block.raw for block in blocks] == [RESULT, broken, TEXT]
    assert blocks[1].clean == broken.replace(b"\\ud83d", b"\\ufffd")


def test_each_result_and_each_run_of_other_blocks_is_a_part() -> None:
    raw = _element(RESULT, RESULT, TEXT, IMAGE, RESULT)
    parts = split_parts(raw, _content(raw))
    assert [(part.is_result, part.content) for part in parts] == [
        (True, b"[%b]" % RESULT),
        (True, b"[%b]" % RESULT),
        (False, b"[%b,%b]" % (TEXT, IMAGE)),
        (True, b"[%b]" % RESULT),
    ]


@pytest.mark.parametrize("raw", [_element(TEXT, IMAGE), b'{"content":"tool_result"}', b'{"x":"tool_result"}'])
def test_an_element_without_results_has_no_parts(raw: bytes) -> None:
    assert split_parts(raw, _content(raw)) == []


@pytest.mark.parametrize("spaces", [b"", b" ", b"\n\t"])
@pytest.mark.parametrize("block", [TEXT, IMAGE, RESULT, RESULT.replace(b'"out"', b"[%b]" % TEXT)])
def test_without_its_markers_an_element_is_what_the_client_sends_later(block: bytes, spaces: bytes) -> None:
    """Whether the marker is on a block or in the content of a result, and however it is spaced."""
    marked = block[:-1] + b"," + spaces + MARKER.replace(b":", spaces + b":" + spaces) + b"}"
    nested = b'{"type":"tool_result","tool_use_id":"c","content":[%b]}'
    assert strip_markers(_element(TEXT, marked, RESULT)) == _element(TEXT, block, RESULT)
    assert strip_markers(_element(nested % marked)) == _element(nested % block)


def test_a_marker_that_does_not_come_last_goes_too() -> None:
    first = b"{" + MARKER + b', "type": "text", "text":"a"}'
    assert orjson.loads(strip_markers(_element(first))) == {"role": "user", "content": [{"type": "text", "text": "a"}]}


@pytest.mark.parametrize(
    "kept",
    [
        b'{"type":"text","text":"\\"cache_control\\":{\\"type\\":\\"ephemeral\\"}"}',
        b'{"type":"tool_use","id":"c","name":"x","input":{"a":1,"cache_control":{"type":"ephemeral"}}}',
        b'"cache_control"',
    ],
)
def test_what_only_looks_like_a_marker_stays(kept: bytes) -> None:
    """Texts, and the arguments of a call."""
    assert strip_markers(_element(kept)) == _element(kept)


@given(odd_objects("role", "content", content=st.lists(odd_objects("type", "cache_control", "content"), max_size=4)))
def test_odd_elements_lose_only_markers(element: object) -> None:
    raw = dump(element)
    try:
        stripped = strip_markers(raw)
    except DECODE_ERRORS:
        pytest.fail("strip_markers raised")
    if b'"cache_control"' not in raw:
        assert stripped is raw
    assert msgspec.json.decode(stripped) is not None or element is None
