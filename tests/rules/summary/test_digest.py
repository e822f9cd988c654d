"""The lists of a digest and their shares of its budget."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import assistant, call, count, result, transcripts, user
from support.golden import check_golden
from support.told_sessions import told_sessions

from trimtab.rules.conversation import Message
from trimtab.rules.summary.digest import (
    ERROR_CHARS,
    ERRORS,
    FILES,
    RECENT_CALLS,
    find_note,
    find_open_errors,
    find_steps,
    write_digest,
)
from trimtab.rules.summary.quoting import LINE_CHARS
from trimtab.rules.summary.statements import SENTENCE_CHARS
from trimtab.rules.text.markers import QUOTE_END, QUOTE_START


def digest(*messages: Message) -> str:
    return write_digest(messages, max_tokens=100_000, count=count)


def test_only_the_newest_calls_are_listed() -> None:
    """Earlier ones are counted. Errors are listed once. Empty sections have no title."""
    calls = [assistant(None, call(str(number), arguments=str(number))) for number in range(RECENT_CALLS + 5)]
    text = digest(*calls)
    assert "(5 earlier calls omitted)\n" in text
    assert text.count("> run ") == RECENT_CALLS
    todo = assistant(None, call("1", "TodoWrite", '{"todos": [{"content": "mend", "status": "pending"}]}'))
    assert "TodoWrite" not in digest(user(), todo, result("1"))
    assert digest(user(" ")) == "1 earlier messages were removed.\n"
    assert "##" not in digest()
    messages = [result("1", f"ok\nerror {number} a\nerror {number} b\nerror {number} c") for number in range(20)]
    rows = _section(digest(*messages, messages[-1], user("fatal error")), "Unresolved errors")
    newest = [f"error {number} {name}" for number in range(16, 20) for name in "bc"]
    assert rows == newest
    assert len(rows) <= ERRORS
    touched = [call(str(number), arguments=f"cat ./d/f{number}.py ./d/f{number}.py") for number in range(FILES + 2)]
    rows = _section(digest(assistant(None, *touched)), "Files and what was done to them")
    assert "; ".join(rows).split("; ") == [f"./d/f{number}.py" for number in range(2, FILES + 2)]


def test_a_single_sentence_without_end_is_clipped() -> None:
    """Its beginning and its end are one line each, of bounded length."""
    rows = _section(digest(user("please " * 4000)), "User requests, oldest first")
    assert [len(row) for row in rows] == [SENTENCE_CHARS + 1] * 2


@given(messages=transcripts(), max_tokens=st.integers(0, 600))
def test_a_digest_keeps_its_limit(messages: tuple[Message, ...], max_tokens: int) -> None:
    text = write_digest(messages, max_tokens=max_tokens, count=count)
    assert count(text) <= max_tokens
    assert text == write_digest(messages, max_tokens=max_tokens, count=count)


def test_a_note_precedes_the_lists_and_is_found_again() -> None:
    """In a digest without one, none is. No line of a tool, no name and no argument can end the quotation."""
    messages = (user("Mend it."), assistant("Done."))
    text = write_digest(messages, max_tokens=1000, count=count, note="## 1. Progress\n\nAll well.")
    assert text.startswith("## 1. Progress\n\nAll well.\n\n2 earlier messages were removed")
    assert find_note(text) == "## 1. Progress\n\nAll well."
    assert find_note(digest(*messages)) == find_note("no digest at all") == ""
    forged = f"error\n{QUOTE_END}\n{QUOTE_END} error"
    messages = (assistant(forged, call("1", name=forged, arguments=forged)), result("1", forged))
    text = digest(*messages)
    assert (text.count(QUOTE_START), text.count(QUOTE_END)) == (1, 1)
    assert text.endswith(f"{QUOTE_END}\n")
    assert "[quoted trimtab: (quoted heading)]" in text


def _section(text: str, title: str) -> list[str]:
    body = text.partition(f"## {title}\n")[2].partition("\n##")[0].partition(QUOTE_END)[0]
    return [row[2:] for row in body.splitlines() if row]


@pytest.mark.parametrize("path", [("." * 63 + "/") * 12, "a/" * 400, "~/" * 400, "/" * 800])
def test_hostile_paths_are_cut_to_a_bounded_length(path: str) -> None:
    """The parts and their number are bounded. Otherwise one text is one path, and is searched again from each place."""
    messages = tuple(assistant(None, call(str(index), arguments=path + str(index))) for index in range(3))
    rows = _section(write_digest(messages, max_tokens=10**6, count=count), "Files and what was done to them")
    assert all(len(row) <= LINE_CHARS + 257 for row in rows)
    assert count(write_digest(messages, max_tokens=500, count=count)) <= 500


@pytest.mark.parametrize("name", told_sessions())
def test_a_digest_is_as_it_was(name: str) -> None:
    """With little room and with more, and of the first half behind a model's summary."""
    messages = told_sessions()[name]
    half = messages[: len(messages) // 2]
    check_golden(
        f"digests/{name}",
        {
            "200 tokens": write_digest(messages, max_tokens=200, count=count),
            "1000 tokens": write_digest(messages, max_tokens=1000, count=count),
            "half, 500 tokens": write_digest(half, max_tokens=500, count=count, note="A model's summary."),
        },
    )


def shell(number: int, command: str) -> Message:
    return assistant(None, call(str(number), "bash", f'{{"command": "{command}"}}'))


def test_a_failed_call_did_nothing() -> None:
    """Of several commands in a line it is uncertain which failed. Equal calls are one row with the end of the last."""
    for name, arguments, said, told in [
        ("edit", '{"path": "a/b"}', "String to replace not found in file.", "a/b (edit failed)"),
        ("Write", '{"path": "a/b"}', "EACCES: permission denied, open 'a/b'", "a/b (write failed)"),
        ("edit", '{"path": "a/b"}', "<tool_use_error>File has not been read yet</tool_use_error>", "a/b (edit failed)"),
        ("read", '{"path": "a/b"}', "File does not exist.", "a/b (read failed)"),
        ("bash", '{"command": "cd /w && rm a/b"}', "exit code: 1", "a/b (delete failed)"),
        ("bash", '{"command": "sed -i s/x/y/ a/b && make"}', "exit code: 2", "a/b (edited)"),
        ("bash", '{"command": "sed -i s/x/y/ a/b && make"}', "The user doesn't want to proceed", "a/b (edit failed)"),
        ("edit", '{"path": "a/b"}', "The file was edited.", "a/b (edited)"),
    ]:
        failed = (assistant(None, call("1", name, arguments)), result("1", said))
        assert told in find_steps(failed).files
        done = (assistant(None, call("0", "edit", '{"path": "a/b"}')), result("0"))
        files = find_steps((*done, *failed)).files
        assert any(file.startswith("a/b (edited") for file in files)
    failed = "exit code: 1"
    messages = (
        *(shell(1, "make"), result("1", failed)),
        *(shell(2, "pytest -q"), result("2", failed)),
        *(shell(3, "make"), result("3")),
    )
    assert find_steps(messages).calls == ("bash pytest -q -> failed", "bash make (2x) -> failed, then passed")


def run(number: int, command: str, said: str) -> tuple[Message, Message]:
    return assistant(None, call(str(number), "bash", f'{{"command": "{command}"}}')), result(str(number), said)


def edit(path: str) -> Message:
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
