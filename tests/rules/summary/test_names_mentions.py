"""The names in each message, and which of them are likely to be needed again."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from hypothesis import given
from hypothesis import strategies as st
from support.builders import assistant, call, count, result, transcripts, user

from trimtab.rules.conversation import Message, Role
from trimtab.rules.summary.names import Mentions, rank_names, read_arguments, read_mentions

ODD = (
    "",
    "no JSON src/a.py",
    "{",
    "[" * 100_000,
    '{"a": 1e999}',
    '{"\ud800": "src/a.py \ud800"}',
    '"src/a.py"',
    "12345",
    "[1,2",
)
NAMES = st.sampled_from([f"src/part_{number}.py" for number in range(30)])


def rank(read: Sequence[Mentions], *, without: AbstractSet[str], most: int = 10_000) -> list[str]:
    return rank_names(read, without=without, most=most, count=count)


def mentions(role: Role, *told: str, asked: tuple[str, ...] = ()) -> Mentions:
    return Mentions(role, frozenset(asked), frozenset(told), {})


def test_arguments_are_decoded() -> None:
    """With their members' names as labels of numbers. Any arguments are read, those that are no JSON as a text."""
    arguments = '{"path": "src\\/a.py", "edits": [{"old": "x\\nold_name", "line": 12345}], "port": 18080, "ok": true}'
    texts = list(read_arguments([call("1", "edit_file", arguments)]))
    assert texts == ["src/a.py", "x\nold_name", "12345", "18080"]
    found = read_mentions(assistant("See os.path.", call("1", "edit_file", arguments)))
    assert found.asked == {"src/a.py", "old_name", "12345", "18080"}
    assert found.told == {"os.path"}
    assert found.labels == {"12345": "line", "18080": "port"}
    assert read_mentions(result("1", "order 12345")).labels == {}
    assert read_mentions(user("order 12345")).labels == {"12345": "order"}
    for arguments in ODD:
        found = read_mentions(Message(Role.ASSISTANT, (), (call("1", "run", arguments),)))
        assert all(name.encode() for name in found.asked)
        if "src/a.py" in arguments:
            assert "src/a.py" in found.asked


LIKELIER = {
    "named later": [mentions(Role.TOOL, "name_a"), mentions(Role.TOOL, "name_b")],
    "in a call": [mentions(Role.ASSISTANT, "name_a", asked=("name_b",))],
    "in more calls": [
        mentions(Role.ASSISTANT, asked=("name_b",)),
        mentions(Role.ASSISTANT, asked=("name_a", "name_b")),
    ],
    "said by the user": [mentions(Role.USER, "name_b"), mentions(Role.TOOL, "name_a", "name_b")],
    "said by the assistant": [mentions(Role.ASSISTANT, "name_b"), mentions(Role.TOOL, "name_a", "name_b")],
    "printed less often": [mentions(Role.TOOL, "name_a"), mentions(Role.TOOL, "name_a", "name_b")],
}


def test_the_name_more_likely_to_be_needed_comes_first() -> None:
    """Even if the other comes first in the alphabet. Data that only tools have told comes last."""
    for named in LIKELIER.values():
        assert rank(named, without=frozenset()) == ["name_b", "name_a"]
    told = [mentions(Role.TOOL, "7/150", "name_a", "8/150", "9/150"), mentions(Role.USER, "9/150", asked=("8/150",))]
    assert rank(told, without=frozenset())[-2:] == ["name_a", "7/150"]


def test_of_the_names_short_for_their_letters_the_one_of_fewest_tokens_comes_first() -> None:
    """No token of the others is counted."""
    counted: list[str] = []

    def count_digits(text: str) -> int:
        counted.append(text)
        return 1 + 9 * text.count("9")

    both = [mentions(Role.TOOL, "name_9", "name_ab", "much_longer_name_a")]
    assert rank_names(both, without=frozenset(), most=2, count=count_digits) == ["name_ab", "name_9"]
    assert sorted(counted) == [" name_9", " name_ab"]


@given(messages=transcripts(), without=st.sets(NAMES))
def test_each_name_of_the_messages_is_ranked_once(messages: tuple[Message, ...], without: set[str]) -> None:
    """Each name of them once, but for those of system messages, which are always forwarded."""
    read = [read_mentions(message) for message in messages]
    ranked = rank(read, without=without)
    names = {name for one in read if one.role is not Role.SYSTEM for name in one.asked | one.told}
    assert sorted(ranked) == sorted(names - without)
    assert rank(read, without=names) == []
