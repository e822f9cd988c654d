"""The generated session."""

import orjson

from bench.scale.session import TURN_BYTES, Session


def test_a_turn_begins_with_the_messages_of_the_turn_before() -> None:
    session = Session(3)
    long, short = orjson.loads(session.write_body(12)), orjson.loads(session.write_body(11))
    assert long["messages"][: len(short["messages"])] == short["messages"]
    assert [message["role"] for message in long["messages"][-2:]] == ["assistant", "tool"]


def test_sessions_are_their_numbers() -> None:
    """A body depends only on the session's number and the turn, not on earlier bodies."""
    grown = Session(1)
    grown.write_body(2)
    assert grown.write_body(5) == Session(1).write_body(5)
    assert Session(1).write_body(5) != Session(2).write_body(5)


def test_a_turn_has_about_its_size() -> None:
    session = Session(0)
    size = (len(session.write_body(101)) - len(session.write_body(1))) / 100
    assert abs(size / TURN_BYTES - 1) < 0.1
