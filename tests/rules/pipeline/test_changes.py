"""What became of each message."""

from dataclasses import replace

from support.builders import (
    IMAGE,
    IMAGE_LINE,
    assistant,
    call,
    conversation,
    count,
    fill,
    result,
    session,
    system,
    user,
)
from support.policies import POLICY

from trimtab.rules.conversation import Conversation, Message, Origin, Role, Shape
from trimtab.rules.pipeline.changes import (
    OUTSIDE,
    Change,
    Fate,
    is_same,
    list_elements,
    match_origins,
    read_message,
    trace_changes,
)
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.policy import Budget, OnExceeded, Policy, PreserveSystem, SectionShares, SummaryRole, Tidying
from trimtab.rules.text.markers import ACKNOWLEDGEMENT, INTRODUCTION, KEPT_TITLE, RESULT_HEADER
from trimtab.rules.window.prune import drop_images

WIDE = replace(POLICY, context_window=100_000)
BLANK_JSON = (
    "[" + ",".join(f'{{"row":        {number}, "text":          "row {number}"}}' for number in range(20)) + "]"
)


def trace_whole(whole: Conversation, policy: Policy = POLICY) -> tuple[Change, ...]:
    """The changes of a transcript."""
    planned = plan(whole, policy, count=count)
    return trace_changes(planned, apply(planned, policy, count=count), 1.0)


def trace(messages: tuple[Message, ...], policy: Policy = POLICY) -> tuple[Change, ...]:
    """The changes of messages of which each is an element of the request."""
    return trace_whole(conversation(*messages), policy)


def test_each_kind_of_repair_is_told() -> None:
    """A result that is missing, one that nobody asked for, and one that came late."""
    messages = (
        user(),
        assistant(None, call("a", "bash"), call("b", "read")),
        user("Wait."),
        result("a", "late"),
        assistant("Done."),
        user("And?"),
        result("x", "Who asked?"),
    )
    moved, added, dropped = sorted(trace(messages, WIDE), key=lambda change: change.fate is Fate.REMOVED)[::1]
    kinds = {change.fate: change for change in (moved, added, dropped)}
    assert kinds.keys() == {Fate.MOVED, Fate.ADDED, Fate.REMOVED}
    assert (kinds[Fate.MOVED].at, kinds[Fate.MOVED].tool, kinds[Fate.MOVED].after) == (3, "bash", "late")
    assert (kinds[Fate.ADDED].at, kinds[Fate.ADDED].tool, kinds[Fate.ADDED].after) == (2, "read", "aborted")
    assert (kinds[Fate.REMOVED].at, kinds[Fate.REMOVED].before) == (6, "Who asked?")
    assert {change.rules for change in kinds.values()} == {("pairing",)}


def test_results_that_became_a_message_of_the_user_are_shown_in_the_place_of_the_first() -> None:
    """What shortens that message is told there; the line of the assistant behind it is added by the same repair."""
    messages = (result("x", "Who asked?"), result("y", fill("y", 900)), user("And?"))
    first, second, line = trace_whole(conversation(*messages), WIDE)
    assert (first.at, first.fate, first.before) == (0, Fate.SHORTENED, "Who asked?")
    assert first.after.startswith(f"{RESULT_HEADER}Who asked?\n")
    assert (second.at, second.fate, second.after) == (1, Fate.REMOVED, "")
    assert (line.at, line.fate, line.after) == (2, Fate.ADDED, ACKNOWLEDGEMENT)
    assert [one.rules for one in (first, second, line)] == [("pairing", "truncate"), ("pairing",), ("pairing",)]


def test_places_are_those_of_the_request() -> None:
    """Several results may share an element, and a system message may stand outside the list."""
    messages = (
        *session(0),
        assistant(None, call("a"), call("b")),
        result("a", fill("a", 900)),
        result("b", fill("b", 900)),
    )
    origins = (Origin(0, 0), Origin(0, 1), Origin(1, 2), Origin(2, 3, 0), Origin(2, 3, 1))
    changes = trace_whole(replace(conversation(*messages), origins=origins), WIDE)
    assert [(change.at, change.fate) for change in changes] == [(2, Fate.SHORTENED)] * 2
    assert [change.before[:2] for change in changes] == ["a ", "b "]
    assert OUTSIDE < 0


def test_a_cut_removes_adds_and_moves() -> None:
    """The task statement is unchanged although the summary stands in its message."""
    said = user("Never touch the schema.")
    messages = (*session(20), said, *session(25)[2:])
    for role in SummaryRole:
        changes = trace(messages, replace(POLICY, summary_role=role))
        by_fate = {fate: [change for change in changes if change.fate is fate] for fate in Fate}
        at = messages.index(said)
        assert [(one.at, one.after) for one in by_fate[Fate.MOVED]] == [(at, said.text)], role
        removed = [one.at for one in by_fate[Fate.REMOVED]]
        assert removed == [index for index in range(2, removed[-1] + 1) if index != at]
        assert {one.at for one in by_fate[Fate.ADDED]} == {removed[-1] + 1}
        words = "\n".join(one.after for one in by_fate[Fate.ADDED])
        assert said.text not in words
        assert KEPT_TITLE in words
        summary = max(by_fate[Fate.ADDED], key=lambda change: change.tokens_after)
        assert abs(summary.tokens_after - count(summary.after)) < 40


def test_many_short_messages_that_stay_cost_the_summary_nothing() -> None:
    """Each loses its frame when it is joined, and is no part of the summary. No part ever counts less than nothing."""
    short = [message for number in range(60) for message in (user(f"Say {number // 2}."), assistant(fill("so", 60)))]
    changes = trace((user("Chat."), *short, user("And now?")))
    moved = [change.after for change in changes if change.fate is Fate.MOVED]
    assert len(moved) > len({*moved}) + 15 > 30
    added = [change.after for change in changes if change.fate is Fate.ADDED]
    assert sum(text in after for after in added for text in moved) <= 1, "only of a pair that the cut divides"
    assert all(change.tokens_after >= 0 for change in changes)


def test_equal_messages_are_told_apart_by_their_positions() -> None:
    """Their texts do not say which of them is left."""
    before = conversation(user("Go on."), user("Go on."), user("Go on."))
    assert match_origins(before.origins, before.origins[1:]) == {1: 0, 2: 1}


def test_messages_outside_the_list_keep_their_order() -> None:
    """All of them have the same position."""
    outside = (Origin(0, 0), Origin(0, 0), Origin(0, 1))
    assert match_origins(outside, outside) == {0: 0, 1: 1, 2: 2}


def test_system_messages_that_are_joined_have_moved() -> None:
    """In some dialects one system message must not follow another. Of equal ones, only the later is joined."""
    one, other = system(fill("one", 20)), system(fill("other", 20))
    shape = Shape(alternates=False, joins_systems=True)
    for reminders in ([one, other], [one, other, one]):
        parts = [*session(15)]
        for reminder in reminders:
            parts += [reminder, *session(2)[2:]]
        parts += session(23)[2:]
        whole = replace(conversation(*parts), shape=shape)
        changes = trace_whole(whole, replace(POLICY, preserve_system=PreserveSystem.ALL))
        places = [at for at, part in enumerate(parts) if part in reminders]
        told = {change.at: change for change in changes if change.at in places and change.fate is not Fate.ADDED}
        assert [(at, told[at].fate) for at in sorted(told)] == [(at, Fate.MOVED) for at in places[1:]]
        assert [told[at].after for at in places[1:]] == [one.text for one in reminders[1:]]


def test_results_that_came_late_have_moved() -> None:
    """And only they."""
    whole = conversation(user(), assistant(None, call("a"), call("b")), user("Wait."), result("a"), result("b"))
    assert [(change.at, change.fate) for change in trace_whole(whole, WIDE)] == [(3, Fate.MOVED), (4, Fate.MOVED)]


def test_a_message_may_stand_in_several_elements_or_in_none() -> None:
    """In Responses a message has several; a system message outside the list has none."""
    assert list_elements(Origin(3, 6)) == (3, 4, 5)
    assert list_elements(Origin(3, 4, 2)) == (3,)
    assert list_elements(Origin(0, 0)) == (OUTSIDE,)
    assert list_elements(None) == ()


def test_only_what_trimtab_wrote_is_its_summary() -> None:
    """A client may quote the introduction."""
    quoted = Change(4, "user", "", Fate.SHORTENED, ("digest",), 3, 10, "", INTRODUCTION)
    assert not quoted.is_summary
    assert replace(quoted, fate=Fate.ADDED).is_summary
    assert not replace(quoted, fate=Fate.ADDED, after="aborted").is_summary


def blame(messages: tuple[Message, ...], policy: Policy) -> dict[int, tuple[str, ...]]:
    """The rules that changed each message of the client that was changed."""
    return {change.at: change.rules for change in trace(messages, policy) if change.fate is not Fate.ADDED}


def _read(*texts: str) -> tuple[Message, ...]:
    steps = [(assistant(None, call(f"r{number}")), result(f"r{number}", text)) for number, text in enumerate(texts)]
    return (user("Read."), *(message for step in steps for message in step), user("And now?"))


def test_tidying_and_truncation_are_told_apart() -> None:
    """A result may be tidied, truncated, or both."""
    rows = "".join(f"\x1b[31mrow {number} is red\x1b[0m\n" for number in range(400))
    plain = "".join(f"row {number} is plain\n" for number in range(400))
    policy = replace(POLICY, context_window=100_000, tidying=Tidying())
    found = blame(_read(BLANK_JSON, plain, rows), policy)
    assert found == {2: ("tidy",), 4: ("truncate",), 6: ("tidy", "truncate")}


def test_each_rule_on_old_messages_is_named() -> None:
    """Of a result that was shortened before it was pruned or cut, both rules."""
    long = session(20, result_tokens=400)
    policy = replace(POLICY, result_budget=Budget(290), context_window=5950)
    assert blame(long, policy) == {at: ("truncate", "prune") if at < 22 else ("truncate",) for at in range(3, 42, 2)}
    cut = blame(session(40, result_tokens=400), policy)
    assert cut[2] == ("digest",)
    assert cut[3] == ("truncate", "digest")


def test_a_message_at_the_beginning_is_shortened_for_its_share() -> None:
    """Memory that was dropped from it is told apart."""
    shares = SectionShares(system=0.1, summary=0.1, memory=0.1, recent=0.7)
    policy = replace(POLICY, sections=shares, truncate_system=True)
    found = blame((system(fill("rules", 1000)), user("Go on.")), policy)
    assert found == {0: ("truncate_system",)}


def test_the_newest_message_is_shortened_if_it_does_not_fit() -> None:
    """No other rule acts on a user message."""
    policy = replace(POLICY, on_exceeded=OnExceeded.TRUNCATE)
    assert blame((user(fill("all", 5000)),), policy) == {0: ("exceeded",)}


def test_calls_and_images_are_lines() -> None:
    """So that a message without text can be read, too."""
    assert read_message(assistant("Look.", call("c", "bash", '{"x":1}'))) == 'Look.\nbash {"x":1}'
    assert read_message(user("See.", IMAGE)) == "See.\n(image of 85 tokens)"
    assert read_message(drop_images(user("See.", IMAGE))) == f"See.\n{IMAGE_LINE}"


def test_a_written_result_has_its_header() -> None:
    """It is part of what the client sent."""
    assert read_message(Message(Role.TOOL, ("ok",), wire_role="user", header="Output: ")) == "Output: ok"


def test_two_objects_of_one_message_are_the_same() -> None:
    """A state that is kept for a session holds messages of an earlier request."""
    message = user("See.", IMAGE)
    assert is_same(message, replace(message))
    assert not is_same(message, drop_images(message))
    assert not is_same(message, message.shorten(("Se",), 0))


def test_the_text_of_a_message_is_not_in_its_repr():
    """Tracebacks and logs show the `repr` of values."""
    assert "secret" not in repr(Change(1, "tool", "bash", Fate.PRUNED, ("prune",), 10, 3, "secret", "secret"))


def test_a_change_is_described_without_texts_unless_they_are_asked_for():
    """All values are such as JSON in UTF-8 holds."""
    change = Change(1, "tool", "bash", Fate.PRUNED, ("prune",), 10, 3, "half \ud800 a pair", "after")
    figures = {"at": 1, "role": "tool", "tool": "bash", "fate": "pruned", "rules": ("prune",)}
    described = {**figures, "tokens_before": 10, "tokens_after": 3}
    assert change.describe() == described
    assert change.describe(with_texts=True) == {**described, "before": "half ? a pair", "after": "after"}


def test_a_result_without_a_call_is_dropped_by_pairing_alone() -> None:
    """Even if a cut removes what stood around it. It is no tool's."""
    messages = (*session(20), result("nobody", "Who asked?"), *session(25)[2:])
    found, at = blame(messages, POLICY), len(session(20))
    assert found[at] == ("pairing",)
    assert found[at - 1] == found[at + 1] == ("digest",)
    (dropped,) = trace((user(), result("nobody"), assistant(None, call("1")), result("1")))
    assert (dropped.at, dropped.tool) == (1, "")
