"""The newest messages are shortened to their caps."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import IMAGE, assistant, call, conversation, count, fill, read, result, system, user
from support.results import truncate_tool_results

from trimtab.rules.conversation import Conversation, Message, Outcome
from trimtab.rules.pipeline.exceeded import shorten_newest
from trimtab.rules.policy import Budget, Policy, Tidying, ToolRule, Treatment, Truncation
from trimtab.rules.results.work import Allowance, LargeWorkError, Work
from trimtab.rules.window.room import Cap, bare_tokens, least_tokens

POLICY = Policy(tidying=None)


def shorten(before: Conversation, *caps: Cap, policy: Policy = POLICY, work: Work | None = None) -> Outcome:
    """The conversation within these caps, if no other rule has acted."""
    return shorten_newest(before, before, caps, policy=policy, work=work or Work(count))


def step(text: str, name: str = "run") -> tuple[Message, ...]:
    return (user("go"), assistant("look", call("1", name)), result("1", text))


@given(tokens=st.integers(60, 3000), share=st.floats(0.02, 0.9), parts=st.integers(1, 4), is_user=st.booleans())
def test_each_message_is_within_its_cap(tokens: int, share: float, parts: int, is_user: bool) -> None:  # noqa: FBT001
    """With one part or several, it is never over its cap and never empty, and it says what is missing."""
    texts = [fill(f"part {number}", tokens // parts) for number in range(parts)]
    content = [{"type": "text", "text": text} for text in texts]
    last = read({"role": "user", "content": content}) if is_user else result("1", *texts)
    before = conversation(user("go"), assistant("look", call("1")), last)
    cap = Cap(2, max(int(last.tokens * share), least_tokens(last)))
    if cap.tokens >= last.tokens:
        return
    outcome = shorten(before, cap)
    short = outcome.conversation.messages[2]
    assert short.tokens <= cap.tokens
    assert short.tokens - sum(map(count, short.texts)) == last.tokens - sum(map(count, last.texts))
    assert all(short.texts)
    assert outcome.conversation.messages[:2] == before.messages[:2]
    (decision,) = outcome.decisions
    assert (decision.rule, decision.messages, decision.first_changed) == ("exceeded", 1, 2)
    assert decision.saved_tokens == before.tokens - outcome.conversation.tokens


def test_a_result_that_was_truncated_before_is_cut_from_what_the_tool_said() -> None:
    text = "".join(f"line {number} of it\n" for number in range(3000))
    before = conversation(*step(text))
    policy = replace(POLICY, result_budget=Budget(2000), truncation=Truncation.HEAD_TAIL)
    truncated = truncate_tool_results(before, policy=policy, work=Work(count)).conversation
    outcome = shorten_newest(truncated, before, [Cap(2, 300)], policy=policy, work=Work(count))
    (said,) = outcome.conversation.messages[2].texts
    assert said.count("[trimtab: ") == 1
    shown = sum(line in text.splitlines() for line in said.splitlines())
    assert f"[trimtab: omitted {3000 - shown} lines" in said


def test_each_result_is_shortened_as_its_tool_is_treated() -> None:
    """It keeps head and tail, or the lines that matter. If its tool's results are tidied, so is it, even if exempt."""
    noise = "".join(f"\x1b[32mstep {number * 7919 % 1000} is done and well\x1b[0m\n" for number in range(400))
    text = noise + "ERROR: the harbour is closed\n" + noise
    policy = replace(
        POLICY,
        tools=(
            ToolRule("plain", Treatment(Budget(4000), Truncation.HEAD_TAIL)),
            ToolRule("tidy", Treatment(Budget(4000), Truncation.SALIENT, Tidying())),
            ToolRule("kept", Treatment(Budget(4000), Truncation.HEAD_TAIL, Tidying(), is_exempt=True)),
        ),
    )
    found = {}
    for name in ("plain", "tidy", "kept"):
        outcome = shorten(conversation(*step(text, name)), Cap(2, 400), policy=policy)
        found[name] = outcome.conversation.messages[2].text
    assert ["harbour" in found[name] for name in ("plain", "tidy", "kept")] == [False, True, False]
    assert ["\x1b[32m" in found[name] for name in ("plain", "tidy", "kept")] == [True, False, True]


@pytest.mark.parametrize(
    ("is_exempt", "is_error", "most"), [(True, False, 99_999), (False, True, 1200), (False, False, 600)]
)
def test_a_limit_in_bytes_is_that_of_the_result(is_exempt: bool, is_error: bool, most: int) -> None:  # noqa: FBT001
    """An exempt result has no such limit, and an error has twice as much, here as everywhere."""
    treatment = Treatment(Budget(4000, 600), Truncation.HEAD_TAIL, is_exempt=is_exempt)
    messages = step("".join(f"line {number} of it\n" for number in range(3000)))
    last = replace(messages[-1], is_error=is_error)
    before = conversation(*messages[:-1], last)
    outcome = shorten(before, Cap(2, 900), policy=replace(POLICY, tools=(ToolRule("run", treatment),)))
    size = len(outcome.conversation.messages[2].text)
    assert size <= most
    assert size > min(most, 2000) * 0.8


@pytest.mark.parametrize(("tokens", "images"), [(20, 3), (900, 1)])
def test_images_for_which_a_cap_leaves_no_room_go_the_oldest_first(tokens: int, images: int) -> None:
    """Else they stay. What they leave counts, so the message is within its cap."""
    last = user(fill("words", tokens), *[IMAGE] * images)
    before = conversation(system(), user("go"), assistant("yes"), last)
    bare, least = bare_tokens(last), least_tokens(last)
    for cap in {*range(bare, last.tokens, 97), least - 1, least, last.tokens - 1}:
        short = shorten(before, Cap(3, cap)).conversation.messages[3]
        assert short.tokens <= cap
        left = [media.saving_tokens > 0 for media in short.media]
        assert left == sorted(left)
        assert all(left) is (cap >= least)


def test_nothing_to_do_is_the_same_object() -> None:
    before = conversation(*step("short"))
    assert shorten(before).conversation is before
    assert shorten(before, Cap(2, 900)).conversation is before


def test_what_was_worked_out_once_is_remembered() -> None:
    """A cache only saves work. Work beyond the allowance is not begun."""
    before = conversation(*step(fill("x", 3000)))
    memo = {}
    plain = shorten(before, Cap(2, 300))
    assert shorten(before, Cap(2, 300), work=Work(count, memo)) == plain
    assert shorten(before, Cap(2, 300), work=Work(count, memo, Allowance(0))) == plain
    with pytest.raises(LargeWorkError):
        shorten(before, Cap(2, 200), work=Work(count, memo, Allowance(0)))
