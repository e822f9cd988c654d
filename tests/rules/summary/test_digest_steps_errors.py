"""Errors that nothing has resolved."""

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
    """Or the file is edited, and it does not come again. Of each call, the last errors count."""
    assert find_open_errors(BROKEN) == ("src/a.py:3: TypeError: no",)
    assert find_open_errors((*BROKEN, *run(2, "ls", "src"))) == ("src/a.py:3: TypeError: no",)
    assert find_open_errors((*BROKEN, *run(2, "make", "all well"))) == ()
    other = run(2, "lint", "Error: c.py is too long")
    again = run(3, "make", "src/b.py:9: NameError: x")
    assert find_open_errors((*BROKEN, *other, *again)) == ("Error: c.py is too long", "src/b.py:9: NameError: x")
    assert find_open_errors((*BROKEN, *again, *BROKEN)) == ("src/a.py:3: TypeError: no",)
    assert find_open_errors((*BROKEN, edit("src/a.py"))) == ()
    assert find_open_errors((*BROKEN, edit("src/b.py"))) == ("src/a.py:3: TypeError: no",)
    assert find_open_errors((*BROKEN, edit("src/a.py"), *BROKEN)) == ("src/a.py:3: TypeError: no",)
    failed = (edit("src/a.py"), result("e", "String to replace not found in file."))
    assert find_open_errors((*BROKEN, *failed)) == ("src/a.py:3: TypeError: no",)
    assert find_open_errors((*BROKEN, edit("src/a.py"), *failed)) == ()


def test_what_only_shows_errors_is_none() -> None:
    """A file that was read, a search, what an edit shows. A program behind the search may still fail."""
    read = assistant(None, call("1", "read_file", '{"path": "a.py"}'))
    assert find_open_errors((read, result("1", "raise ValueError"))) == ()
    assert find_open_errors((read, result("1", "Error: no such file\nexit code: 1"))) == ("Error: no such file",)
    assert find_open_errors(run(1, "cd src && grep -n error a.py | head -3", "3: raise Error(1)")) == ()
    assert find_open_errors(run(1, "cd src && python a.py | tail -3", "fatal: it broke")) == ("fatal: it broke",)
    for line in ["    46\t# This should work but raises FieldError", "   369\traise DatabaseError('ORDER BY')"]:
        shown = f"The file was edited. Here is the result of cat -n on a snippet:\n{line}\n   47\tfail = Error"
        assert find_open_errors((edit("src/a.py"), result("e", shown))) == ()
        assert find_open_errors(run(1, "python show.py", line)) == ()
        assert find_open_errors((edit("src/a.py"), result("e", "Error: no match"))) == ("Error: no match",)


def test_a_line_is_cut_around_its_error() -> None:
    """A title alone is none: the error is below it."""
    (row,) = find_open_errors((result("1", "x " * 2000 + "fatal: gone " + "y " * 2000),))
    assert "fatal: gone" in row
    assert len(row) <= ERROR_CHARS + 1
    for line in ["ERROR:", "=== error ===", "Traceback (most recent call last):"]:
        assert find_open_errors((result("1", f"{line}\nValueError: no"),)) == ("ValueError: no",)
