"""What a request that cannot fit would cost."""

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import conversation, count, fill, session, system, transcripts, user
from support.policies import POLICY

from proxy.compaction.refusal import RefusedError, describe_excess, refuse, write_cost
from proxy.telemetry.ledger import Entry
from proxy.wire.chat.answer import write_error
from proxy.wire.codec import PROMPT_TOO_LONG, ErrorText
from proxy.wire.overflow.classify import read_overflow
from rules.conversation import Conversation, Decision
from rules.pipeline.apply import apply
from rules.pipeline.exceeded import LimitExceededError, Remainder
from rules.pipeline.make_plan import plan
from rules.policy import MEMORY_TAGS, OnExceeded
from rules.tokens.sections import count_sections, find_marks
from rules.treatment import Budget
from rules.window.cut_candidates import SUMMARY_FRAME_TOKENS

FIND = partial(find_marks, tags=MEMORY_TAGS, count=count)
PRUNED = Decision("prune", "2 tool results before message 8", 2000, 1900, 2, 5)


def refuse_talk(talk: Conversation, limit: int, ratio: float = 1.0) -> RefusedError:
    """The refusal of a transcript of which no rule removes anything, at a limit in our tokens."""
    error = LimitExceededError(
        talk.tokens,
        talk.tokens,
        limit,
        window=2 * limit,
        decisions=(PRUNED,),
        conversation=talk,
    )
    error.remainder = Remainder(talk, 0, max(talk.tokens - limit, 1), hard_limit=limit)
    return refuse(error, count_sections(talk, FIND), FIND, limit_tokens=int(ratio * limit), ratio=ratio)


@given(transcripts(), st.integers(1, 500), st.floats(0.5, 3))
def test_all_figures_of_a_refusal_agree(messages, fixed, ratio) -> None:
    """Sections add up to the prompt, and the reductions to the excess, at any ratio."""
    talk = conversation(*messages, fixed_tokens=fixed)
    error = refuse_talk(talk, talk.tokens // 2, ratio)
    cost = write_cost(error, [])

    assert cost["original_tokens"] == cost["tokens"] == round(ratio * talk.tokens)
    assert sum(one["compacted"] for one in cost["sections"].values()) == cost["tokens"]
    assert sum(part["by_tokens"] for part in cost["shrink"]) == min(cost["excess_tokens"], cost["tokens"])
    assert cost["tokens"] - cost["excess_tokens"] <= cost["refused_above_tokens"] + 1
    assert cost["irreducible_tokens"] + cost["removable_tokens"] == cost["tokens"]


def test_what_a_cut_would_remove_is_not_asked_of_the_client() -> None:
    """The old results are removable. They are named as such, and only the rest has to be shorter."""
    policy = replace(POLICY, context_window=4096, completion_reserve=512, on_exceeded=OnExceeded.ERROR)
    policy = replace(policy, result_budget=Budget(2000))
    old = session(8, result_tokens=1580)[2:]
    talk = conversation(user(fill("Mend it.", 3785)), *old, fixed_tokens=3)
    with pytest.raises(LimitExceededError) as caught:
        apply(plan(talk, policy, count=count), policy, count=count)
    error = refuse(caught.value, count_sections(talk, FIND), FIND, limit_tokens=3584, ratio=1.0)
    cost, said = write_cost(error, []), describe_excess(error)

    assert (cost["limit_tokens"], cost["refused_above_tokens"], cost["tokens"]) == (3584, 4096, talk.tokens)
    assert cost["removable_tokens"] == sum(message.tokens for message in old[:-2]) - SUMMARY_FRAME_TOKENS
    assert cost["excess_tokens"] == cost["irreducible_tokens"] - 4096
    (part,) = cost["shrink"]
    assert (part["what"], part["by_tokens"]) == ("the last user message", cost["excess_tokens"])
    assert "after compaction" not in said
    assert f"trimtab can remove or shorten {cost['removable_tokens']} of these tokens itself" in said


def test_the_message_names_what_would_have_to_shrink() -> None:
    talk = conversation(system(), user(fill("words", 900)))
    error = refuse_talk(talk, 500)
    cost = write_cost(error, [Entry.of(PRUNED, 1, 500)])

    assert cost["decisions"] == [
        {
            "rule": "prune",
            "reason": "2 tool results before message 8",
            "attempt": 1,
            "limit_tokens": 500,
            "before_tokens": 2000,
            "after_tokens": 1900,
            "saved_tokens": 100,
        }
    ]
    said, message = talk.tokens - 500, talk.messages[-1].tokens
    assert describe_excess(error).endswith(f" To fit, shorten the last user message by {said} of {message} tokens.")


def test_another_trimtab_reads_the_window_from_the_message() -> None:
    """The further figures are not taken for the window or for the prompt."""
    talk = conversation(system(), user(fill("words", 900)))
    error = refuse_talk(talk, 500)
    text = ErrorText(describe_excess(error), PROMPT_TOO_LONG, more={"context_cost": write_cost(error, [])})
    overflow = read_overflow(400, write_error(text, as_event=False))

    assert overflow is not None
    assert (overflow.limit, overflow.requested) == (1000, talk.tokens)


def test_a_refusal_without_its_conversation_has_no_parts() -> None:
    talk = conversation(user("Hello."))
    error = LimitExceededError(900, 800, 500, window=1000, decisions=())
    refused = refuse(error, count_sections(talk, FIND), FIND, limit_tokens=500, ratio=1.0)

    assert (refused.parts, write_cost(refused, [])["shrink"]) == ((), [])
    with pytest.raises(LimitExceededError):
        raise refused
