"""Bodies in a file: the sessions that they belong to, and the turns of one."""

import orjson
import pytest
from support.dialects.spoken.all_dialects import each_dialect
from support.dialects.spoken.dialect import Dialect
from support.sessions import make_session, requests_of

from trimtab.proxy.cli.records.inputs import Sessions, split_turns
from trimtab.proxy.wire.codec import UndecodableError


def test_a_session_is_named_after_the_place_where_it_began() -> None:
    """A longer transcript with the same beginning belongs to it; one with another beginning or model does not."""
    sessions = Sessions()
    assert sessions.name("m", [b"0", b"a"], "line 1") == "line 1"
    assert sessions.name("m", [b"0", b"a", b"b", b"c"], "line 2") == "line 1"
    assert sessions.name("m", [b"0", b"x"], "line 3") == "line 3"
    assert sessions.name("n", [b"0", b"a", b"b", b"c", b"d"], "line 4") == "line 4"
    assert sessions.name("m", [b"0", b"a", b"b", b"c"], "line 5") == "line 1"


@each_dialect
def test_a_session_is_split_into_the_requests_of_its_client(dialect: Dialect) -> None:
    """In each dialect they are those that the client has sent."""
    session = make_session(5)
    whole = dialect.write(session["messages"][:-1], session["tools"])
    sent = [dialect.write(messages, session["tools"]) for messages in requests_of(session)]
    assert [orjson.loads(body) for body in split_turns(orjson.dumps(whole), dialect.name)] == sent


def test_a_body_that_ends_with_a_question_is_one_request() -> None:
    body = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'
    assert list(split_turns(body)) == [body]


@pytest.mark.parametrize("body", [b"[]", b"no JSON", b'{"messages": 5}', b'{"messages": [5]}'])
def test_what_is_no_request_is_not_split(body: bytes) -> None:
    with pytest.raises(UndecodableError):
        list(split_turns(body))
