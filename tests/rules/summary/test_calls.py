"""What calls say: their results, arguments and command lines, and what they do to files."""

import pytest
from support.builders import assistant, call, result, user

from trimtab.rules.results.calls import MAX_ARGUMENTS_CHARS
from trimtab.rules.summary.calls import (
    ARGUMENTS_CHARS,
    Deed,
    find_command,
    find_deeds,
    newest_steps,
    only_reads,
    read_arguments,
)


def test_steps_come_newest_first_with_their_calls_in_order() -> None:
    """A step's calls are in the assistant's order, each with its own result, whatever the order of the results."""
    one, two, three = call("1"), call("2"), call("3")
    messages = [user(), assistant(None, one, two), result("2", "second"), result("1", "first"), assistant("x", three)]
    newest, older, first = newest_steps(messages)
    assert [(each.call.id, each.result) for each in newest.calls] == [("3", None)]
    assert [(each.call.id, each.result and each.result.text) for each in older.calls] == [
        ("1", "first"),
        ("2", "second"),
    ]
    assert first.message is messages[0]
    assert first.calls == ()
    for messages, said in (
        ([assistant(None, one, one), result("1", "a"), result("1", "b")], ["a", "b"]),
        ([assistant(None, one), result("2", "of another")], [None]),
    ):
        (only,) = newest_steps(messages)
        assert [each.result and each.result.text for each in only.calls] == said


@pytest.mark.parametrize(
    ("arguments", "members"),
    [
        ('{"a":1}', {"a": 1}),
        ('{"a":', {"": '{"a":'}),
        ("", {"": ""}),
        ("[" * 100_000, {"": "[" * 100_000}),
        ('{"a":"' + "x" * MAX_ARGUMENTS_CHARS + '"}', {}),
        ('"' + "x" * (MAX_ARGUMENTS_CHARS - 2) + '"', {"": "x" * (MAX_ARGUMENTS_CHARS - 2)}),
    ],
)
def test_any_arguments_are_read(arguments: str, members: object) -> None:
    """Invalid JSON is a text; arguments that are too long have no members."""
    assert read_arguments(call("1", "x", arguments)) == members


def test_a_call_tells_what_it_does_to_files() -> None:
    """Its name shows that, or its subcommand, or its command line. A URL is not a file."""
    for name, arguments, deeds in [
        ("read_file", '{"path": "a.py"}', {"a.py": Deed.READ}),
        ("str_replace_editor", '{"command": "view", "path": "/w/a.py"}', {"/w/a.py": Deed.READ}),
        ("str_replace_editor", '{"command": "str_replace", "path": "/w/a.py"}', {"/w/a.py": Deed.EDITED}),
        ("Write", '{"file_path": "/w/a.py", "content": "see b/c.py"}', {"/w/a.py": Deed.WRITTEN}),
        ("bash", '{"command": "cat a/b.py && rm ./c/d"}', {"a/b.py": Deed.READ, "./c/d": Deed.DELETED}),
        ("bash", '{"command": "echo hello > a/b.py"}', {"a/b.py": Deed.WRITTEN}),
        ("bash", '{"command": "make all 2> a/log"}', {"a/log": Deed.NAMED}),
        ("bash", '{"command": "sed -i s/x/y/ a/b.py"}', {"a/b.py": Deed.EDITED}),
        ("shell", '{"command": ["cat", "a/b"]}', {"a/b": Deed.READ}),
        ("search", '{"query": "where"}', {}),
    ]:
        assert find_deeds(call("1", name, arguments)) == deeds
    url = "https://docs.ledger.example/guide/7"
    assert find_deeds(call("1", "fetch", f'{{"url": "{url}", "to": "src/a.py"}}')) == {"src/a.py": Deed.NAMED}
    assert find_deeds(call("1", "bash", f'{{"command": "curl {url} > a/b"}}')) == {"a/b": Deed.WRITTEN}
    assert find_deeds(call("1", "read", f'{{"path": "{url}"}}')) == {}


def test_a_command_line_is_found_in_its_forms() -> None:
    """A text, the words of one command, those of a shell that runs it, or several lines. Other calls have none."""
    for arguments, command in [
        ('{"command": "make"}', "make"),
        ('{"command": ["bash", "-lc", "cd a && make"]}', "cd a && make"),
        ('{"command": ["git", "commit", "-m", "two words"]}', "git commit -m two words"),
        ('{"command": ["cd a", "make"]}', "cd a\nmake"),
        ('{"command": "' + "x" * (ARGUMENTS_CHARS - 15) + '"}', "x" * (ARGUMENTS_CHARS - 15)),
        ('{"commands": ["make", "make test"]}', "make\nmake test"),
    ]:
        assert find_command(call("1", "shell", arguments)) == command
    for arguments in ["", "[1]", '{"command": 3}', '{"command": " "}', '{"command": "' + "x" * ARGUMENTS_CHARS]:
        assert find_command(call("1", "bash", arguments)) is None
    for arguments, reads in [
        ('{"command": ["bash", "-lc", "cd a && grep -n x b/c"]}', True),
        ('{"command": ["bash", "-lc", "cat a/b; make"]}', False),
        ('{"command": "sed -i s/x/y/ a/b"}', False),
        ('{"path": "a/b"}', True),
    ]:
        assert only_reads(call("1", "read", arguments)) is reads
