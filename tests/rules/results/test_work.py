"""The caches of the rules, and how much they may process."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from support.builders import assistant, call, conversation, count, fill, rereading, result, system, transcripts, user
from support.results import edit_results, tidy_tool_results, truncate_tool_results

from trimtab.rules.conversation import CountTokens, Media, Message, Outcome, Role, Telling, ToolCall
from trimtab.rules.policy import Budget, Policy, Tidying, ToolRule, Treatment, Truncation
from trimtab.rules.results.excerpt import TRUNCATE
from trimtab.rules.results.tidy import TIDY
from trimtab.rules.results.work import (
    MESSAGE_CHARS,
    Allowance,
    Editor,
    Edits,
    LargeWorkError,
    Result,
    Work,
    weigh_message,
)


def test_more_work_than_is_allowed_is_not_begun() -> None:
    """Not one character more. What was done until then is cached and takes nothing from the allowance."""
    allowance = Allowance(10)
    allowance.spend(4)
    allowance.spend(6)
    with pytest.raises(LargeWorkError):
        allowance.spend(1)
    memo = {}
    messages = (result("a", GREEN), result("b", GREEN + "more\n"))
    with pytest.raises(LargeWorkError):
        tidy(*messages, work=Work(count, memo, Allowance(3 * MESSAGE_CHARS + len(GREEN) + 1)))
    assert len(memo) == 1
    done = tidy(*messages, work=Work(count, memo, Allowance(3 * MESSAGE_CHARS + len(GREEN) + 5)))
    assert done == tidy(*messages) == tidy(*messages, work=Work(count, memo, Allowance(3 * MESSAGE_CHARS)))


POLICY = Policy(result_budget=Budget(300), truncation=Truncation.HEAD_TAIL)
PLAIN = Treatment(Budget(300), Truncation.HEAD_TAIL)
GREEN = "".join(f"\x1b[32mthis is line {number} of what came out\x1b[0m\n" for number in "abcdefgh")
PLAIN_GREEN = GREEN.replace("\x1b[32m", "").replace("\x1b[0m", "")


def tidy(*messages: Message, policy: Policy = POLICY, work: Work | None = None) -> Outcome:
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
        ToolRule("read", structs.replace(PLAIN, tidying=Tidying(), exempt_arguments=("*.md",))),
        ToolRule("look", structs.replace(PLAIN, tidying=Tidying(), is_exempt=True)),
    )
    policy = replace(POLICY, tools=rules)
    messages = (assistant(None, *read), *(result(one.id, GREEN) for one in read))
    texts = [message.text for message in tidy(*messages, policy=policy).conversation.messages[1:]]
    assert texts == [GREEN, PLAIN_GREEN, GREEN]

    long = (assistant(None, *read), *(result(one.id, fill("long", 400)) for one in read))
    short = truncate_tool_results(conversation(*long), policy=policy, work=Work(count)).conversation.messages[1:]
    assert [message.edited for message in short] == [False, True, False]


def test_an_error_has_twice_the_budget() -> None:
    """In tokens and in bytes. Little is not worth a change: less than 5 % of the tokens."""
    for message, factor in [
        (result("a", fill("log", 1000)), 1),
        (replace(result("a", fill("log", 1000)), is_error=True), 2),
        (result("a", fill("log", 1000) + "\n[exit code: 2]"), 2),
        (result("a", fill("log", 1000) + "\n[exit code: 0]"), 1),
    ]:
        for budget, measure in ((Budget(100), count), (Budget(1000, 400), len)):
            policy = replace(POLICY, result_budget=budget)
            outcome = truncate_tool_results(conversation(message), policy=policy, work=Work(count))
            size = measure(outcome.conversation.messages[0].text)
            limit = budget.max_bytes or budget.max_tokens
            assert 0.8 * factor * limit < size <= factor * limit
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

    def wants(_: Message, __: Treatment) -> bool:
        return True

    editor = Editor("rule", wants, edit, "", Telling("result", ""))
    memo = {}
    situation: dict[str, object] = {"policy": POLICY, "call": call("a"), "message": result("a", GREEN)}
    for one in (situation, situation, situation | change, situation | change):
        messages = (assistant(None, one["call"]), one["message"])  # type: ignore[arg-type]
        edit_results(conversation(*messages), one["policy"], (editor,), Work(count, memo))  # type: ignore[arg-type]
    assert len(looked) == 2


SMALL = Policy(result_budget=Budget(60))
EDITORS = (TIDY, TRUNCATE)


@given(messages=transcripts(), stops=st.lists(st.integers(0, 40), max_size=4))
def test_edits_step_by_step_are_those_of_all_at_once(messages: tuple[Message, ...], stops: list[int]) -> None:
    """Whatever the steps are. If leading messages change in between, the last ones count."""
    messages = (system(), user("Mend the build."), *messages)
    edits = Edits(1, EDITORS)
    for number, stop in enumerate(sorted(stops)):
        edits.extend((system(f"It is {number}:00."), *messages[1 : stop + 1]), SMALL, Work(count))
    edits.extend(messages, SMALL, Work(count))
    whole = conversation(*messages)
    assert edits.apply(whole) == edit_results(whole, SMALL, EDITORS, Work(count))


def test_a_transcript_begins_with_equal_messages() -> None:
    """Any difference in a message counts. Leading messages may differ."""
    messages = rereading(4)
    edits = Edits(1, EDITORS)
    edits.extend(messages[:6], SMALL, Work(count))
    assert edits.is_beginning_of(messages)
    assert edits.is_beginning_of((system("Others."), *messages[1:6]))
    assert edits.is_beginning_of((*messages[:3], replace(messages[3]), *messages[4:]))
    assert not edits.is_beginning_of((*messages[:3], replace(messages[3], is_error=True), *messages[4:]))
    assert not edits.is_beginning_of(messages[:5])


def test_a_message_weighs_what_it_holds() -> None:
    """Bytes, texts and arguments. One character beyond the first plane makes each character take four bytes."""
    assert weigh_message(Message(Role.USER, ("made here",))) > len("made here")
    text = "a" * 10_000 + "\U0001f600"
    assert weigh_message(Message(Role.USER, (text,))) > 40_000
    assert weigh_message(Message(Role.ASSISTANT, tool_calls=(ToolCall("", "", text),))) > 40_000
    assert weigh_message(Message(Role.USER, raw=bytes(10_000))) > 10_000
    assert weigh_message(Message(Role.USER, media=(Media(bytes(10_000), 5),))) > 10_000
