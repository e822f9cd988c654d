"""The sentences about a cut."""

from dataclasses import replace

import pytest
from support.builders import assistant, call, conversation, count, fill, result, session, system, user
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
    planned = plan(conversation(*messages), policy, count=count)
    story = tell_story(planned, apply(planned, policy, count=count, summary=summary))
    return [one for one in story.sentences if one.rule in {"summarise", "digest"}]


@pytest.mark.parametrize("summary", [None, Summary("The build was mended.", by_model=True)])
def test_they_tell_what_stands_for_what_and_what_stays(summary: Summary | None) -> None:
    what, rest, when = tell(SESSION, summary=summary)
    assert what.text.startswith("A digest of " if summary is None else "A summary of ")
    assert ("No summary of a model" in what.text) is (summary is None)
    at, last = SESSION.index(SAID), what.messages[-1]
    assert at not in what.messages
    assert f"(messages 2-{at - 1} and {at + 1}-{last})" in what.text
    assert "the task statement (message 1), 1 user message from before the cut (message 42)" in rest.text
    assert rest.text.startswith("The system prompt, ")
    assert rest.text.endswith(f"and the newest {len(SESSION) - last - 1} messages stay word for word.")
    assert rest.messages == (1, at)
    assert when.text.startswith("The cut is due since message ")
    assert what.saved_tokens > 0
    assert (rest.saved_tokens, when.saved_tokens) == (0, 0)


def test_of_a_providers_own_note_they_claim_no_word_that_it_may_not_have() -> None:
    """Task statement and kept messages are in it as far as the provider keeps them. Its text may be unreadable."""
    note = Message(Role.ASSISTANT, raw=b"{}", keeps_before=True, tokens=30)
    said, standing = replace(SESSION[1], raw=b"said"), Summary("", by_model=True, note=b"{}", standing=(note,))
    for more in ((), (said,)):
        summary = replace(standing, standing=(*more, note))
        planned = plan(conversation(*SESSION), POLICY, count=count)
        story = tell_story(planned, apply(planned, POLICY, count=count, summary=summary))
        what, rest, when = [one for one in story.sentences if one.rule == "summarise"]
        assert what.text.startswith("A note of 30 tokens that the provider's own compaction wrote stands for ")
        assert rest.text.startswith("The system prompt and the newest ")
        assert rest.text.endswith(" messages stay word for word.")
        assert rest.messages == ()
        assert when.text.startswith("The cut ")
        added = [one for one in story.changes if one.fate is Fate.ADDED]
        assert [(one.tokens_after, one.after) for one in added] == [
            *((one.tokens, one.text) for one in more),
            (30, NOTE),
        ]
        assert [one.is_summary for one in added] == [*[False] * len(more), True]


def test_what_was_shortened_is_not_said_to_stay_word_for_word() -> None:
    messages = (*session(40), *session(1, result_tokens=900)[2:])
    assert tell(messages)[1].text.endswith("stay word for word, except for what the other sentences tell.")


def test_they_tell_of_a_clients_own_summary_that_stays() -> None:
    told = user("This session is being continued from a previous conversation that ran out of context. All went well.")
    head, task, *others = session(45)
    for leading in ((), (head,)):
        _, rest, _ = tell((*leading, task, told, *others))
        at = len(leading)
        assert f"the client's own summary of an earlier session (message {at + 1})" in rest.text
        assert rest.messages == (at, at + 1)


def test_it_tells_what_stays_word_for_word() -> None:
    """Each kind with its places: also a call that was made again and again, and its result."""
    parts = [system(), user("Mend the build.")]
    for number in range(60):
        path = f"other {number}" if number % 10 else "needed"
        asked = assistant(f"I read {path}.", call(f"c{number}", "read", f'{{"path":"{path}"}}'))
        parts += [replace(asked, keep=number == 7), result(f"c{number}", fill(f"{path} is", 100))]
        parts += {7: [system("note")], 10: [SAID]}.get(number, [])
    stays = tell(tuple(parts))[1].text
    assert stays == (
        "The system prompt, the task statement (message 1), 1 user message from before the cut (message 25), 1 system "
        "message from there (message 18), 1 message that the client wants kept (message 16), 1 repeated call with "
        "their results (messages 84-85) and the newest 14 messages stay word for word."
    )
