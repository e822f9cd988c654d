"""The story of a request; tests/rules/laws/test_story_laws.py has its laws."""

from dataclasses import replace

from support.builders import KeptStates, conversation, count, session
from support.policies import POLICY

from rules.pipeline.apply import apply
from rules.pipeline.make_plan import plan
from rules.pipeline.story.tell import tell_story
from rules.pipeline.story.values import Fate


def test_a_request_that_was_left_alone_has_no_changes() -> None:
    """Whether or not the rules looked at it."""
    for steps in (1, 30):
        policy = replace(POLICY, context_window=100_000)
        planned = plan(conversation(*session(steps)), policy, count=count)
        assert tell_story(planned, apply(planned, policy, count=count)).changes == ()


def test_what_is_kept_for_a_session_changes_no_story() -> None:
    """A later request finds equal messages of an earlier one in the state."""
    states = KeptStates()
    for steps in range(10, 60, 3):
        stories = []
        for known in (states, None):
            whole = conversation(*(replace(message) for message in session(steps, result_tokens=400)))
            planned = plan(whole, POLICY, count=count, states=known)
            stories.append(tell_story(planned, apply(planned, POLICY, count=count, states=known)))
        assert stories[0] == stories[1]
    assert {change.fate for change in stories[0].changes} == {Fate.REMOVED, Fate.ADDED, Fate.SHORTENED}
