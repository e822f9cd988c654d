"""A secret is hidden however it is written."""

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.exchange.telling.redact import redact, redact_body, redact_text

KEY = "sk-PLANTED/key+0123"


@given(
    secret=st.text(min_size=1, max_size=20).filter(lambda one: not set(one) & {*"*{}:text"}), text=st.text(max_size=40)
)
def test_a_secret_is_found_in_json_however_it_is_escaped(secret, text):
    body = orjson.dumps({"text": text + secret + text})
    for written in (body, body.replace(b"/", b"\\/")):
        assert secret not in orjson.loads(redact(written, {secret}))["text"]


@given(st.sets(st.integers(0, len(KEY) - 1)), st.integers(0, 2))
@example({0}, 0)
@example({len(KEY) - 1}, 2)
def test_any_of_its_characters_may_be_an_escape_at_any_depth(escaped, depth):
    """The arguments of a call are JSON in JSON."""
    written = "".join(f"\\u{ord(each):04X}" if at in escaped else each for at, each in enumerate(KEY))
    body = b'{"text":"before ' + written.encode() + b' after"}'
    for _ in range(depth):
        body = orjson.dumps({"text": body.decode()})
    told = orjson.loads(redact_body(body, {KEY}))
    for _ in range(depth):
        told = orjson.loads(told["text"])
    assert told["text"] == "before *** after"


def test_a_body_stays_json_if_a_secret_is_a_part_of_a_number_or_of_an_escape():
    body = b'{"n": 123456, "deep": [{"1234": "a 1234"}], "line": "\\nabc"}'
    told = orjson.loads(redact_body(body, {"1234", "nabc"}))
    assert told["n"] == "***56"
    assert told["deep"] == [{"***": "a ***"}]
    assert b"1234" not in redact_body(body, {"1234"})


def test_other_bytes_stay():
    body = b'{ "a" : "\\u4e2d \\/ \\u0041", "b":"\xff"}'
    assert redact_body(body, {KEY}) == body
    assert redact_body(b"no JSON " + KEY.encode(), {KEY}) == b"no JSON ***"
    assert redact_text(f"a\ud800 {KEY}", {KEY}) == "a? ***"
