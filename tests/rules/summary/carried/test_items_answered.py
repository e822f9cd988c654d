"""Tool calls with their results, the newest first."""

import pytest
from support.builders import assistant, call, result, user

from trimtab.rules.results.calls import MAX_ARGUMENTS_CHARS
from trimtab.rules.summary.carried.items import newest_steps, read_arguments


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


def test_calls_with_one_id_get_their_results_in_order() -> None:
    """The module pairing.py does the same."""
    messages = [assistant(None, call("1", "a"), call("1", "b")), result("1", "of a"), result("1", "of b")]
    (only,) = newest_steps(messages)
    assert [each.result and each.result.text for each in only.calls] == ["of a", "of b"]


@pytest.mark.parametrize(
    ("arguments", "members"),
    [
        ('{"a":1}', {"a": 1}),
        ('"{\\"a\\":1}"', {"a": 1}),
        ("[1]", {"": [1]}),
        ('{"a":', {"": '{"a":'}),
        ("", {"": ""}),
        ("[" * 100_000, {"": "[" * 100_000}),
        ('{"a":"' + "x" * MAX_ARGUMENTS_CHARS + '"}', {}),
        ('{"a":"\ud800"}', {"": '{"a":"\ud800"}'}),
    ],
)
def test_any_arguments_are_read(arguments: str, members: object) -> None:
    """Invalid JSON is a text; arguments that are too long have no members."""
    assert read_arguments(call("1", "x", arguments)) == members
