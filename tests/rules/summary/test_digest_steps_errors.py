"""Errors that nothing has resolved."""

import pytest
from support.builders import assistant, call, result

from trimtab.rules.conversation import Message
from trimtab.rules.summary.digest import ERROR_CHARS, find_open_errors


def run(number: int, command: str, said: str) -> tuple[Message, Message]:
    """A command line and its output."""
    return assistant(None, call(str(number), "bash", f'{{"command": "{command}"}}')), result(str(number), said)


def edit(path: str) -> Message:
    """A call that edits a file."""
    return assistant(None, call("e", "edit_file", f'{{"path": "{path}"}}'))


BROKEN = run(1, "make", "src/a.py:3: TypeError: no")


def test_an_error_is_open_until_the_same_call_goes_well() -> None:
    """The success of another call resolves nothing."""
    assert find_open_errors(BROKEN) == ("src/a.py:3: TypeError: no",)
    assert find_open_errors((*BROKEN, *run(2, "ls", "src"))) == ("src/a.py:3: TypeError: no",)
    assert find_open_errors((*BROKEN, *run(2, "make", "all well"))) == ()


def test_of_each_call_the_last_errors_are_open() -> None:
    """What it reported before is out of date; what another call reported is not."""
    other = run(2, "lint", "Error: c.py is too long")
    again = run(3, "make", "src/b.py:9: NameError: x")
    assert find_open_errors((*BROKEN, *other, *again)) == ("Error: c.py is too long", "src/b.py:9: NameError: x")
    assert find_open_errors((*BROKEN, *again, *BROKEN)) == ("src/a.py:3: TypeError: no",)


def test_an_edit_of_the_file_resolves_an_error_that_does_not_come_again() -> None:
    """An error that comes again is open again."""
    assert find_open_errors((*BROKEN, edit("src/a.py"))) == ()
    assert find_open_errors((*BROKEN, edit("src/b.py"))) == ("src/a.py:3: TypeError: no",)
    assert find_open_errors((*BROKEN, edit("src/a.py"), *BROKEN)) == ("src/a.py:3: TypeError: no",)


def test_reading_a_file_that_mentions_errors_is_not_an_error() -> None:
    """It was read, and nothing failed."""
    read = assistant(None, call("1", "read_file", '{"path": "a.py"}'))
    assert find_open_errors((read, result("1", "raise ValueError"))) == ()
    assert find_open_errors((read, result("1", "Error: no such file\nexit code: 1"))) == ("Error: no such file",)


@pytest.mark.parametrize("line", ["0 errors, 3 warnings", "no failure", "3 passed, 0 failed", "without error"])
def test_zero_errors_are_not_an_error(line: str) -> None:
    """`0 errors` reports none."""
    assert find_open_errors((result("1", line),)) == ()


def test_a_search_that_shows_error_lines_is_not_an_error() -> None:
    """A program that runs after the search may still fail."""
    assert find_open_errors(run(1, "cd src && grep -n error a.py | head -3", "3: raise Error(1)")) == ()
    assert find_open_errors(run(1, "cd src && python a.py | tail -3", "fatal: it broke")) == ("fatal: it broke",)


@pytest.mark.parametrize("line", ["ERROR:", "=== error ===", "Traceback (most recent call last):"])
def test_a_title_alone_is_not_an_error(line: str) -> None:
    """The error itself is below it."""
    assert find_open_errors((result("1", f"{line}\nValueError: no"),)) == ("ValueError: no",)


def test_a_long_line_is_cut_around_its_error() -> None:
    """The result has a bounded length."""
    (row,) = find_open_errors((result("1", "x " * 2000 + "fatal: gone " + "y " * 2000),))
    assert "fatal: gone" in row
    assert len(row) <= ERROR_CHARS + 1


@pytest.mark.parametrize(
    "line", ["    46\t# This should work but raises FieldError", "   369\traise DatabaseError('ORDER BY')"]
)
def test_text_that_an_edit_shows_is_not_an_error(line: str) -> None:
    """A numbered line of source code is not one, either. An edit that failed reports an error."""
    shown = f"The file was edited. Here is the result of cat -n on a snippet:\n{line}\n   47\tfail = Error"
    assert find_open_errors((edit("src/a.py"), result("e", shown))) == ()
    assert find_open_errors(run(1, "python show.py", line)) == ()
    assert find_open_errors((edit("src/a.py"), result("e", "Error: no match"))) == ("Error: no match",)


def test_an_edit_that_failed_resolves_nothing() -> None:
    """The file is unchanged."""
    failed = (edit("src/a.py"), result("e", "String to replace not found in file."))
    assert find_open_errors((*BROKEN, *failed)) == ("src/a.py:3: TypeError: no",)
    assert find_open_errors((*BROKEN, edit("src/a.py"), *failed)) == ()
