"""What compaction removes, and the form in which a model gets it."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from upstreams.examinee import make_session

from trimtab.proxy.cli.evaluate.exam import ITEM_TOKENS, find_removed, split_removed
from trimtab.proxy.compaction import load_compactor, read_messages, read_request
from trimtab.rules.conversation import Message, Role, ToolCall
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.policy import OverflowStrategy, Policy


def _count(text: str) -> int:
    return len(text) // 4


def _plan(body: bytes, **keys: object) -> Plan:
    compactor = load_compactor("m", vocabulary="heuristic")
    policy = Policy(context_window=8000, completion_reserve=1000, **keys)  # type: ignore[arg-type]
    return compactor.plan(read_request(body), policy).plan


def test_what_stays_is_not_removed() -> None:
    """System, task, kept user messages and the tail stay. Each other message is once among those removed."""
    plan = _plan(make_session())
    removed = find_removed(plan)
    cut = plan.window.cut
    assert cut is not None
    tail = {message.digest for message in plan.original.messages[max(cut.at, plan.window.prune_stop) :]}
    assert {message.digest for message in removed}.isdisjoint(tail)
    assert not {message.text for message in removed} & {"Read all files, and tell what is odd."}
    codes = [number for number in range(30) if any(f"harbour{number} " in message.text for message in removed)]
    assert codes == list(range(len(codes)))
    assert 10 < len(codes) < 30
    assert all(message in plan.original.messages for message in removed)


def test_pruned_results_are_removed() -> None:
    """Without a summary, only results that became placeholders are removed."""
    removed = find_removed(
        _plan(make_session(), overflow_strategy=OverflowStrategy.PRUNE, high_water=0.8, low_water=0.4)
    )
    assert len(removed) > 20
    assert {message.role for message in removed} == {Role.TOOL}


def test_nothing_is_removed_of_a_session_that_fits() -> None:
    plan = _plan(make_session(2))
    assert find_removed(plan) == []
    assert split_removed([], 5, count=_count) == []


def test_words_that_stand_in_the_tail_too_are_not_removed() -> None:
    """A message that is repeated after the cut is not removed."""
    messages = orjson.loads(make_session())["messages"]
    again = {"role": "user", "content": "Never touch the lighthouse."}
    plan = _plan(read_messages([*messages[:4], again, *messages[4:], again], model="m").body)
    assert plan.window.cut is not None
    assert again["content"] not in {message.text for message in find_removed(plan)}


_MESSAGES = st.lists(
    st.builds(
        lambda role, words, calls: Message(role, ("word " * words,), tool_calls=(ToolCall("1", "ls", "{}"),) * calls),
        st.sampled_from([Role.USER, Role.ASSISTANT, Role.TOOL]),
        st.integers(0, 3000),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=20,
)


@given(_MESSAGES, st.integers(1, 20), st.integers(100, 4000))
def test_parts_share_the_questions_and_the_depth(messages: list[Message], questions: int, part_tokens: int) -> None:
    """The parts want all questions together, go from old to new, and are not much longer than allowed."""
    parts = split_removed(messages, questions, count=_count, part_tokens=part_tokens)
    assert sum(part.questions for part in parts) == questions
    assert all(part.questions > 0 for part in parts)
    depths = [part.depth for part in parts]
    assert depths == sorted(depths)
    assert all(0 <= depth <= 1 for depth in depths)
    # At least one message is shown, and of each no more than its share.
    longest = max(part_tokens, 3 * (ITEM_TOKENS + 20))
    assert all(_count(part.text) <= longest + len(messages) for part in parts)


def test_a_message_is_shown_with_its_calls() -> None:
    call = ToolCall("1", "read_file", '{"path": "a.py"}')
    messages = [Message(Role.ASSISTANT, ("I read it.",), tool_calls=(call,)), Message(Role.TOOL, ("line 1",))]
    (part,) = split_removed(messages, 3, count=_count)
    expected = '[ASSISTANT]\nI read it.\nCALL read_file {"path": "a.py"}\n\n[TOOL RESULT]\nline 1'
    assert (part.text, part.questions) == (expected, 3)


@pytest.mark.parametrize("questions", [1, 4])
def test_more_than_the_parts_hold_is_shown_from_each_depth(questions: int) -> None:
    """Each part begins with the oldest message of its stretch."""
    messages = [Message(Role.USER, (f"message {number} " + "word " * 400,)) for number in range(40)]
    parts = split_removed(messages, questions, count=_count, part_tokens=1000)
    assert [part.text.split()[2] for part in parts] == [str(40 // questions * place) for place in range(questions)]
