"""apply(): a plan is carried out, or refused."""

from dataclasses import replace

import pytest
from msgspec import structs
from support.builders import assistant, conversation, count, fill, session, system, user
from support.policies import POLICY

from trimtab.rules.conversation import Conversation, Media, Outcome
from trimtab.rules.pipeline.exceeded import LimitExceededError
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.policy import OnExceeded, Policy
from trimtab.rules.summary.request import Summary
from trimtab.rules.text.markers import NAMES_TITLE, QUOTE_END, QUOTE_START
from trimtab.rules.window.room import bound_guesses


def run(before: Conversation, policy: Policy = POLICY) -> Outcome:
    planned = plan(before, policy, count=count)
    asks = planned.request is not None and planned.request.asks_model
    return apply(planned, policy, count=count, summary=Summary("Mended.", by_model=True) if asks else None)


def test_what_exceeds_is_refused() -> None:
    """With `error`, the refusal has the tokens, the limit, and what was tried."""
    before = conversation(user("task"), *session(3, result_tokens=900)[2:], user(fill("huge", 4000)))
    policy = replace(POLICY, on_exceeded=OnExceeded.ERROR)
    with pytest.raises(LimitExceededError, match=r"^\d+ prompt tokens after compaction, limit 3200$") as caught:
        run(before, policy)
    forwarded = run(before)
    assert (caught.value.tokens, caught.value.limit) == (forwarded.conversation.tokens, 3200)
    assert caught.value.decisions == forwarded.decisions
    assert {decision.rule for decision in caught.value.decisions} == {"truncate", "digest"}


def test_what_exceeds_may_be_forwarded() -> None:
    """With `forward`, the best result is sent. If nothing could be done, that is the original."""
    before = conversation(user(fill("huge", 4000)))
    assert run(before) == Outcome(before)
    assert run(conversation(fixed_tokens=9999)) == Outcome(conversation(fixed_tokens=9999))


@pytest.mark.parametrize(
    "before",
    [
        conversation(user("task"), fixed_tokens=4000),
        conversation(user("task"), assistant(fill("huge", 4000))),
        conversation(system(fill("rules", 3150)), user(fill("huge", 4000))),
    ],
)
def test_what_no_truncation_brings_down_is_refused(before: Conversation) -> None:
    """If another message than the last one is too large, `truncate` refuses like `error`."""
    with pytest.raises(LimitExceededError):
        run(before, replace(POLICY, on_exceeded=OnExceeded.TRUNCATE))


@pytest.mark.parametrize("on_exceeded", OnExceeded)
def test_a_guess_about_a_file_refuses_nothing(on_exceeded: OnExceeded) -> None:
    """Only what was counted does. The upstream decides about the rest, and nothing else is cut for it."""
    files = tuple(Media(b"{}", 1500, guessed_tokens=1500) for _ in range(3))
    task = replace(user("task"), media=files, tokens=user("task").tokens + 4500)
    before = conversation(task, *session(2, result_tokens=100)[2:])
    policy = replace(POLICY, on_exceeded=on_exceeded)
    assert run(before, policy) == Outcome(bound_guesses(before, policy.limit_tokens(None)))
    counted = replace(task, media=tuple(structs.replace(part, guessed_tokens=0) for part in files))
    if on_exceeded is OnExceeded.ERROR:
        with pytest.raises(LimitExceededError):
            run(conversation(counted, *session(2, result_tokens=100)[2:]), policy)


def test_a_digest_that_was_written_for_more_room_is_written_anew() -> None:
    """It is never truncated, because its quotation must be closed. A model's summary is truncated."""
    planned = plan(conversation(*session(60, result_tokens=90)), POLICY, count=count)
    own = apply(planned, POLICY, count=count)
    large = f"{QUOTE_START}\n> {fill('long', planned.request.max_tokens)}\n{QUOTE_END}\n"
    assert apply(planned, POLICY, count=count, summary=Summary(large, by_model=False)) == own
    exact = Summary(fill("exact", planned.request.max_tokens), by_model=False)
    assert exact.text in apply(planned, POLICY, count=count, summary=exact).conversation.messages[1].text
    text = apply(planned, POLICY, count=count, summary=Summary(fill("long", 9000), by_model=True))
    assert "[trimtab: omitted " in text.conversation.messages[1].text


def find_index(outcome: Outcome) -> str:
    (text,) = (text for message in outcome.conversation.messages for text in message.texts if NAMES_TITLE in text)
    return text[text.index(NAMES_TITLE) :].partition(QUOTE_END)[0]


def test_nothing_is_carried_over_a_cut_that_leaves_no_room_for_it() -> None:
    before = conversation(*session(40, result_tokens=80))
    policy = replace(POLICY, high_water=0.6, low_water=0.3, anchor_share=0.3)
    assert find_index(run(before, policy))
    without = run(before, replace(policy, anchor_share=0.0)).conversation
    assert not any(NAMES_TITLE in text for message in without.messages for text in message.texts)
    assert any("Mended." in text for message in without.messages for text in message.texts)
