"""The rules on results for a growing transcript."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from support.builders import conversation, count, rereading, system, transcripts, user
from support.results import edit_results

from trimtab.rules.conversation import Message, Role, ToolCall
from trimtab.rules.policy import Policy
from trimtab.rules.results.edit import Edits, weigh_message
from trimtab.rules.results.excerpt.rule import TRUNCATE
from trimtab.rules.results.tidy import TIDY
from trimtab.rules.results.work import Work
from trimtab.rules.treatment import Budget

POLICY = Policy(result_budget=Budget(60))
EDITORS = (TIDY, TRUNCATE)


@given(messages=transcripts(), stops=st.lists(st.integers(0, 40), max_size=4))
def test_edits_step_by_step_are_those_of_all_at_once(messages: tuple[Message, ...], stops: list[int]) -> None:
    """Whatever the steps are. If leading messages change in between, the last ones count."""
    messages = (system(), user("Mend the build."), *messages)
    edits = Edits(1, EDITORS)
    for number, stop in enumerate(sorted(stops)):
        edits.extend((system(f"It is {number}:00."), *messages[1 : stop + 1]), POLICY, Work(count))
    edits.extend(messages, POLICY, Work(count))
    whole = conversation(*messages)
    assert edits.apply(whole) == edit_results(whole, POLICY, EDITORS, Work(count))


def test_a_transcript_begins_with_equal_messages() -> None:
    """Any difference in a message counts. Leading messages may differ."""
    messages = rereading(4)
    edits = Edits(1, EDITORS)
    edits.extend(messages[:6], POLICY, Work(count))
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
