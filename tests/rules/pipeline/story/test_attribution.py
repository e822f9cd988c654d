"""Which rules changed a message."""

from dataclasses import replace

from support.builders import assistant as answer
from support.builders import call as make_call
from support.builders import conversation, count, fill, result, session, system, user
from support.policies import POLICY

from rules.conversation import Message
from rules.pipeline.apply import apply
from rules.pipeline.make_plan import plan
from rules.pipeline.story.alignment import align
from rules.pipeline.story.attribution import find_rules
from rules.policy import OnExceeded, Policy, SectionShares
from rules.treatment import Budget, Tidying

BLANK_JSON = (
    "[" + ",".join(f'{{"row":        {number}, "text":          "row {number}"}}' for number in range(20)) + "]"
)


def blame(messages: tuple[Message, ...], policy: Policy) -> dict[int, tuple[str, ...]]:
    """The rules that changed each message that was changed."""
    planned = plan(conversation(*messages), policy, count=count)
    outcome = apply(planned, policy, count=count)
    rules = tuple(one.rule for one in outcome.decisions)
    laid = align(planned, outcome.conversation, frozenset(rules))
    found = {index: find_rules(laid, index, rules) for index in range(len(messages))}
    return {index: names for index, names in found.items() if names}


def _read(*texts: str) -> tuple[Message, ...]:
    steps = [(answer(None, make_call(f"r{number}")), result(f"r{number}", text)) for number, text in enumerate(texts)]
    return (user("Read."), *(message for step in steps for message in step), user("And now?"))


def test_tidying_and_truncation_are_told_apart() -> None:
    """A result may be tidied, truncated, or both."""
    rows = "".join(f"\x1b[31mrow {number} is red\x1b[0m\n" for number in range(400))
    plain = "".join(f"row {number} is plain\n" for number in range(400))
    policy = replace(POLICY, context_window=100_000, tidying=Tidying())
    found = blame(_read(BLANK_JSON, plain, rows), policy)
    assert found == {2: ("tidy",), 4: ("truncate",), 6: ("tidy", "truncate")}


def test_each_rule_on_old_messages_is_named() -> None:
    """Of a result that was shortened before it was pruned or cut, both rules."""
    long = session(20, result_tokens=400)
    policy = replace(POLICY, result_budget=Budget(290), context_window=5950)
    assert blame(long, policy) == {at: ("truncate", "prune") if at < 22 else ("truncate",) for at in range(3, 42, 2)}
    cut = blame(session(40, result_tokens=400), policy)
    assert cut[2] == ("digest",)
    assert cut[3] == ("truncate", "digest")


def test_a_message_at_the_beginning_is_shortened_for_its_share() -> None:
    """Memory that was dropped from it is told apart."""
    shares = SectionShares(system=0.1, summary=0.1, memory=0.1, recent=0.7)
    policy = replace(POLICY, sections=shares, truncate_system=True)
    found = blame((system(fill("rules", 1000)), user("Go on.")), policy)
    assert found == {0: ("truncate_system",)}


def test_the_newest_message_is_shortened_if_it_does_not_fit() -> None:
    """No other rule acts on a user message."""
    policy = replace(POLICY, on_exceeded=OnExceeded.TRUNCATE)
    assert blame((user(fill("all", 5000)),), policy) == {0: ("exceeded",)}
