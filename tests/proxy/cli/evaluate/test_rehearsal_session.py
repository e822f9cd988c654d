"""The session to evaluate: which one of a file."""

import orjson
import pytest
from upstreams.examinee import make_session

from trimtab.proxy.cli.evaluate.rehearsal import NoSessionError, read_session


def _line(number: int, **members: object) -> bytes:
    messages = [{"role": "user", "content": f"message {index}"} for index in range(number)]
    return orjson.dumps({"messages": messages, **members})


def test_a_request_with_line_breaks_is_one_session() -> None:
    """A body of several lines is one session."""
    body = orjson.dumps(orjson.loads(make_session(2)), option=orjson.OPT_INDENT_2)
    session = read_session(body)
    assert (session.line, session.lines, session.request.model) == (1, 1, "exam-model")
    assert len(session.request.raws) == 6


def test_of_many_lines_the_longest_is_taken_or_the_one_that_is_named() -> None:
    data = b"\n".join([_line(2), _line(5), b"", _line(3)]) + b"\n"
    assert (read_session(data, model="m").line, len(read_session(data, model="m").request.raws)) == (2, 5)
    named = read_session(data, line=3, model="m")
    assert (named.line, named.lines, len(named.request.raws)) == (3, 3, 3)


def test_a_model_that_is_named_counts_instead_of_the_sessions() -> None:
    """The body has it, too; the body goes to the upstream with the questions."""
    session = read_session(_line(1, model="theirs"), model="mine")
    assert session.request.model == orjson.loads(session.request.body)["model"] == "mine"


def test_what_prescribes_the_form_of_an_answer_is_left_out() -> None:
    """Questions need plain answers. Tools stay because they are part of the prompt."""
    tools = [{"type": "function", "function": {"name": "ls"}}]
    form = {"type": "json_object"}
    body = _line(1, model="m", tools=tools, response_format=form, tool_choice="required", stream=True, user=None)
    assert set(orjson.loads(read_session(body).request.body)) == {"model", "messages", "tools"}


def test_the_hash_is_that_of_the_line_whatever_the_model() -> None:
    """So questions of the same session are found again, and those of another one are not."""
    data = _line(2) + b"\n" + _line(5)
    first = read_session(data, line=1, model="m")
    assert first.sha256 == read_session(_line(2), model="other").sha256
    assert first.sha256 != read_session(data, line=2, model="m").sha256


@pytest.mark.parametrize(
    ("data", "line", "told"),
    [
        (b"", None, "there is no line"),
        (b"\n\n", None, "there is no line"),
        (b"hello", None, "is not a chat request"),
        (b'{"messages": 1}', None, "is not a chat request"),
        (b'{"messages": [1], "model": "m"}', None, "is not a chat request"),
        (_line(1), None, "--model"),
        (_line(1, model="m"), 2, "there is no line 2"),
        (_line(1, model="m") + b"\n[]", 2, "line 2 is not a chat request"),
    ],
)
def test_what_holds_no_session_is_refused_with_what_to_do(data: bytes, line: int | None, told: str) -> None:
    with pytest.raises(NoSessionError, match=told):
        read_session(data, line=line)


def test_odd_json_is_read_as_the_proxy_reads_it() -> None:
    """A lone surrogate, which upstreams accept, is repaired."""
    body = b'{"model": "m", "messages": [{"role": "user", "content": "a\\ud83d"}], "seed": NaN}'
    assert len(read_session(body).request.raws) == 1
