"""The measure of needed identifiers follows its definition exactly."""

from support.builders import assistant, call, conversation, result, user

from trimtab.proxy.cli.records.run import Needed, Tally, find_identifiers
from trimtab.rules.conversation import Message

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
    assert (tally.needed, tally.kept) == (4, 3)
    assert tell((user("Summary: 7204b2221a58"),)) == Tally(4, 1)


def test_a_request_that_is_forwarded_as_it_came_is_not_counted() -> None:
    """Nor is one whose answer is not known: another session, or a conversation that was rewound."""
    assert tell(TALK).share_kept() is None
    needed = Needed()
    short = {"way": conversation(TALK[0])}
    needed.add("s", conversation(*TALK), short)
    needed.add("t", conversation(*TALK, ANSWER), short)
    needed.add("s", conversation(user("another")), short)
    assert needed.tallies["way"].needed == 0


def test_letters_before_a_dash_are_no_part_of_a_number() -> None:
    """By definition, a ticket counts as its number."""
    assert find_identifiers("see OPS-48213") == {"48213"}


def test_words_and_short_numbers_are_no_identifiers() -> None:
    assert find_identifiers("the answer is 42 and 1234, nothing else") == frozenset()


def test_shares_of_nothing_are_not_known() -> None:
    assert Tally().share_kept() is None
