"""What became of each message."""

from dataclasses import replace

from support.builders import assistant, call, conversation, count, fill, result, session, user
from support.policies import POLICY

from rules.conversation import Message, Origin
from rules.pipeline.apply import apply
from rules.pipeline.make_plan import plan
from rules.pipeline.story.alignment import align
from rules.pipeline.story.changes import scale_changes, trace_changes
from rules.pipeline.story.traced import Traced
from rules.pipeline.story.values import OUTSIDE, Change, Fate
from rules.policy import Policy, SummaryRole
from rules.text.markers import KEPT_TITLE

WIDE = replace(POLICY, context_window=100_000)


def trace(messages: tuple[Message, ...], policy: Policy = POLICY, origins: tuple[Origin, ...] = ()) -> list[Change]:
    """The changes of a transcript."""
    whole = conversation(*messages)
    whole = replace(whole, origins=origins) if origins else whole
    planned = plan(whole, policy, count=count)
    outcome = apply(planned, policy, count=count)
    rules = tuple(one.rule for one in outcome.decisions)
    return [one.change for one in trace_changes(align(planned, outcome.conversation, frozenset(rules)), rules)]


def test_each_kind_of_repair_is_told() -> None:
    """A result that is missing, one that nobody asked for, and one that came late."""
    messages = (
        user(),
        assistant(None, call("a", "bash"), call("b", "read")),
        user("Wait."),
        result("a", "late"),
        assistant("Done."),
        result("x", "Who asked?"),
    )
    moved, added, dropped = sorted(trace(messages, WIDE), key=lambda change: change.fate is Fate.REMOVED)[::1]
    kinds = {change.fate: change for change in (moved, added, dropped)}
    assert kinds.keys() == {Fate.MOVED, Fate.ADDED, Fate.REMOVED}
    assert (kinds[Fate.MOVED].at, kinds[Fate.MOVED].tool, kinds[Fate.MOVED].after) == (3, "bash", "late")
    assert (kinds[Fate.ADDED].at, kinds[Fate.ADDED].tool, kinds[Fate.ADDED].after) == (2, "read", "aborted")
    assert (kinds[Fate.REMOVED].at, kinds[Fate.REMOVED].before) == (5, "Who asked?")
    assert {change.rules for change in kinds.values()} == {("pairing",)}


def test_places_are_those_of_the_request() -> None:
    """Several results may share an element, and a system message may stand outside the list."""
    messages = (
        *session(0),
        assistant(None, call("a"), call("b")),
        result("a", fill("a", 900)),
        result("b", fill("b", 900)),
    )
    origins = (Origin(0, 0), Origin(0, 1), Origin(1, 2), Origin(2, 3, 0), Origin(2, 3, 1))
    changes = trace(messages, WIDE, origins)
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
    """Each loses its frame when it is joined. No part ever counts less than nothing."""
    short = [message for number in range(60) for message in (user(f"{number}"), assistant(fill("so", 60)))]
    changes = trace((user("Chat."), *short, user("And now?")))
    assert sum(change.fate is Fate.MOVED for change in changes) > 20
    assert all(change.tokens_after >= 0 for change in changes)


def test_scaled_changes_add_up_to_the_token() -> None:
    """Each alone would be rounded up: 1.4 tokens more in all."""
    one = Traced(Change(0, "tool", "", Fate.REMOVED, ("digest",), 3, 0))
    scaled = [each.change.tokens_before for each in scale_changes([one] * 7, 30, 1.2)]
    assert sum(scaled) == round(30 * 1.2) - round(9 * 1.2)
    assert set(scaled) <= {3, 4}
    assert scale_changes([one], 30, 1.0) == [one]
    (doubled,) = scale_changes([one], 30, 2)
    assert (doubled.change.tokens_before, doubled.change.tokens_after) == (6, 0)
