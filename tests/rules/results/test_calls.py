"""Which call each tool result answers, and how it is treated."""

from dataclasses import replace

from hypothesis import given
from support.builders import assistant, call, conversation, count, function_result, result, system, transcripts

from trimtab.rules.conversation import Message, Role
from trimtab.rules.policy import Policy, ToolRule, Treatment
from trimtab.rules.results.calls import OpenCalls, find_results
from trimtab.rules.results.pairing import pair_tool_calls

POLICY = Policy()


def calls_of(*messages: Message) -> list[str | None]:
    """The arguments of each result's call."""
    return [place.call and place.call.arguments for place in find_results(messages, POLICY)]


def test_a_result_has_the_last_call_of_its_id() -> None:
    """Ids are reused. A later call with the same id does not change the call of an earlier result."""
    first, second = call("a", arguments="1"), call("a", arguments="2")
    messages = (assistant(None, first), result("a"), assistant(None, second), result("a"), result("b"))
    assert calls_of(*messages) == ["1", "2", None]
    assert calls_of(*messages[:2]) == ["1"]


def test_of_calls_with_one_id_in_one_message_results_get_the_oldest_first() -> None:
    """Some clients leave all ids empty. Each result has the same call, whatever `start` is."""
    calls = [call("", arguments=number) for number in "123"]
    messages = (assistant(None, *calls), *[result("")] * 3, assistant(None, calls[0]), result(""))
    assert calls_of(*messages) == ["1", "2", "3", "1"]
    places = find_results(messages, POLICY, 2)
    assert [place.call and place.call.arguments for place in places] == ["2", "3", "1"]


def test_a_result_that_names_a_tool_only_has_the_last_call_of_that_tool() -> None:
    """The legacy form, before tools, has no ids."""
    called = assistant(None, call("a", "run", "1"), call("b", "read", "2"), call("c", "run", "3"))
    assert calls_of(called, function_result()) == ["3"]
    assert calls_of(assistant("nothing"), function_result()) == [None]


@given(transcripts())
def test_a_paired_result_has_its_call_wherever_one_begins_to_look(messages: tuple[Message, ...]) -> None:
    """It is the call with its id in the message before its step's results, whatever `start` is."""
    paired = pair_tool_calls(conversation(*messages), count=count).conversation.messages
    places = find_results(paired, POLICY)
    for place in places:
        answered = paired[place.at].answers
        if paired[place.at].wire_role != "function":
            assert place.call is None or place.call.id == answered
    for start in range(len(paired)):
        assert find_results(paired, POLICY, start) == [place for place in places if place.at >= start]


def test_every_call_of_a_message_is_answered_once() -> None:
    """A message that is not a result closes all earlier calls."""
    calls = OpenCalls()
    one, other = call("a", arguments="1"), call("b", arguments="2")
    seen = (assistant(None, one, other), result("b"), result("b"), result("a"), system(), result("a"))
    assert [calls.answer(message) for message in seen] == [None, other, None, one, None, None]
    assert calls.answer(Message(Role.TOOL, answers="a")) is None


def test_a_result_of_the_legacy_kind_has_the_last_call_of_its_name() -> None:
    """Such a result has no call id."""
    messages = (function_result(), assistant(None, call("a", arguments="1")), function_result())
    assert calls_of(*messages) == [None, "1"]


def test_without_a_call_the_results_own_name_tells_its_tool() -> None:
    """Some clients name results. The call's name takes precedence."""
    policy = replace(POLICY, tools=(ToolRule("search", Treatment(POLICY.result_budget, is_exempt=True)),))
    named = (result("a", name="search"), result("a", name="other"))
    assert [place.treatment.is_exempt for place in find_results(named, policy)] == [True, False]
    called = (assistant(None, call("a", "look"), call("b", "search")), result("a", name="search"), result("b"))
    assert [place.treatment.is_exempt for place in find_results(called, policy)] == [False, True]
