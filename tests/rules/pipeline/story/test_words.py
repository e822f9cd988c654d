"""Numbers, places and tools in words."""

import pytest

from rules.pipeline.story.values import OUTSIDE
from rules.pipeline.story.words import say_list, say_number, say_places, say_tools


@pytest.mark.parametrize(
    ("elements", "said"),
    [
        ([], ""),
        ([12], "message 12"),
        ([14, 12, *range(20, 32)], "messages 12, 14 and 20-31"),
        ([4, 5], "messages 4-5"),
        ([OUTSIDE, 0], "message 0"),
        ([OUTSIDE], ""),
        ([3, 3], "message 3"),
    ],
)
def test_places_are_joined_to_spans(elements: list[int], said: str) -> None:
    """Neighbours become a span; what is outside the list has no number."""
    assert say_places(elements) == said


def test_a_sentence_names_only_so_many_places() -> None:
    """The rest is counted, message by message."""
    said = say_places([*range(0, 40, 2), 100, 101])
    assert said == "messages 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22 and 10 more"


def test_the_most_frequent_tools_are_named() -> None:
    """In the same order each time."""
    assert say_tools(["read", "bash", "read"]) == "read and bash"
    assert say_tools(["b", "a"]) == say_tools(["a", "b"]) == "a and b"
    assert say_tools(list("abcdef")) == "a, b, c, d and 2 other tools"
    assert say_tools([]) == ""


def test_a_name_that_looks_like_none_is_not_said() -> None:
    """It could be text of the conversation, or move a terminal's cursor."""
    assert say_tools(["my secret is 42", "bash"]) == "bash and 1 other tool"
    assert say_tools(["\x1b[2J"]) == ""


def test_numbers_have_the_right_noun() -> None:
    """And commas."""
    assert [say_number(number, "call") for number in (0, 1, 1200)] == ["0 calls", "1 call", "1,200 calls"]


def test_lists_read_as_one_says_them() -> None:
    """With `and` before the last."""
    assert [say_list(items) for items in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]
