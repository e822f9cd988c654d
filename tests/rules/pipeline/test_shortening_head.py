"""The head: memory goes if it takes the room; system messages are truncated to their share if the policy says so."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from support.builders import conversation, count, fill, system, user

from trimtab.rules.conversation import Outcome
from trimtab.rules.pipeline.order import plan
from trimtab.rules.pipeline.shortening import LEAST_SHARE, LEAST_TEXT_TOKENS, fit_head, share_evenly
from trimtab.rules.policy import OverflowStrategy, Policy, SectionShares
from trimtab.rules.results.work import Work

LIMIT = 7000
POLICY = Policy(context_window=9332, completion_reserve=2332)
TRUNCATING = replace(POLICY, sections=SectionShares(), truncate_system=True)
SHARE = int(LIMIT * SectionShares().system)
BLOCK = f"<relevant_context>{fill('memory', 7200)}</relevant_context>"


def _fit(*messages, fixed_tokens: int = 0, policy: Policy = POLICY, task_tokens: int = 20) -> Outcome:
    return fit_head(conversation(*messages, fixed_tokens=fixed_tokens), task_tokens, policy, LIMIT, Work(count))


def test_memory_that_takes_the_room_goes_first() -> None:
    """In one message with other text, or in a message of its own; nothing else is done."""
    for leading in ([system(f"You help.\n{BLOCK}")], [system(BLOCK), system("You help.")]):
        planned = plan(conversation(*leading, user("How deep?")), POLICY, count=count)
        assert [decision.rule for decision in planned.decisions] == ["memory"]
        assert planned.conversation.tokens < 500
        assert "You help." in "".join(message.text for message in planned.conversation.messages)
        assert planned.window.caps == ()


def test_memory_stays_while_a_quarter_of_the_limit_is_left() -> None:
    """The task statement counts; tools count; and a strategy that removes nothing removes no memory."""
    small = system(f"<relevant_context>{fill('memory', 3000)}</relevant_context>")
    talk = conversation(small, user())
    assert fit_head(talk, 20, POLICY, LIMIT, Work(count)).conversation is talk
    for fixed_tokens, task_tokens in ((3000, 20), (0, 3000)):
        assert _fit(small, user(), fixed_tokens=fixed_tokens, task_tokens=task_tokens).decisions
    never = replace(POLICY, overflow_strategy=OverflowStrategy.ERROR)
    assert not _fit(system(BLOCK), user(), policy=never).decisions


def test_long_system_messages_keep_head_and_tail() -> None:
    long, short, later = system(f"First.\n{fill('rule', 4000)}\nLast."), system("Be brief."), system(fill("late", 3000))
    outcome = _fit(long, short, user(), later, policy=TRUNCATING)
    messages = outcome.conversation.messages
    assert messages[1:] == (short, user(), later)
    assert messages[0].text.startswith("First.\n")
    assert messages[0].text.endswith("\nLast.")
    assert "[trimtab: omitted " in messages[0].text
    assert SHARE * 3 // 4 < sum(message.tokens for message in messages[:2]) <= SHARE
    [decision] = outcome.decisions
    assert (decision.rule, decision.messages, decision.first_changed) == ("truncate_system", 1, 0)
    assert decision.saved_tokens == long.tokens - messages[0].tokens


def test_without_truncate_system_or_within_the_share_nothing_changes() -> None:
    long = conversation(system(fill("rule", 4000)), user())
    for policy in (POLICY, replace(TRUNCATING, truncate_system=False)):
        assert fit_head(long, 20, policy, LIMIT, Work(count)).conversation is long
    short = conversation(system(fill("rule", 1000)), user())
    assert fit_head(short, 20, TRUNCATING, LIMIT, Work(count)).conversation is short


@given(fixed=st.integers(0, 600), sizes=st.lists(st.integers(1, 3000), min_size=1, max_size=6))
def test_the_head_stays_within_its_share(fixed: int, sizes: list[int]) -> None:
    """Or within the least that it always gets. Truncating what is left again changes nothing."""
    leading = [system(fill(f"rule {number}", size)) for number, size in enumerate(sizes)]
    outcome = _fit(*leading, user(), fixed_tokens=fixed, policy=TRUNCATING)
    tokens = sum(message.tokens for message in outcome.conversation.messages[: len(leading)])
    least = max(SHARE * LEAST_SHARE, sum(map(_frame, leading)) + LEAST_TEXT_TOKENS * len(leading))
    assert tokens + fixed <= SHARE or tokens <= least
    again = fit_head(outcome.conversation, 20, TRUNCATING, LIMIT, Work(count))
    assert again.conversation is outcome.conversation or fixed > 0 or len(sizes) > 1


def _frame(message) -> int:
    return message.tokens - count(message.text)


@given(
    minutes=st.tuples(st.integers(10, 99), st.integers(10, 99)),
    size=st.integers(1, 4000),
    padding=st.integers(0, 100),
)
def test_a_timestamp_changes_no_other_message(minutes: tuple[int, int], size: int, padding: int) -> None:
    long = system(fill("rule", size))
    for order in (1, -1):
        texts = []
        for minute in minutes:
            leading = [system(f"It is 12:{minute}." + "x" * padding), long][::order]
            sent = _fit(*leading, user(), policy=TRUNCATING).conversation.messages
            texts.append(next(message.text for message in sent if "rule" in message.text))
        assert texts[0] == texts[1]


@given(sizes=st.lists(st.integers(0, 5000), min_size=1, max_size=12), budget=st.integers(12, 5000))
def test_shares_are_within_the_budget(sizes: list[int], budget: int) -> None:
    """Nobody gets more than its size or less than half of an even share, unless it needs less."""
    caps = share_evenly(sizes, budget)
    assert sum(min(size, cap) for size, cap in zip(sizes, caps, strict=True)) <= max(budget, 0)
    assert all(cap >= min(size, budget // (2 * len(sizes))) for size, cap in zip(sizes, caps, strict=True))
    if sum(sizes) <= budget:
        assert caps == sizes
