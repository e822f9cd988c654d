"""Each result with its own call and its treatment; what is exempt, what an error gets, what is remembered."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.builders import assistant, call, conversation, count, fill, result, user

from rules.conversation import CountTokens, Message, Outcome
from rules.policy import Policy
from rules.results.calls import Place, find_results
from rules.results.edit import (
    Editor,
    Result,
)
from rules.results.excerpt.rule import truncate_tool_results
from rules.results.incremental import edit_results
from rules.results.tidy.rule import MIN_CHARS, tidy_tool_results
from rules.results.work import Allowance, LargeWorkError, Work
from rules.treatment import Budget, Tidying, ToolRule, Treatment, Truncation

POLICY = Policy(result_budget=Budget(300), truncation=Truncation.HEAD_TAIL)
PLAIN = Treatment(Budget(300), Truncation.HEAD_TAIL)
GREEN = "".join(f"\x1b[32mthis is line {number} of what came out\x1b[0m\n" for number in "abcdefgh")
PLAIN_GREEN = GREEN.replace("\x1b[32m", "").replace("\x1b[0m", "")


def tidy(*messages: Message, policy: Policy = POLICY, work: Work | None = None) -> Outcome:
    """What tidying makes of a transcript."""
    return tidy_tool_results(conversation(*messages), policy=policy, work=work or Work(count))


def test_what_else_a_message_costs_is_no_matter() -> None:
    """A saving is weighed against the texts: reasoning and images are not in the memo's key."""
    memo = {}
    plain = result("a", GREEN)
    for message in (replace(plain, tokens=90_000), plain):
        outcome = tidy(message, work=Work(count, memo))
        (after,) = outcome.conversation.messages
        assert after.texts == (PLAIN_GREEN,)
        assert message.tokens - after.tokens == count(GREEN) - count(PLAIN_GREEN)
    assert len(memo) == 1


@pytest.mark.parametrize(
    ("name", "expected"), [("read_file", 1), ("reader", 2), ("Read_file", 3), ("read_file" * 99, 300), ("", 3)]
)
def test_the_first_rule_that_matches_a_tools_name_decides(name: str, expected: int) -> None:
    """Case counts; a name of megabytes matches nothing."""
    rules = tuple(ToolRule(glob, Treatment(Budget(number))) for glob, number in (("read_*", 1), ("read*", 2), ("*", 3)))
    assert replace(POLICY, tools=rules).find_treatment(name).budget.max_tokens == expected


def test_without_a_call_the_results_own_name_tells_its_tool() -> None:
    """Some clients name results."""
    policy = replace(POLICY, tools=(ToolRule("search", replace(PLAIN, is_exempt=True)),))
    places = find_results((result("a", name="search"), result("a", name="other")), policy)
    assert [place.treatment.is_exempt for place in places] == [True, False]


def test_exempt_results_stand_as_they_are() -> None:
    """All of a tool, or those of calls that name what is excluded; others of the tool do not."""
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
    """Said by the client, or by the text's own last lines; in tokens and in bytes."""
    for budget, measure in ((Budget(100), count), (Budget(1000, 400), len)):
        policy = replace(POLICY, result_budget=budget)
        outcome = truncate_tool_results(conversation(message), policy=policy, work=Work(count))
        size = measure(outcome.conversation.messages[0].text)
        limit = budget.max_bytes or budget.max_tokens
        assert 0.8 * factor * limit < size <= factor * limit


def test_little_is_not_worth_a_change() -> None:
    """Under 5 % of a result's tokens it stays; small results stay whatever they hold."""
    text = fill("line", 400)
    almost = truncate_tool_results(
        conversation(result("a", text)), policy=replace(POLICY, result_budget=Budget(398)), work=Work(count)
    )
    assert not almost.decisions
    assert not tidy(result("a", "\x1b[32m" + "abc " * 400)).decisions
    small = "\x1b[32mx\x1b[0m" * 20
    assert not tidy(result("a", small[:MIN_CHARS])).decisions
    assert tidy(result("a", small)).decisions


def test_a_decision_says_how_many_were_tidied() -> None:
    """And what it gained."""
    outcome = tidy(user(), result("a", GREEN), result("b", "fine"), result("c", GREEN))
    decision = outcome.decisions[0]
    assert (decision.rule, decision.reason) == ("tidy", "2 tool results tidied")
    assert (decision.messages, decision.first_changed) == (2, 1)
    assert [message.text for message in outcome.conversation.messages[1:]] == [PLAIN_GREEN, "fine", PLAIN_GREEN]


def test_limits_that_differ_are_not_named() -> None:
    """Where results of several tools were truncated."""
    rules = (ToolRule("small", replace(PLAIN, budget=Budget(100))),)
    calls = (call("a", "small"), call("b", "large"))
    messages = (assistant(None, *calls), result("a", fill("a", 999)), result("b", fill("b", 999)))
    outcome = truncate_tool_results(conversation(*messages), policy=replace(POLICY, tools=rules), work=Work(count))
    assert outcome.decisions[0].reason == "2 tool results over their limits"
    assert [
        count(message.text) <= limit
        for message, limit in zip(outcome.conversation.messages[1:], (100, 300), strict=True)
    ] == [
        True,
        True,
    ]


def test_json_is_written_anew_where_it_then_fits_the_results_own_budget() -> None:
    """Of several texts each has its share; an error has twice as much."""
    spaced = "[" + ",\n      ".join(f'{{"name": "n{number}", "x{number}": [ 1, 2 ]}}' for number in range(40)) + "]"
    tight = count(spaced) * 3 // 4
    for texts, is_error, expected in (
        ((spaced,), False, True),
        ((spaced,) * 2, False, False),
        ((spaced,) * 2, True, True),
    ):
        policy = replace(POLICY, result_budget=Budget(tight))
        message = replace(result("a", *texts), is_error=is_error)
        assert bool(tidy(message, policy=policy).decisions) is expected


def test_a_file_that_is_read_is_not_written_anew() -> None:
    """What the same call prints otherwise is."""
    spaced = "{\n" + ",\n".join(f'    "name{number}":    [ {number} ]' for number in range(60)) + "\n}"
    for command, expected in (("cat a.json", False), ("make a", True)):
        read = call("a", "bash", f'{{"command":"{command}"}}')
        policy = replace(POLICY, result_budget=Budget(4000))
        assert bool(tidy(assistant(None, read), result("a", spaced), policy=policy).decisions) is expected


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
    """Whatever else is the same: another policy, call or text is looked at anew, and the same one is not."""
    looked: list[Message] = []

    def edit(one: Result, _: CountTokens) -> tuple[str, ...]:
        looked.append(one.message)
        return one.message.texts

    def wants(_: Sequence[Message], places: Sequence[Place]) -> list[Place]:
        return list(places)

    editor = Editor("rule", wants, edit, lambda _: "")
    memo = {}
    situation: dict[str, object] = {"policy": POLICY, "call": call("a"), "message": result("a", GREEN)}
    for given in (situation, situation, situation | change, situation | change):
        messages = (assistant(None, given["call"]), given["message"])  # type: ignore[arg-type]
        edit_results(conversation(*messages), given["policy"], (editor,), Work(count, memo))  # type: ignore[arg-type]
    assert len(looked) == 2


def test_more_work_than_is_allowed_is_not_begun() -> None:
    """What was done until then is remembered, so that it is not done again; what is remembered costs nothing."""
    memo = {}
    messages = (result("a", GREEN), result("b", GREEN + "more\n"))
    with pytest.raises(LargeWorkError):
        tidy(*messages, work=Work(count, memo, Allowance(len(GREEN) + 1)))
    assert len(memo) == 1
    done = tidy(*messages, work=Work(count, memo, Allowance(len(GREEN) + 5)))
    assert done == tidy(*messages) == tidy(*messages, work=Work(count, memo, Allowance(0)))
