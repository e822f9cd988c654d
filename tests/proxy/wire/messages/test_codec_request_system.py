"""What only makes each request different is taken out of the system prompt, if that is wanted."""

from itertools import dropwhile

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.wire.messages.codec import MESSAGES
from trimtab.proxy.wire.transcript.body import Unsent

NONCES = Unsent(nonces=True)
LINE = "x-anthropic-billing-header: cc_version=2.1.197.3a3; cc_entrypoint=cli; cch=%s;"


def _clean(body: bytes) -> bytes:
    return MESSAGES.clean(MESSAGES.read(body), NONCES)[0]


def _text(text: str) -> bytes:
    return b'{ "type":"text" , "text": ' + orjson.dumps(text) + b"}"


def _body(system: bytes) -> bytes:
    said = orjson.dumps({"role": "user", "content": LINE % "0"})
    return b' {"system_":1, "messages" : [ %b ], "system": %b , "model":"m" }\n' % (said, system)


HEADER, OTHER = _text(LINE % "00000"), _text("You are Claude.")


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        (b"[%b , %b]" % (HEADER, OTHER), b"[%b]" % OTHER),
        (b"[%b,%b,%b]" % (HEADER, OTHER, HEADER), b"[%b,%b]" % (OTHER, HEADER)),
        (orjson.dumps(LINE % "1" + " You are Claude."), b'"You are Claude."'),
        (b"[ %b ]" % HEADER, b"[  ]"),
        (b"[%b,%b]" % (_text(LINE % "1" + "\r\n \n"), OTHER), b"[%b]" % OTHER),
        (b"[%b]" % _text(LINE % "1" + "\nYou are Claude."), b"[%b]" % OTHER),
        (orjson.dumps(LINE % "1"), b'""'),
        (b'[{"text":"x","text":%b,"type":"text"},%b]' % (orjson.dumps(LINE % "1"), OTHER), b"[%b]" % OTHER),
    ],
)
def test_the_line_goes_and_all_else_stays(system: bytes, expected: bytes) -> None:
    """A block that holds only the line goes with its comma. What the user says is not touched."""
    request = MESSAGES.read(_body(system))
    cleaned, (decision,) = MESSAGES.clean(request, NONCES)
    assert cleaned == _body(expected)
    assert (decision.rule, decision.tokens_before, decision.tokens_after) == ("nonce", 0, 0)
    assert "cch" not in decision.reason


@pytest.mark.parametrize(
    "system",
    [
        b"[%b]" % OTHER,
        b"[%b,%b]" % (OTHER, HEADER),
        _text("x-anthropic-billing-header: this text documents it."),
        b"[%b]" % _text("The header " + LINE % "1"),
        b'[{"type":"text","title":%b}]' % orjson.dumps(LINE % "1"),
    ],
)
def test_a_text_that_does_not_begin_with_it_stays(system: bytes) -> None:
    body = _body(system)
    assert MESSAGES.clean(MESSAGES.read(body), NONCES) == (body, ())


def test_it_stays_if_that_is_not_asked_for() -> None:
    body = _body(b"[%b]" % HEADER)
    assert MESSAGES.clean(MESSAGES.read(body), Unsent(local_items=("x",))) == (body, ())


@given(st.lists(st.sampled_from([HEADER, OTHER, b"1"]), max_size=5), st.sampled_from([b",", b" ,\n"]), st.booleans())
def test_requests_that_differ_only_in_it_become_equal(blocks, separator, is_long) -> None:
    """Also in long bodies, whose messages are not searched again."""
    blocks = sorted(blocks, key=lambda block: block is not HEADER)  # those after another text stay
    after = b'"messages":[{"role":"user","content":"%b"}]' % (b"x" * 20_000 * is_long)
    bodies = [
        b'{%b,"system":[%b]}' % (after, separator.join(blocks).replace(b"cch=00000", b"cch=%05d" % number))
        for number in range(2)
    ]
    cleaned = [_clean(body) for body in bodies]
    assert cleaned[0] == cleaned[1]
    kept = list(dropwhile(lambda block: block is HEADER, blocks))
    assert orjson.loads(cleaned[0])["system"] == [orjson.loads(block) for block in kept]
