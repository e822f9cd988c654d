"""Tidying of tool results: which results are tidied, and their budgets."""

from dataclasses import replace

import pytest
from hypothesis import given
from support.builders import assistant, call, conversation, count, result, transcripts, user
from support.results import tidy_tool_results

from trimtab.rules.conversation import Message, Outcome, Role
from trimtab.rules.policy import Budget, Policy, Tidying, ToolRule, Treatment
from trimtab.rules.results.tidy import MIN_CHARS
from trimtab.rules.results.work import Work
from trimtab.rules.text.head_tail import measure_bytes

POLICY = Policy(result_budget=Budget(300))
GREEN = "".join(f"\x1b[32mthis is line {number} of what came out\x1b[0m\n" for number in "abcdefgh")
PLAIN = GREEN.replace("\x1b[32m", "").replace("\x1b[0m", "")


def tidy(*messages: Message, policy: Policy = POLICY) -> Outcome:
    """The transcript, tidied."""
    return tidy_tool_results(conversation(*messages), policy=policy, work=Work(count))


@given(transcripts())
def test_only_results_are_tidied_and_by_themselves(messages: tuple[Message, ...]) -> None:
    """Other messages stay the same object. Later messages do not change the outcome for a result."""
    green = tuple(
        replace(message, texts=tuple(f"\x1b[32m{text}\x1b[0m" for text in message.texts), digest=b"")
        for message in messages
    )
    after = tidy(*green).conversation.messages
    for before, tidied in zip(green, after, strict=True):
        assert tidied is before or before.role is Role.TOOL
    for stop in range(len(green)):
        assert tidy(*green[:stop]).conversation.messages == after[:stop]


def test_a_decision_says_how_many_were_tidied() -> None:
    """It also says how many tokens that saved."""
    outcome = tidy(user(), result("a", GREEN), result("b", "fine"), result("c", GREEN))
    decision = outcome.decisions[0]
    assert (decision.rule, decision.reason) == ("tidy", "2 tool results tidied")
    assert (decision.messages, decision.first_changed) == (2, 1)
    assert decision.saved_tokens == 2 * (count(GREEN) - count(PLAIN))
    assert [message.text for message in outcome.conversation.messages[1:]] == [PLAIN, "fine", PLAIN]


def test_a_short_result_has_nothing_to_lose() -> None:
    """The length of all its texts together counts."""
    small = "\x1b[32mx\x1b[0m" * 20
    assert not tidy(result("a", small[:MIN_CHARS])).decisions
    assert tidy(result("a", small[: MIN_CHARS + 1])).decisions
    assert tidy(result("a", small[: MIN_CHARS - 60], small[:70])).decisions


def test_a_tool_without_tidying_is_left_alone() -> None:
    """Its own rule switches tidying off. Results of other tools are tidied."""
    policy = replace(POLICY, tools=(ToolRule("raw", Treatment(POLICY.result_budget, tidying=None)),))
    called = assistant(None, call("a", "raw"), call("b", "run"))
    outcome = tidy(called, result("a", GREEN), result("b", GREEN), policy=policy)
    assert [message.text for message in outcome.conversation.messages[1:]] == [GREEN, PLAIN]


def test_what_a_tools_rule_switches_off_stays() -> None:
    """If the rule of the result's own tool switches it off."""
    policy = replace(POLICY, tools=(ToolRule("run", Treatment(POLICY.result_budget, tidying=Tidying(ansi=False))),))
    assert not tidy(assistant(None, call("a", "run")), result("a", GREEN), policy=policy).decisions
    assert tidy(assistant(None, call("a", "look")), result("a", GREEN), policy=policy).decisions


SPACED = "[" + ",\n      ".join(f'{{"name": "n{number}", "x{number}": [ 1, 2 ]}}' for number in range(40)) + "]"


def test_json_is_written_anew_if_it_then_fits_the_results_own_budget() -> None:
    """Each of several texts has an equal share; an error has twice as much. In tokens and in bytes."""
    tokens, size = count(SPACED) * 3 // 4, measure_bytes(SPACED) * 3 // 4
    for budget in (Budget(tokens), Budget(10 * tokens, size)):
        policy = replace(POLICY, result_budget=budget)
        for texts, is_error, expected in (
            ((SPACED,), False, True),
            ((SPACED,) * 2, False, False),
            ((SPACED,) * 2, True, True),
        ):
            message = replace(result("a", *texts), is_error=is_error)
            assert bool(tidy(message, policy=policy).decisions) is expected


def test_nobody_asks_whether_a_result_failed_if_its_budget_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is slow, so it is asked only about JSON that fits the budget of an error and not the usual one."""
    asked: list[str] = []
    monkeypatch.setattr("trimtab.rules.results.work.says_failure", lambda text: asked.append(text) or True)
    tokens = count(SPACED) * 3 // 4
    for max_tokens, expected in ((tokens, 0), (tokens * 2 // 3, 1), (tokens // 8, 0)):
        asked.clear()
        policy = replace(POLICY, result_budget=Budget(max_tokens))
        messages = (result("a", SPACED), result("b", GREEN), result("c", "plain text " * 40))
        tidy(*messages, policy=policy)
        assert asked == [SPACED] * expected


def test_a_file_that_is_read_is_not_written_anew() -> None:
    """Other output of the same call is shortened."""
    spaced = "{\n" + ",\n".join(f'    "name{number}":    [ {number} ]' for number in range(60)) + "\n}"
    for command, expected in (("cat a.json", False), ("make a", True)):
        read = call("a", "bash", f'{{"command":"{command}"}}')
        policy = replace(POLICY, result_budget=Budget(4000))
        assert bool(tidy(assistant(None, read), result("a", spaced), policy=policy).decisions) is expected
