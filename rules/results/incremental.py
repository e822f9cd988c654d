"""The rules on results for a growing transcript: only its new messages are processed.

Law: a fold. New messages never change what was made of earlier ones. Leading system and developer messages are not
compared with the earlier transcript, because nothing here depends on them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from sys import getsizeof

from rules.conversation import Conversation, Decision, Message, Outcome
from rules.policy import Policy
from rules.results.calls import find_results
from rules.results.edit import Editor, edit_one
from rules.results.work import Work

OBJECT_BYTES = 600
"""Memory of a message or a call, without its bytes and texts. Chosen: above the about 330 bytes of a small Message in
CPython (by tracemalloc), for the containers that hold it."""


@dataclass(slots=True, eq=False)
class _Changes:
    """The changes of one editor: the indexes of the results, and their tokens before and after."""

    editor: Editor
    at: list[int] = field(default_factory=list)
    before_tokens: int = 0
    after_tokens: int = 0

    def decide(self) -> Decision:
        number = len(self.at)
        reason = self.editor.describe(number)
        return Decision(self.editor.rule, reason, self.before_tokens, self.after_tokens, number, self.at[0])


class Edits:
    """The results of a transcript so far, as the editors changed them.

    leading: number of messages at the start that are skipped.
    size_bytes: memory that this takes, roughly.
    """

    def __init__(self, leading: int, editors: Iterable[Editor]) -> None:
        self.size_bytes = 0
        self._leading = leading
        self._seen: list[Message] = []  # without the leading ones
        self._edited: list[Message] = []  # the whole transcript
        self._changes = [_Changes(editor) for editor in editors]

    def is_beginning_of(self, messages: Sequence[Message]) -> bool:
        """Whether a transcript begins with the messages seen so far; the leading ones are not compared."""
        return self._seen == list(messages[self._leading : self._leading + len(self._seen)])

    def extend(self, messages: Sequence[Message], policy: Policy, work: Work) -> None:
        """Process the new messages of a transcript. After a LargeWorkError this object must not be used again."""
        start = self._leading + len(self._seen)
        new = messages[start:]
        self._seen += new
        self._edited[: self._leading] = messages[: self._leading]
        self._edited += new
        self.size_bytes += sum(map(weigh_message, new))
        places = [place for place in find_results(messages, policy, start) if not place.treatment.is_exempt]
        for changes in self._changes:
            for place in changes.editor.wants(self._edited, places):
                before = self._edited[place.at]
                after = self._edited[place.at] = edit_one(before, place, changes.editor, work)
                if after is not before:
                    changes.at.append(place.at)
                    changes.before_tokens += before.tokens
                    changes.after_tokens += after.tokens
                    self.size_bytes += weigh_message(after)

    def apply(self, conversation: Conversation) -> Outcome:
        """The conversation with its changed results. It must consist of exactly the messages seen so far."""
        acted = [changes for changes in self._changes if changes.at]
        if not acted:
            return Outcome(conversation)
        decisions = tuple([changes.decide() for changes in acted])
        changed = tuple([tuple(changes.at) for changes in acted])
        return Outcome(conversation.edit(self._edited), decisions, changed)


def weigh_message(message: Message) -> int:
    """Memory that a message takes, in bytes, roughly."""
    calls = message.tool_calls
    texts = sum(map(getsizeof, message.texts)) + sum(getsizeof(call.arguments) for call in calls)
    return OBJECT_BYTES * (1 + len(calls)) + len(message.raw) + texts
