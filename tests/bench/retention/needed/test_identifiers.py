"""The measure of needed identifiers follows its definition exactly."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.retention.needed.identifiers import (
    CLASSES,
    Tally,
    Transcript,
    classify,
    find_identifiers,
    read_worded,
)


def say(role: str, text: str, **members: object) -> bytes:
    return orjson.dumps({"role": role, "content": text, **members})


def call(call_id: str, arguments: str) -> bytes:
    function = {"name": "read", "arguments": arguments}
    return say("assistant", "", tool_calls=[{"id": call_id, "type": "function", "function": function}])


def measure(answer: str, original: list[bytes], forwarded: list[bytes]) -> tuple[int, int, int, int]:
    transcript = Transcript(original)
    list(transcript.extend(len(original)))
    tally = transcript.measure(read_worded(say("assistant", answer)), [read_worded(raw) for raw in forwarded])
    return tally.needed.total(), tally.kept.total(), tally.removed.total(), tally.recalled.total()


@pytest.mark.parametrize(
    ("identifier", "kind"),
    [
        ("src/app/main.py", "path"),
        ("/etc/hosts", "path"),
        ("https://a.example/b?c=1", "url"),
        ("jane.doe@corp.example", "address"),
        ("48213", "number"),
        ("2031-04-05", "number"),
        ("a1b2-c3d4e", "id"),
        ("7204b2221a58", "id"),
        ("settings.DEBUG", "name"),
        ("max_tool_tokens", "name"),
        ("readFile", "name"),
    ],
)
def test_an_identifier_is_found_whole_and_has_one_class(identifier: str, kind: str) -> None:
    assert find_identifiers(f"see {identifier}, please") == {identifier}
    assert classify(identifier) == kind


def test_letters_before_a_dash_are_no_part_of_a_number() -> None:
    """By definition, a ticket counts as its number."""
    assert find_identifiers("see OPS-48213") == {"48213"}


def test_words_and_short_numbers_are_no_identifiers() -> None:
    assert find_identifiers("the answer is 42 and 1234, nothing else") == frozenset()


@given(st.text(max_size=80))
def test_every_identifier_has_a_known_class_and_a_length_within_bounds(text: str) -> None:
    for found in find_identifiers(text):
        assert classify(found) in CLASSES
        assert 5 <= len(found) <= 200


def test_only_what_the_transcript_held_is_needed() -> None:
    original = [say("user", "look at src/app.py")]
    assert measure("src/app.py and src/new.py", original, original) == (1, 1, 0, 0)


def test_a_part_of_an_identifier_does_not_count() -> None:
    original = [say("user", "look at src/app.py")]
    assert measure("src/app.py", original, [say("user", "look at src/app.pyc")]) == (1, 0, 1, 0)


def test_a_summary_recalls_what_no_message_holds_any_more() -> None:
    original = [say("user", "look at src/app.py and src/lib.py")]
    assert measure("src/app.py src/lib.py", original, [say("user", "Summary: src/lib.py")]) == (2, 1, 2, 1)


def test_the_result_of_a_call_is_carried_over_whatever_was_done_to_its_text() -> None:
    original = [call("c1", "{}"), say("tool", "src/app.py " * 9, tool_call_id="c1")]
    shortened = [original[0], say("tool", "src/app.py", tool_call_id="c1")]
    assert measure("src/app.py", original, shortened) == (1, 1, 0, 0)


def test_members_in_another_order_are_the_same_message() -> None:
    original = [orjson.dumps({"role": "user", "content": "src/app.py"})]
    assert measure("src/app.py", original, [orjson.dumps({"content": "src/app.py", "role": "user"})]) == (1, 1, 0, 0)


def test_arguments_of_calls_are_words_too() -> None:
    original = [call("c1", '{"path": "src/app.py"}')]
    assert measure("src/app.py", original, original) == (1, 1, 0, 0)


def test_shares_of_nothing_are_not_known() -> None:
    assert Tally().share_kept() is None
    assert Tally().share_recalled("path") is None
