"""A chat request that continues an earlier one is read as if it came alone."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.codec import Request, UndecodableError
from trimtab.proxy.wire.transcript.beginnings import Begun

MESSAGES = st.lists(
    st.sampled_from(
        [
            b'{"role":"user","content":"go on"}',
            b'{ "content" : "h\xc3\xa9" , "role" : "user" }',
            b'{"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"name":"ls","arguments":"{}"}}]}',
            b'{"role":"tool","tool_call_id":"c","content":"a, \\"b\\" ]}"}',
            b"{}",
            b"1",
            b"12",
            b'"x"',
        ]
    ),
    min_size=1,
    max_size=6,
)
SEPARATORS = st.sampled_from([b",", b", ", b" ,\n"])
HEADS = st.sampled_from(
    [
        b'{"messages":[',
        b'{"model":"m","tools":[{"a":"messages"}],"messages": [ ',
        b' {"messages":[7],"max_tokens":5,"messages":[',
    ]
)
TAILS = st.sampled_from(
    [
        b"]}",
        b' ] , "model":"n","stream":true, "tools":[{"b":1}]}',
        b'],"messages":[{"role":"user"}]}',
        b'],"messages":null}',
        b'],"me\\u0073sages":[]}',
        b'],"max_tokens":NaN}',
        b'],"user":"\\ud800"}',
        b"",
        b"]",
        b",]}",
        b"}]}",
        b"]}]}",
        b'],"x":"\xff"}',
        b'2],"model":"m"}',
    ]
)


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies of a few bytes are kept, too."""
    monkeypatch.setattr("trimtab.proxy.wire.transcript.body.MIN_BYTES", 0)


def _read(body: bytes, begun: Begun | None = None) -> tuple[Request | None, str]:
    try:
        return CHAT.read(body, begun), ""
    except UndecodableError as error:
        return None, str(error)


@given(st.tuples(HEADS, SEPARATORS, TAILS), MESSAGES, MESSAGES, st.integers(0, 12), st.binary(max_size=3))
@example((b'{"messages":[', b",", b"]}"), [b"1"], [b"12"], 0, b"")
def test_what_goes_on_is_read_as_though_it_were_new(around, first, second, kept, noise) -> None:
    """Whatever follows the common part, even if it is not JSON."""
    head, separator, tail = around
    earlier = head + separator.join(first) + b"]}"
    body = head + separator.join([*first[:kept], *second]) + noise + tail
    beginning = _read(earlier)[0]
    if beginning is None or beginning.beginning is None:
        return
    number = beginning.beginning.count_common(body)
    begun = Begun(beginning.beginning, number) if number else None
    on, whole = _read(body, begun), _read(body)
    assert on == whole
    if on[0] is not None and whole[0] is not None and on[0].beginning and whole[0].beginning:
        assert on[0].beginning.array == whole[0].beginning.array
        assert on[0].beginning.raws == whole[0].beginning.raws == on[0].raws
