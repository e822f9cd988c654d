"""The sentence about a cut."""

from dataclasses import replace

import pytest
from support.builders import conversation, count, session, user
from support.policies import POLICY

from trimtab.rules.conversation import Message, Role
from trimtab.rules.pipeline.changes import NOTE, Fate
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.pipeline.story import Sentence, tell_story
from trimtab.rules.policy import Policy
from trimtab.rules.summary.request import Summary

SAID = user("Never touch the schema.")
SESSION = (*session(20), SAID, *session(25)[2:])


def tell(messages: tuple[Message, ...], policy: Policy = POLICY, summary: Summary | None = None) -> list[Sentence]:
    """The sentence about the cut, if there is one."""
    planned = plan(conversation(*messages), policy, count=count)
    story = tell_story(planned, apply(planned, policy, count=count, summary=summary))
    return [one for one in story.sentences if one.rule in {"summarise", "digest"}]


@pytest.mark.parametrize("summary", [None, Summary("The build was mended.", by_model=True)])
def test_it_tells_what_stands_for_what(summary: Summary | None) -> None:
    """And whether a model wrote it."""
    (what,) = tell(SESSION, summary=summary)
    assert what.text.startswith("A digest of " if summary is None else "A summary of ")
    assert ("No summary of a model" in what.text) is (summary is None)
    at, last = SESSION.index(SAID), what.messages[-1]
    assert at not in what.messages
    assert f"(messages 2-{at - 1} and {at + 1}-{last})" in what.text
    assert what.saved_tokens > 0


def test_of_a_providers_own_note_it_tells_who_wrote_it() -> None:
    """Its text may be unreadable."""
    note = Message(Role.ASSISTANT, raw=b"{}", keeps_before=True, tokens=30)
    said, standing = replace(SESSION[1], raw=b"said"), Summary("", by_model=True, note=b"{}", standing=(note,))
    for more in ((), (said,)):
        summary = replace(standing, standing=(*more, note))
        planned = plan(conversation(*SESSION), POLICY, count=count)
        story = tell_story(planned, apply(planned, POLICY, count=count, summary=summary))
        (what,) = [one for one in story.sentences if one.rule == "summarise"]
        assert what.text.startswith("A note of 30 tokens that the provider's own compaction wrote stands for ")
        added = [one for one in story.changes if one.fate is Fate.ADDED]
        assert [(one.tokens_after, one.after) for one in added] == [
            *((one.tokens, one.text) for one in more),
            (30, NOTE),
        ]
        assert [one.is_summary for one in added] == [*[False] * len(more), True]
