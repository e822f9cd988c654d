"""Request bodies, one or one in each line."""

import io

import click
import pytest
from click.testing import CliRunner, Result

from trimtab.proxy.cli.bodies import Requests, for_each_request
from trimtab.rules.pipeline.exceeded import LimitExceededError

GOOD = b'{"model":"m","messages":[]}'
TOO_LONG = LimitExceededError(9, 9, 5, window=6, decisions=())


def _run(text: bytes, *, jsonl: bool, too_long: str = "", dialect: str = "chat") -> Result:
    """Print the model of each request; the request of the model `too_long` does not fit."""

    @click.command()
    def command() -> None:
        def work(request, place: str) -> None:
            if request.model == too_long:
                raise TOO_LONG
            click.echo(f"{place}{request.model}")

        requests = Requests(io.BytesIO(text), dialect, jsonl)
        for_each_request(requests, work, lambda body: b"<" + body + b">")

    return CliRunner().invoke(command, catch_exceptions=False)


def test_a_file_is_one_request_unless_each_line_is_one() -> None:
    """Any line ends are accepted. Lines are named by their numbers, from 1."""
    pretty = GOOD.replace(b",", b",\n")

    assert (_run(pretty, jsonl=False).stdout, _run(pretty, jsonl=False).exit_code) == ("m\n", 0)
    assert _run(GOOD + b"\n" + GOOD + b"\n", jsonl=True).stdout == "line 1: m\nline 2: m\n"


def test_what_is_no_request_has_a_stand_in_in_its_line() -> None:
    """It is reported, the other lines are processed, and the status is 1."""
    result = _run(GOOD + b"\nno\n" + GOOD, jsonl=True)

    assert result.stdout == "line 1: m\n<no>\nline 3: m\n"
    told = (
        "not a chat request, because it is no JSON at line 1, column 1; each line must be a JSON object with `messages`"
    )
    assert (result.stderr, result.exit_code) == (f"trimtab: line 2: {told}\n", 1)


def test_a_request_is_read_in_the_dialect_that_was_asked_for() -> None:
    """A request of another dialect is reported as none of this one."""
    of_responses = b'{"model":"m","input":"Hello"}'

    assert _run(of_responses, jsonl=False, dialect="responses").stdout == "m\n"
    assert _run(GOOD, jsonl=False, dialect="messages").stdout == "m\n"
    assert (
        _run(of_responses, jsonl=False).stderr
        == "trimtab: not a chat request, because it has no `messages`; it must be a JSON object with `messages`\n"
    )
    assert _run(of_responses, jsonl=False, dialect="messages").stderr == (
        "trimtab: not a messages request, because it has no `messages`; it must be a JSON object with `messages`\n"
    )


@pytest.mark.parametrize("jsonl", [False, True])
def test_what_does_not_fit_is_said_in_its_own_words(jsonl: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """The message says so. Without `jsonl`, there is no output in place of the request."""
    result = _run(GOOD, jsonl=jsonl, too_long="m")

    assert result.stdout == (f"<{GOOD.decode()}>\n" if jsonl else "")
    assert result.stderr == f"trimtab: {'line 1: ' if jsonl else ''}{TOO_LONG}\n"
    assert result.exit_code == 1
