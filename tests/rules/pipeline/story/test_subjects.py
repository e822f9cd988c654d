"""What a sentence is about."""

from support.builders import conversation, count, system, user
from support.policies import POLICY

from rules.conversation import Decision
from rules.pipeline.make_plan import plan
from rules.pipeline.story.subjects import find_subject
from rules.pipeline.story.traced import Traced
from rules.pipeline.story.values import Change, Fate

PLAN = plan(conversation(system(), user(), user()), POLICY, count=count)


def _traced(at: int, fate: Fate, rule: str) -> Traced:
    return Traced(Change(at, "tool", "bash", fate, (rule,), 10, 1), (at,))


def test_messages_that_are_still_forwarded_come_first() -> None:
    """Those that a cut has taken since are only counted."""
    traced = [
        _traced(4, Fate.REMOVED, "truncate"),
        _traced(8, Fate.SHORTENED, "truncate"),
        _traced(9, Fate.PRUNED, "x"),
    ]
    subject = find_subject(PLAN, Decision("truncate", "", 20, 2, 2, 4), traced)
    assert subject.results == "1 tool result of bash (message 8)"
    assert "1 more" in subject.hidden
    gone = find_subject(PLAN, Decision("truncate", "", 20, 2, 1, 4), traced[:1])
    assert gone.results == "1 tool result of bash (message 4)"
    assert "behind the cut" in gone.hidden


def test_memory_at_the_beginning_is_a_subject_of_its_own() -> None:
    """Two decisions may have the name `memory`."""
    traced = [_traced(0, Fate.SHORTENED, "memory"), _traced(2, Fate.SHORTENED, "memory")]
    decisions = Decision("memory", "", 20, 11, 1, 0), Decision("memory", "", 11, 2, 1, 2)
    assert [find_subject(PLAN, one, traced).elements for one in decisions] == [(0,), (2,)]


def test_a_decision_without_a_message_has_no_place() -> None:
    """Such as one about the tools that are declared."""
    subject = find_subject(PLAN, Decision("drop_tools", "3 declarations of tools", 20, 2, 0, 0), [])
    assert (subject.elements, subject.places, subject.tools, subject.hidden) == ((), "", "", "")
