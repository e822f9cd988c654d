"""What was done, found in calls and their results."""

import pytest
from support.builders import assistant, call, result

from trimtab.rules.conversation import Message
from trimtab.rules.summary.digest.steps import ARGUMENTS_CHARS, Deed, find_command, find_deeds, find_steps


def shell(number: int, command: str) -> Message:
    """A call that runs a command line."""
    return assistant(None, call(str(number), "bash", f'{{"command": "{command}"}}'))


@pytest.mark.parametrize(
    ("name", "arguments", "deeds"),
    [
        ("read_file", '{"path": "a.py"}', {"a.py": Deed.READ}),
        ("str_replace_editor", '{"command": "view", "path": "/w/a.py"}', {"/w/a.py": Deed.READ}),
        (
            "str_replace_editor",
            '{"command": "create", "path": "/w/a.py", "file_text": "x/y"}',
            {"/w/a.py": Deed.WRITTEN},
        ),
        ("str_replace_editor", '{"command": "str_replace", "path": "/w/a.py"}', {"/w/a.py": Deed.EDITED}),
        ("Write", '{"file_path": "/w/a.py", "content": "see b/c.py"}', {"/w/a.py": Deed.WRITTEN}),
        ("delete_file", '{"path": "a/b"}', {"a/b": Deed.DELETED}),
        ("bash", '{"command": "cat a/b.py && rm ./c/d"}', {"a/b.py": Deed.READ, "./c/d": Deed.DELETED}),
        ("bash", '{"command": "echo hello > a/b.py"}', {"a/b.py": Deed.WRITTEN}),
        ("bash", '{"command": "make all 2> a/log"}', {"a/log": Deed.NAMED}),
        ("bash", '{"command": "sed -i s/x/y/ a/b.py"}', {"a/b.py": Deed.EDITED}),
        ("shell", '{"command": ["cat", "a/b"]}', {"a/b": Deed.READ}),
        ("search", '{"query": "where"}', {}),
        ("look", "\\nsrc/a.py", {"src/a.py": Deed.NAMED}),
    ],
)
def test_a_call_tells_what_it_does_to_files(name: str, arguments: str, deeds: dict[str, Deed]) -> None:
    """Its name shows that, or its subcommand, or its command line."""
    assert find_deeds(call("1", name, arguments)) == deeds


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
    "arguments",
    ["", "[1]", "{", '{"command": 3}', '{"command": " "}', "{" * 3000, '{"command": "' + "x" * ARGUMENTS_CHARS],
)
def test_other_calls_have_no_command_line(arguments: str) -> None:
    """For any arguments."""
    assert find_command(call("1", "bash", arguments)) is None


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


def test_a_url_is_not_a_file() -> None:
    """In a call of any kind."""
    url = "https://docs.ledger.example/guide/7"
    assert find_deeds(call("1", "fetch", f'{{"url": "{url}", "to": "src/a.py"}}')) == {"src/a.py": Deed.NAMED}
    assert find_deeds(call("1", "bash", f'{{"command": "curl {url} > a/b"}}')) == {"a/b": Deed.WRITTEN}
    assert find_deeds(call("1", "read", f'{{"path": "{url}"}}')) == {}
