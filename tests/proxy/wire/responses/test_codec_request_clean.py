"""Items that belong to the client alone are not sent."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.wire.responses.codec import RESPONSES
from trimtab.proxy.wire.transcript.body import Unsent

GHOST = b'{ "type" : "ghost_snapshot", "ghost_commit": {"id":"[,]"} }'
USER = b'{"role":"user","content":"ghost_snapshot, \\"ghost_snapshot\\""}'
LOCAL = Unsent(local_items=("ghost_snapshot",))


def _clean(body: bytes, unsent: Unsent = LOCAL) -> bytes:
    return RESPONSES.clean(RESPONSES.read(body), unsent)[0]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        (b"[U , G]", b"[U  ]"),
        (b"[ G,\n U ]", b"[ \n U ]"),
        (b"[U,G ,G , U]", b"[U,   U]"),
        (b"[ G , G,G ]", b"[    ]"),
    ],
)
def test_with_each_item_goes_one_comma(items: bytes, expected: bytes) -> None:
    """Everything else keeps its bytes."""

    def write(letters: bytes) -> bytes:
        return b' {"x":"input", "input" : ' + letters.replace(b"U", USER).replace(b"G", GHOST) + b' , "store":false}\n'

    assert _clean(write(items)) == write(expected)


@given(st.lists(st.booleans(), max_size=8), st.sampled_from([b",", b" , ", b",\n"]))
def test_what_is_left_is_the_rest(ghosts: list[bool], separator: bytes) -> None:
    items = [GHOST if is_ghost else USER for is_ghost in ghosts]
    body = b'{"input":[' + separator.join(items) + b"]}"
    cleaned, decisions = RESPONSES.clean(RESPONSES.read(body), LOCAL)
    assert orjson.loads(cleaned)["input"] == [orjson.loads(USER)] * ghosts.count(False)
    if True not in ghosts:
        assert (cleaned is body, decisions) == (True, ())
        return
    (decision,) = decisions
    assert (decision.rule, decision.messages) == ("local_items", ghosts.count(True))
    assert (decision.tokens_before, decision.tokens_after) == (0, 0)
    assert decision.first_changed == ghosts.index(True)


@pytest.mark.parametrize(
    "body",
    [
        b'{"input":[%b]}' % USER,
        b'{"input":"\\"ghost_snapshot\\""}',
        b'{"inp\\u0075t":[%b]}' % GHOST,
        b'{"input":[7,{"type":["ghost_snapshot"]}]}',
    ],
)
def test_a_body_without_such_items_is_the_same_object(body: bytes) -> None:
    """A body that cannot be spliced is forwarded as it is."""
    assert _clean(body) is body


def test_nothing_is_taken_out_unless_it_is_named() -> None:
    body = b'{"input":[%b]}' % GHOST
    assert _clean(body, Unsent()) is body
    assert _clean(body, Unsent(local_items=("other",))) is body
    assert _clean(body, Unsent(local_items=("other", "ghost_snapshot"))) == b'{"input":[]}'
