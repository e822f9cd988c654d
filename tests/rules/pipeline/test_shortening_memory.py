"""Messages without their retrieved memory: found once, and only where memory may be."""

from support.builders import assistant, conversation, count, fill, result, system, user

from trimtab.rules.pipeline.shortening import Memory
from trimtab.rules.policy import Policy
from trimtab.rules.results.work import Work

POLICY = Policy()
BLOCK = f"<relevant_context>{fill('memory', 50)}</relevant_context>"
MARKER = f"[trimtab: retrieved memory of {count(BLOCK)} tokens removed]"


def test_user_and_later_system_messages_hold_memory() -> None:
    """Leading messages, answers and results do not. A block that costs less than its marker stays."""
    small = "<relevant_context>a</relevant_context>"
    messages = [
        system(BLOCK),
        user(f"a {BLOCK} b {small}"),
        assistant(BLOCK),
        result("c", BLOCK),
        system(BLOCK, role="developer"),
        user(small),
    ]
    memory = Memory()
    memory.extend(messages, 1, POLICY, Work(count))
    assert {index: bare.text for index, bare in memory.bare.items()} == {1: f"a {MARKER} b {small}", 4: MARKER}
    assert memory.savings == {index: messages[index].tokens - bare.tokens for index, bare in memory.bare.items()}
    dropped = memory.drop(conversation(*messages), 4)
    assert [one is two for one, two in zip(messages, dropped.conversation.messages, strict=True)] == [
        index != 1 for index in range(6)
    ]
    [decision] = dropped.decisions
    assert (decision.rule, decision.messages, decision.first_changed) == ("memory", 1, 1)
    assert decision.saved_tokens == memory.savings[1]
