"""What was done, found in calls and their results."""

import pytest
from support.builders import assistant, call, result

from trimtab.rules.conversation import Message
from trimtab.rules.summary.digest import find_steps


def shell(number: int, command: str) -> Message:
    """A call that runs a command line."""
    return assistant(None, call(str(number), "bash", f'{{"command": "{command}"}}'))


def test_deeds_follow_the_name_of_their_file() -> None:
    """Changed files are taken first, then the newest."""
    deeds = (("read", "a/b"), ("edit", "a/b"), ("edit", "a/b"), ("read", "c/d"))
    calls = [call(str(number), name, f'{{"path": "{path}"}}') for number, (name, path) in enumerate(deeds)]
    steps = find_steps([assistant(None, *calls)])
    assert steps.files == ("a/b (read, edited 2x)", "c/d (read)")
    assert [steps.files[place][0] for place in steps.order] == ["a", "c"]
    assert steps.calls == ()


def test_equal_calls_are_one_row_with_the_end_of_the_last() -> None:
    """A row says if an earlier call failed and the last one passed."""
    failed = "exit code: 1"
    messages = (
        *(shell(1, "make"), result("1", failed)),
        *(shell(2, "pytest -q"), result("2", failed)),
        *(shell(3, "make"), result("3")),
    )
    assert find_steps(messages).calls == ("bash pytest -q -> failed", "bash make (2x) -> failed, then passed")


@pytest.mark.parametrize(
    ("name", "arguments", "said", "told"),
    [
        ("edit", '{"path": "a/b"}', "String to replace not found in file.", "a/b (edit failed)"),
        ("Write", '{"path": "a/b"}', "EACCES: permission denied, open 'a/b'", "a/b (write failed)"),
        ("edit", '{"path": "a/b"}', "<tool_use_error>File has not been read yet</tool_use_error>", "a/b (edit failed)"),
        ("read", '{"path": "a/b"}', "File does not exist.", "a/b (read failed)"),
        ("bash", '{"command": "cd /w && rm a/b"}', "exit code: 1", "a/b (delete failed)"),
        ("bash", '{"command": "sed -i s/x/y/ a/b && make"}', "exit code: 2", "a/b (edited)"),
        ("bash", '{"command": "sed -i s/x/y/ a/b && make"}', "The user doesn't want to proceed", "a/b (edit failed)"),
        ("edit", '{"path": "a/b"}', "The file was edited.", "a/b (edited)"),
    ],
)
def test_a_failed_call_did_nothing(name: str, arguments: str, said: str, told: str) -> None:
    """If a line has several commands, it is uncertain which one failed."""
    failed = (assistant(None, call("1", name, arguments)), result("1", said))
    assert told in find_steps(failed).files
    done = (assistant(None, call("0", "edit", '{"path": "a/b"}')), result("0"))
    files = find_steps((*done, *failed)).files
    assert any(file.startswith("a/b (edited") for file in files)
