"""What a request that cannot fit would cost."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import conversation, count, fill, system, transcripts, user

from proxy.compaction.refusal import RefusedError, describe_excess, refuse, write_cost
from proxy.telemetry.ledger import Entry
from proxy.wire.chat.answer import write_error
from proxy.wire.codec import PROMPT_TOO_LONG, ErrorText
from proxy.wire.overflow.classify import read_overflow
from rules.conversation import Conversation, Decision
from rules.pipeline.exceeded import LimitExceededError
from rules.policy import MEMORY_TAGS
from rules.tokens.sections import count_sections, find_marks

FIND = partial(find_marks, tags=MEMORY_TAGS, count=count)
PRUNED = Decision("prune", "2 tool results before message 8", 2000, 1900, 2, 5)


def refuse_talk(talk: Conversation, limit: int, ratio: float = 1.0) -> RefusedError:
    """The refusal of a transcript that no rule made shorter, at a limit in the model's own tokens."""
    error = LimitExceededError(
        talk.tokens, talk.tokens, limit, window=2 * limit, decisions=(PRUNED,), conversation=talk
    )
    return refuse(error, count_sections(talk, FIND), FIND, limit_tokens=limit, ratio=ratio)


@given(transcripts(), st.integers(1, 500), st.floats(0.5, 3))
def test_all_figures_of_a_refusal_agree(messages, fixed, ratio) -> None:
    """Sections add up to the prompt, and the reductions to the excess, at any ratio."""
    talk = conversation(*messages, fixed_tokens=fixed)
    error = refuse_talk(talk, round(ratio * talk.tokens) // 2, ratio)
    cost = write_cost(error, [])

    assert cost["original_tokens"] == cost["tokens"] == round(ratio * talk.tokens)
    assert sum(one["compacted"] for one in cost["sections"].values()) == cost["tokens"]
    assert sum(part["by_tokens"] for part in cost["shrink"]) == cost["excess_tokens"]
    assert cost["tokens"] - cost["excess_tokens"] <= cost["limit_tokens"] or cost["excess_tokens"] == 1


def test_the_message_names_what_would_have_to_shrink() -> None:
    talk = conversation(system(), user(fill("words", 900)))
    error = refuse_talk(talk, 500)
    cost = write_cost(error, [Entry(1, 500, PRUNED)])

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
    assert describe_excess(error).endswith(
        f" To fit, shorten for example the last user message by {said} of its {message} tokens."
    )


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
