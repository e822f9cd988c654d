"""The measure of needed identifiers follows its definition exactly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import assistant, call, conversation, result, user

from proxy.cli.records.needed import CLASSES, Needed, Tally, classify, find_identifiers
from rules.conversation import Message

TALK = (
    user("look at src/app.py and 48213"),
    assistant("", call("a", arguments="src/lib.py")),
    result("a", "7204b2221a58"),
)
ANSWER = assistant("src/app.py, src/lib.py, 48213, 7204b2221a58 and src/new.py")


def tell(forwarded: tuple[Message, ...], *more: Message) -> Tally:
    """What a request needs of which these messages were forwarded, once the next one has come."""
    needed = Needed()
    needed.add("s", conversation(*TALK), {"way": conversation(*forwarded)})
    needed.add("s", conversation(*TALK, ANSWER, *more, user("go on")), {"way": conversation()})
    return needed.tallies["way"]


def test_needed_is_what_the_next_answer_names_and_the_conversation_held() -> None:
    """In texts, calls and results; kept is what is forwarded in some form."""
    tally = tell(TALK[:2])
    assert (tally.needed.total(), tally.kept.total(), tally.removed.total(), tally.recalled.total()) == (4, 3, 1, 0)
    summed = tell((user("Summary: 7204b2221a58"),))
    assert (summed.needed.total(), summed.kept.total(), summed.removed.total(), summed.recalled.total()) == (4, 1, 4, 1)


def test_a_request_that_is_forwarded_as_it_came_is_not_counted() -> None:
    """Nor is one whose answer is not known: another session, or a conversation that was rewound."""
    assert tell(TALK).share_kept() is None
    needed = Needed()
    short = {"way": conversation(TALK[0])}
    needed.add("s", conversation(*TALK), short)
    needed.add("t", conversation(*TALK, ANSWER), short)
    needed.add("s", conversation(user("another")), short)
    assert needed.tallies["way"].needed.total() == 0


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


def test_shares_of_nothing_are_not_known() -> None:
    assert Tally().share_kept() is None
    assert Tally().share_recalled("path") is None
