"""User messages over the limit of a message, of a growing transcript: short once the fold says so.

Law: a short message is a function of the message and the policy. The fold (window/cut_decision.py) counts a message
whole until it is short, and a short one stays so. The task statement, the messages of the newest turn and a client's
own summaries are never short. A turn begins with a user message right behind an answer of the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rules.conversation import Conversation, Decision, Message, Outcome, Role
from rules.policy import Policy
from rules.results.incremental import weigh_message
from rules.results.long_messages import may_shorten, shorten_message
from rules.results.work import Work
from rules.text.client_summaries import is_client_summary


@dataclass(slots=True, eq=False)
class LongUsers:
    """The user messages of a transcript so far that are over the limit, as they are when they are short.

    short: by index. tokens: what they cost then. size_bytes: memory that this takes, roughly.

    After a LargeWorkError this object must not be used again.
    """

    short: dict[int, Message] = field(default_factory=dict)
    tokens: dict[int, int] = field(default_factory=dict)
    size_bytes: int = 0
    _seen: int = 0
    _has_task: bool = False

    def extend(self, messages: Sequence[Message], leading: int, policy: Policy, work: Work) -> None:
        """Look at the new messages of a transcript, without their memory; its first `leading` ones always stay."""
        start, self._seen = max(self._seen, leading), len(messages)
        for index in range(start, len(messages)):
            message = messages[index]
            if message.role is not Role.USER:
                continue
            is_task, self._has_task = not self._has_task, True
            if not (is_task or any(map(is_client_summary, message.texts))) and may_shorten(message, policy):
                short = shorten_message(message, policy.max_message_tokens or 0, work)
                if short is not message:
                    self.short[index], self.tokens[index] = short, short.tokens
                    self.size_bytes += weigh_message(short)

    def apply(self, conversation: Conversation, stop: int) -> Outcome:
        """The conversation with the messages before `stop` short."""
        places = [at for at in self.short if at < stop]
        if not places:
            return Outcome(conversation)
        messages = list(conversation.messages)
        for at in places:
            messages[at] = self.short[at]
        outcome = conversation.edit(messages)
        reason = f"{len(places)} user messages over the limit, of earlier turns"
        decision = Decision("truncate_users", reason, conversation.tokens, outcome.tokens, len(places), places[0])
        return Outcome(outcome, (decision,))
