"""One rule on each result: exempt results, the budget of errors, small savings, caches."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.builders import assistant, call, conversation, count, fill, result, session
from support.results import edit_results, tidy_tool_results, truncate_tool_results

from trimtab.rules.conversation import CountTokens, Message, Outcome, Role, Telling
from trimtab.rules.pipeline.apply import apply
from trimtab.rules.pipeline.make_plan import plan
from trimtab.rules.policy import OverflowStrategy, Policy
from trimtab.rules.results.calls import Place
from trimtab.rules.results.edit import Editor, Result
from trimtab.rules.results.work import Allowance, LargeWorkError, Work
from trimtab.rules.treatment import Budget, Tidying, ToolRule, Treatment, Truncation

POLICY = Policy(result_budget=Budget(300), truncation=Truncation.HEAD_TAIL)
PLAIN = Treatment(Budget(300), Truncation.HEAD_TAIL)
GREEN = "".join(f"\x1b[32mthis is line {number} of what came out\x1b[0m\n" for number in "abcdefgh")
PLAIN_GREEN = GREEN.replace("\x1b[32m", "").replace("\x1b[0m", "")


def tidy(*messages: Message, policy: Policy = POLICY, work: Work | None = None) -> Outcome:
    """The transcript, tidied."""
    return tidy_tool_results(conversation(*messages), policy=policy, work=work or Work(count))


def test_what_else_a_message_costs_is_no_matter() -> None:
    """A saving is compared with the texts alone, because reasoning and images are not in the cache's key."""
    memo = {}
    plain = result("a", GREEN)
    for message in (replace(plain, tokens=90_000), plain):
        outcome = tidy(message, work=Work(count, memo))
        (after,) = outcome.conversation.messages
        assert after.texts == (PLAIN_GREEN,)
        assert message.tokens - after.tokens == count(GREEN) - count(PLAIN_GREEN)
    assert len(memo) == 1


def test_exempt_results_stand_as_they_are() -> None:
    """All results of a tool, or those of calls with an excluded argument. Other results of the tool are changed."""
    read = [call("a", "read", '{"path":"AGENTS.md"}'), call("b", "read", '{"path":"a.log"}'), call("c", "look", "{}")]
    rules = (
        ToolRule("read", replace(PLAIN, tidying=Tidying(), exempt_arguments=("*.md",))),
        ToolRule("look", replace(PLAIN, tidying=Tidying(), is_exempt=True)),
    )
    policy = replace(POLICY, tools=rules)
    messages = (assistant(None, *read), *(result(one.id, GREEN) for one in read))
    texts = [message.text for message in tidy(*messages, policy=policy).conversation.messages[1:]]
    assert texts == [GREEN, PLAIN_GREEN, GREEN]

    long = (assistant(None, *read), *(result(one.id, fill("long", 400)) for one in read))
    short = truncate_tool_results(conversation(*long), policy=policy, work=Work(count)).conversation.messages[1:]
    assert [message.edited for message in short] == [False, True, False]


def test_exempt_results_are_pruned_all_the_same() -> None:
    """The window holds whatever is exempt: these results stand whole, or as a placeholder."""
    rule = ToolRule("*", replace(PLAIN, is_exempt=True))
    policy = Policy(6000, 500, tools=(rule,), overflow_strategy=OverflowStrategy.PRUNE)
    before = conversation(*session(12, result_tokens=400))
    planned = plan(before, policy, count=count)
    after = apply(planned, policy, count=count)
    assert {decision.rule for decision in after.decisions} == {"prune"}
    results = [message for message in after.conversation.messages if message.role is Role.TOOL]
    assert results[0].text.startswith("[trimtab: tool result of ")
    assert results[-1] == before.messages[-1]
    assert after.conversation.tokens <= planned.limit


@pytest.mark.parametrize(
    ("message", "factor"),
    [
        (result("a", fill("log", 1000)), 1),
        (replace(result("a", fill("log", 1000)), is_error=True), 2),
        (result("a", fill("log", 1000) + "\n[exit code: 2]"), 2),
        (result("a", fill("log", 1000) + "\n[exit code: 0]"), 1),
    ],
)
def test_an_error_has_twice_the_budget(message: Message, factor: int) -> None:
    """An error according to the client, or to the last lines of the text. In tokens and in bytes."""
    for budget, measure in ((Budget(100), count), (Budget(1000, 400), len)):
        policy = replace(POLICY, result_budget=budget)
        outcome = truncate_tool_results(conversation(message), policy=policy, work=Work(count))
        size = measure(outcome.conversation.messages[0].text)
        limit = budget.max_bytes or budget.max_tokens
        assert 0.8 * factor * limit < size <= factor * limit


def test_little_is_not_worth_a_change() -> None:
    """A result stays if less than 5 % of its tokens would be saved."""
    text = fill("line", 400)
    almost = truncate_tool_results(
        conversation(result("a", text)), policy=replace(POLICY, result_budget=Budget(398)), work=Work(count)
    )
    assert not almost.decisions
    assert not tidy(result("a", "\x1b[32m" + "abc " * 400)).decisions
    assert tidy(result("a", "\x1b[32mabc " * 20)).decisions


CHANGES = [
    {"policy": replace(POLICY, tidying=Tidying(ansi=False))},
    {"policy": replace(POLICY, result_budget=Budget(301))},
    {"call": call("a", "other")},
    {"call": call("a", "run", '{"path":"b"}')},
    {"message": replace(result("a", GREEN), is_error=True)},
    {"message": result("a", GREEN + "x")},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_all_that_an_outcome_depends_on_is_in_its_key(change: dict[str, object]) -> None:
    """With another policy, call or text, the outcome is computed again; with the same ones it is not."""
    looked: list[Message] = []

    def edit(one: Result, _: CountTokens) -> tuple[str, ...]:
        looked.append(one.message)
        return one.message.texts

    def wants(_: Sequence[Message], places: Sequence[Place]) -> list[Place]:
        return list(places)

    editor = Editor("rule", wants, edit, lambda _: "", Telling("result", ""))
    memo = {}
    situation: dict[str, object] = {"policy": POLICY, "call": call("a"), "message": result("a", GREEN)}
    for given in (situation, situation, situation | change, situation | change):
        messages = (assistant(None, given["call"]), given["message"])  # type: ignore[arg-type]
        edit_results(conversation(*messages), given["policy"], (editor,), Work(count, memo))  # type: ignore[arg-type]
    assert len(looked) == 2


def test_more_work_than_is_allowed_is_not_begun() -> None:
    """What was done until then is cached and not done again. Cached outcomes take nothing from the allowance."""
    memo = {}
    messages = (result("a", GREEN), result("b", GREEN + "more\n"))
    with pytest.raises(LargeWorkError):
        tidy(*messages, work=Work(count, memo, Allowance(len(GREEN) + 1)))
    assert len(memo) == 1
    done = tidy(*messages, work=Work(count, memo, Allowance(len(GREEN) + 5)))
    assert done == tidy(*messages) == tidy(*messages, work=Work(count, memo, Allowance(0)))
