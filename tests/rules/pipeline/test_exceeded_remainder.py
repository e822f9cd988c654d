"""What a refused client is told to shorten is enough."""

from dataclasses import replace
from functools import partial

from hypothesis import assume, event, given
from hypothesis import strategies as st
from support.builders import assistant, call, conversation, count, fill, result, session, system, user
from support.policies import POLICY

from trimtab.rules.conversation import Conversation, Message, Role
from trimtab.rules.pipeline.exceeded import LimitExceededError, Remainder, find_remainder
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.policy import MEMORY_TAGS, OnExceeded, OverflowStrategy, Policy
from trimtab.rules.tokens.sections import (
    ASSISTANT,
    CURRENT,
    LEADING,
    NEWEST,
    RESULTS,
    TASK,
    TOOLS,
    Part,
    find_marks,
    list_parts,
    share_excess,
)

FIND = partial(find_marks, tags=MEMORY_TAGS, count=count)
SIZES = st.one_of(st.integers(10, 200), st.integers(200, 1500), st.integers(1500, 4500))
REFUSING = st.sampled_from([OnExceeded.ERROR, OnExceeded.TRUNCATE])


def find_refusal(talk: Conversation, policy: Policy) -> LimitExceededError | None:
    """The refusal of a request; None if it is accepted."""
    try:
        apply(plan(talk, policy, count=count), policy, count=count)
    except LimitExceededError as error:
        return error
    return None


def share(remainder: Remainder) -> list[Part]:
    return share_excess(list_parts(remainder.conversation, FIND), remainder.excess_tokens, remainder.head_tokens)


Sizes = tuple[int, int, int, int, str, int, int]

SESSIONS = st.tuples(
    SIZES, SIZES, st.integers(0, 6), st.integers(20, 290), st.sampled_from(["call", "words", "none"]), SIZES, SIZES
)
"""Sizes of the system message and the task, number and size of old results, what follows, and its two sizes."""


def write(sizes: Sizes) -> tuple[Message, ...]:
    rules, task, steps, old, ending, said, last = sizes
    messages = [system(fill("rule", rules)), user(fill("task", task)), *session(steps, result_tokens=old)[2:]]
    if ending == "call":
        messages += [assistant(fill("think", said), call("last")), result("last", fill("log", last))]
    elif ending == "words":
        messages += [assistant(fill("said", said)), user(fill("next", last))]
    return tuple(messages)


def shorten(messages: tuple[Message, ...], parts: list[Part], kept: Conversation) -> tuple[Message, ...] | None:
    """What a client sends that shortens each part by what it is told, the newest message first.

    None if a part has too little text for that: then messages would have to be left out.
    """
    left = {part.what: part.by_tokens for part in parts}
    names, told = name_messages(messages), {one.raw: one.tokens for one in kept.messages}
    shorter = list(messages)
    for at in range(len(messages) - 1, -1, -1):
        message, asked = messages[at], left.get(names[at], 0)
        if asked and message.raw in told:
            frame = message.tokens - sum(map(count, message.texts))
            tokens = max(told[message.raw] - asked, frame + 1)
            left[names[at]] -= told[message.raw] - tokens
            shorter[at] = replace(message, texts=(fill("short", tokens - frame),), tokens=tokens)
    return tuple(shorter) if not any(left[what] for what in left if what != TOOLS) else None


def name_messages(messages: tuple[Message, ...]) -> list[str]:
    """The part to which each message belongs."""
    users = [at for at, message in enumerate(messages) if message.role is Role.USER]
    newest = max((at for at, message in enumerate(messages) if message.role is Role.ASSISTANT), default=0)
    names = {Role.SYSTEM: LEADING, Role.USER: TASK, Role.ASSISTANT: ASSISTANT, Role.TOOL: RESULTS}
    return [
        CURRENT if at == users[-1] else NEWEST if message.role is Role.TOOL and at > newest else names[message.role]
        for at, message in enumerate(messages)
    ]


@given(SESSIONS, st.integers(0, 900), st.sampled_from([0, 400]), REFUSING, st.sampled_from(OverflowStrategy))
def test_a_client_that_shortens_what_it_is_told_is_accepted(sizes, fixed, reserve, on_exceeded, strategy) -> None:
    messages = write(sizes)
    policy = replace(POLICY, completion_reserve=reserve, on_exceeded=on_exceeded, overflow_strategy=strategy)
    error = find_refusal(conversation(*messages, fixed_tokens=fixed), policy)
    if error is None:
        return
    parts = share(error.remainder)
    event(f"{on_exceeded} {strategy}: {sorted(part.what for part in parts)}")
    assert sum(part.by_tokens for part in parts) == error.remainder.excess_tokens
    shorter = shorten(messages, parts, error.remainder.conversation)
    assume(shorter is not None)
    fixed -= sum(part.by_tokens for part in parts if part.what == TOOLS)
    assert find_refusal(conversation(*(shorter or ()), fixed_tokens=fixed), policy) is None


def test_of_a_transcript_that_is_not_cut_what_the_rules_have_left_counts() -> None:
    """Not what the client sent: what is shortened already need not be shortened by the client."""
    talk, policy = conversation(user(fill("task", 9000))), replace(POLICY, overflow_strategy=OverflowStrategy.ERROR)
    planned, left = plan(talk, policy, count=count), conversation(user(fill("task", 5000)))
    assert planned.window.cut is None
    found = find_remainder(planned, left, policy)
    assert found.conversation is left
    assert found.excess_tokens == left.tokens - planned.hard_limit > 0
