"""Where each message went."""

from dataclasses import replace

from support.builders import assistant, call, conversation, count, fill, result, session, system, user
from support.policies import POLICY

from rules.conversation import Conversation, Message, Origin, Shape
from rules.pipeline.apply import apply
from rules.pipeline.make_plan import plan
from rules.pipeline.story.alignment import Alignment, align, match_origins
from rules.policy import Policy, PreserveSystem


def lay(whole: Conversation, policy: Policy = POLICY) -> Alignment:
    """The transcript beside what is forwarded of it."""
    planned = plan(whole, policy, count=count)
    outcome = apply(planned, policy, count=count)
    return align(planned, outcome.conversation, frozenset(one.rule for one in outcome.decisions))


def test_equal_messages_are_told_apart_by_their_positions() -> None:
    """Their texts do not say which of them is left."""
    before = conversation(user("Go on."), user("Go on."), user("Go on."))
    after = replace(before, messages=before.messages[1:], origins=before.origins[1:])
    assert match_origins(before, after) == {1: 0, 2: 1}


def test_messages_outside_the_list_keep_their_order() -> None:
    """All of them have the same position."""
    outside = (Origin(0, 0), Origin(0, 0), Origin(0, 1))
    before = replace(conversation(system("a"), system("b"), user()), origins=outside)
    assert match_origins(before, before) == {0: 0, 1: 1, 2: 2}


def test_user_messages_that_a_cut_keeps_are_joined_to_the_summary() -> None:
    """They are told apart from those that are gone, and from trimtab's own words."""
    said = user("Never touch the schema.")
    whole = conversation(*session(20), said, *session(25)[2:])
    laid = lay(whole)
    at = whole.messages.index(said)
    place = laid.joined[at]
    assert laid.find_final(at) == said
    assert laid.find_final(2) is None
    added = laid.find_added(place)
    assert said.text in laid.conversation.messages[place].texts
    assert said.text not in added
    assert whole.messages[1].text not in added
    assert laid.count_added(place) + laid.count_joined(at) + whole.messages[1].tokens == (
        laid.conversation.messages[place].tokens
    )


def test_system_messages_that_are_joined_are_found() -> None:
    """In some dialects one system message must not follow another."""
    reminders = system(fill("first", 20)), system(fill("second", 20))
    parts: list[Message] = [*session(15), reminders[0], *session(2)[2:], reminders[1], *session(25)[2:]]
    shape = Shape(alternates=False, joins_systems=True)
    laid = lay(replace(conversation(*parts), shape=shape), replace(POLICY, preserve_system=PreserveSystem.ALL))
    first, second = parts.index(reminders[0]), parts.index(reminders[1])
    assert laid.joined == {second: laid.forwarded[first]}
    assert (laid.find_final(first), laid.find_final(second)) == reminders


def test_of_equal_system_messages_the_one_that_is_joined_is_found() -> None:
    """Not the one to which it is joined."""
    one, other = system(fill("one", 20)), system(fill("other", 20))
    parts: list[Message] = [*session(15), one, *session(2)[2:], other, *session(2)[2:], one, *session(25)[2:]]
    shape = Shape(alternates=False, joins_systems=True)
    laid = lay(replace(conversation(*parts), shape=shape), replace(POLICY, preserve_system=PreserveSystem.ALL))
    first, second, third = (at for at, part in enumerate(parts) if part in (one, other))
    assert laid.joined == dict.fromkeys((second, third), laid.forwarded[first])


def test_results_that_came_late_have_moved() -> None:
    """And only they."""
    whole = conversation(user(), assistant(None, call("a"), call("b")), user("Wait."), result("a"), result("b"))
    laid = lay(whole, replace(POLICY, context_window=100_000))
    assert laid.moved == {3, 4}
    assert [laid.forwarded[index] for index in range(5)] == [0, 1, 4, 2, 3]
