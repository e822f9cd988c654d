"""Recall: which messages ask, for which names, and what stands behind them."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs
from support.append_law import check_append_law, run
from support.archives import WordArchive
from support.builders import (
    KeptStates,
    assistant,
    call,
    conversation,
    count,
    fill,
    result,
    session,
    system,
    transcripts,
    user,
)
from support.policies import POLICY, any_policies

from trimtab.rules.conversation import Message, Role
from trimtab.rules.pipeline.appended import (
    MAX_TERMS,
    PASSAGE_CHARS,
    RECALL,
    Recalls,
    list_terms,
    may_ask,
    read_passages,
    split_passages,
)
from trimtab.rules.policy import OverflowStrategy, Policy
from trimtab.rules.results.work import Allowance, LargeWorkError, Work
from trimtab.rules.text.markers import QUOTE_END, mark_recalled
from trimtab.rules.window.state import Cut, CutKind, Window

WORK = Work(count, open_archive=WordArchive)
INJECT = replace(POLICY, recalls=True)
FACT = "The staging database of merlin-api is merlin-db-77fe."


def cut_at(at: int, **more: Any) -> Window:
    kept = {"kept": (), **more}
    return Window(task=1, cuts=(Cut(CutKind.DIGEST, at, reserved_tokens=100, tokens=100, **kept),))


def long_session() -> tuple[Message, ...]:
    messages = list(session(60, result_tokens=160))
    messages[3] = result(messages[3].answers or "", f"{messages[3].text}\n{FACT}")
    return tuple(messages)


def look_up(question: Message, *before: Message, window: Window | None = None, room: int = 20_000) -> str:
    messages = [system(), user("Mend it."), *before, question]
    at = len(messages) - 1
    recalls = Recalls(1, WordArchive())
    recalls.find(at, messages, window or cut_at(at), room, INJECT, WORK)
    return recalls.pins[at].line if recalls.pins else ""


def test_a_question_gets_what_was_cut_quoted_and_with_its_source() -> None:
    line = look_up(user("What was merlin-api's database?"), assistant("ls", call("a")), result("a", FACT))
    assert line == f"{mark_recalled()}\nMessage 4, a tool:\n{FACT}\n{QUOTE_END}"


def test_what_a_failed_tool_names_is_looked_up() -> None:
    earlier = [assistant("The port is in /etc/merlin/port_991.toml now.")]
    failed = "Traceback (most recent call last):\nFileNotFoundError: /etc/merlin/port_991.toml"
    assert "The port is in" in look_up(result("a", failed), *earlier)
    assert not may_ask(result("a", "all tests passed"))
    assert may_ask(result("a", failed))
    assert may_ask(user("And now?"))
    assert not may_ask(replace(result("a", failed), raw=b""))
    assert not may_ask(replace(user("x"), has_fixed_texts=True))
    assert not may_ask(assistant("Error: no"))


def test_nothing_stands_behind_a_message_if_nothing_was_cut_or_nothing_matches() -> None:
    question = user("What was merlin-api's database?")
    assert not look_up(question, assistant(FACT), window=Window(task=1))
    assert not look_up(question, assistant("Nothing of the kind."))
    assert not look_up(user("?"), assistant(FACT))
    assert not look_up(question, assistant(FACT), room=1000)  # the share is too small for a passage
    assert not look_up(question, assistant(FACT), window=cut_at(2))  # it is still forwarded


def test_what_a_cut_keeps_is_not_repeated() -> None:
    kept = user(f"Remember: {FACT}")
    assert look_up(user("merlin-api?"), kept)
    assert not look_up(user("merlin-api?"), kept, window=cut_at(3, kept=(2,)))
    assert not look_up(user("merlin-api?"), kept, window=cut_at(3, kept_steps=((2, 3),)))


def test_pruned_results_and_the_coming_cut_count_as_removed() -> None:
    steps = [assistant(None, call("a")), result("a", FACT)]
    assert look_up(user("merlin-api?"), *steps, window=Window(task=1, prune_stop=4))
    assert not look_up(user("merlin-api?"), assistant(FACT), window=Window(task=1, prune_stop=3))
    assert look_up(user("merlin-api?"), *steps, window=Window(task=1, next_cut=4, is_near=True))
    assert not look_up(user("merlin-api?"), *steps, window=Window(task=1, next_cut=4))


def test_a_passage_stands_once_until_it_is_cut() -> None:
    """A second question about it gets nothing: it is above. Behind the next cut, it is found again."""
    messages = [system(), user("Mend it."), assistant(FACT), user("merlin-api?"), assistant("x"), user("merlin-api?")]
    recalls = Recalls(1, WordArchive())
    for at, window in ((3, cut_at(3)), (5, cut_at(3))):
        recalls.find(at, messages, window, 20_000, INJECT, WORK)
    assert list(recalls.pins) == [3]
    recalls.find(5, messages, cut_at(5), 20_000, INJECT, WORK)
    assert list(recalls.pins) == [3, 5]
    assert recalls.size_bytes > len(FACT)


def test_an_earlier_question_is_no_answer() -> None:
    asked = user("What was merlin-api's database?")
    assert not look_up(asked, user("What was merlin-api's database?"))


def test_names_come_first_and_markers_and_memory_ask_for_nothing() -> None:
    terms = list_terms(user("Look at src/app_main.py [trimtab: reminder of gone_name] please"), INJECT)
    assert terms[0] == "src/app_main.py"
    assert "please" in terms
    assert not any("gone" in term for term in terms)
    assert list_terms(user("<relevant_context>old_name here</relevant_context>"), INJECT) == ()
    assert len(list_terms(user(" ".join(f"name_{number}" for number in range(99))), INJECT)) == MAX_TERMS


@given(st.lists(st.tuples(st.sampled_from("ab \n"), st.integers(1, 3 * PASSAGE_CHARS)), max_size=9))
@example([("a", 2 * PASSAGE_CHARS)])
@example([("a", 2 * PASSAGE_CHARS + 1)])
def test_passages_hold_all_words(runs: list[tuple[str, int]]) -> None:
    """Whole lines as long as they are short; no passage is much longer than the others."""
    text = "".join(char * count for char, count in runs)
    passages = list(split_passages(text))
    assert "".join("".join(passages).split()) == "".join(text.split())
    assert all(0 < len(passage) <= 2 * PASSAGE_CHARS for passage in passages)


def test_calls_are_passages_too() -> None:
    said = list(read_passages(7, assistant("I write it.", call("a", arguments='{"path": "a_b.py"}'))))
    assert [(each.at, each.text) for each in said] == [(7, '{"path": "a_b.py"}'), (7, "I write it.")]


@given(messages=transcripts(16), policy=any_policies())
def test_a_longer_transcript_forwards_the_same_passages(messages: tuple[Message, ...], policy: Policy) -> None:
    check_append_law(messages, replace(policy, recalls=True), work=WORK)


def asked_session() -> tuple[Message, ...]:
    """A session over many cuts, with a question now and then, and the fact near its beginning."""
    messages: list[Message] = []
    for at, message in enumerate(long_session()):
        messages.append(message)
        if at > 20 and at % 10 == 1 and message.role is Role.TOOL:
            messages += [assistant("Done."), user(f"And what was merlin-api's database, number {at}?")]
    return (*messages, assistant("Done."), user("And what was merlin-api's database?"))


def test_a_long_session_forwards_the_same_passages() -> None:
    for strategy in (OverflowStrategy.AUTO_COMPACT, OverflowStrategy.PRUNE):
        policy = replace(INJECT, context_window=6000, overflow_strategy=strategy)
        assert check_append_law(asked_session(), policy, work=WORK, every=5) >= 2
        outcome = run(conversation(*asked_session()), policy, work=WORK)[1]
        assert RECALL in {decision.rule for decision in outcome.decisions}
        assert any("merlin-db-77fe" in text for message in outcome.conversation.messages for text in message.texts)


def test_the_passages_count_for_the_room() -> None:
    """The plan knows the size of what is forwarded, and the decision tells it. Kept states change nothing."""
    policy, states = replace(INJECT, context_window=6000), KeptStates()
    for stop in range(30, len(asked_session()), 15):
        before = conversation(*asked_session()[:stop])
        planned, outcome = run(before, policy, work=WORK)
        assert run(before, policy, work=WORK, states=states) == (planned, outcome)
        assert outcome.conversation.tokens <= planned.reserved_tokens
        saved = sum(decision.saved_tokens for decision in outcome.decisions)
        assert saved == before.tokens - outcome.conversation.tokens


def test_the_passages_fit_their_share_and_large_texts_are_announced() -> None:
    facts = [assistant(f"{FACT} {fill(str(number), 60)} q{number:04}") for number in range(2)]
    messages = [system(), user("Mend it."), *facts, user("q0000 q0001 merlin-api")]
    recalls = Recalls(1, WordArchive())
    recalls.find(4, messages, cut_at(4), 4000, INJECT, WORK)
    assert 0 < recalls.pins[4].tokens == count(f"\n{recalls.pins[4].line}") <= 160
    work = structs.replace(WORK, allowance=Allowance(10))
    with pytest.raises(LargeWorkError):
        Recalls(1, WordArchive()).find(4, messages, cut_at(4), 20_000, INJECT, work)
