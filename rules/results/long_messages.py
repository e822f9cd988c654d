"""Messages that are too long and are no tool results: they keep their head and their tail.

Law: the message alone decides, never its age or its position. So the forwarded prefix does not change. The last message
of the transcript is no exception: an answer that the model is to continue keeps its tail. Tool calls, reasoning,
signatures and attachments stay.

What is last today is not last tomorrow, so user messages are another matter: pipeline/shortening.py.
"""

from collections.abc import Sequence
from functools import partial

from trimtab.rules.conversation import Conversation, CountTokens, Decision, Message, Outcome, Role, Telling
from trimtab.rules.policy import Policy, PreserveSystem
from trimtab.rules.results.edit import MIN_SAVED_SHARE, UNTOUCHED, shorten_once, weigh_message
from trimtab.rules.results.excerpt.rule import MIN_SHARE, share_budget
from trimtab.rules.results.work import Shortened, Work
from trimtab.rules.text.head_tail import truncate_text
from trimtab.rules.text.markers import ASK_PART
from trimtab.rules.text.payloads import hide_payloads
from trimtab.rules.treatment import Budget

TELLING = Telling(
    "message",
    "{what} over the limit for one message {was} shortened to the beginning and the end, {saved}{hidden}.",
)


class LongMessages:
    """The messages of a transcript so far that were too long, as they are forwarded.

    leading: number of messages at the start that always stay.
    size_bytes: memory that this takes, roughly.
    """

    def __init__(self, leading: int) -> None:
        self.size_bytes = 0
        self._stop = leading  # the messages before this index have been looked at
        self._short: dict[int, Message] = {}
        self._before_tokens = 0
        self._after_tokens = 0

    def extend(self, messages: Sequence[Message], policy: Policy, work: Work) -> None:
        """Process the new messages of a transcript. After a LargeWorkError this object must not be used again."""
        for index in range(self._stop, len(messages)):
            message = messages[index]
            if message.role is not Role.USER and may_shorten(message, policy):
                short = shorten_message(message, policy.max_message_tokens or 0, work)
                if short is not message:
                    self._short[index] = short
                    self._before_tokens += message.tokens
                    self._after_tokens += short.tokens
                    self.size_bytes += weigh_message(short)
        self._stop = max(self._stop, len(messages))

    def apply(self, conversation: Conversation) -> Outcome:
        """The conversation with its shortened messages. It must consist of the messages seen so far."""
        if not self._short:
            return Outcome(conversation)
        messages = list(conversation.messages)
        for index, short in self._short.items():
            messages[index] = short
        number = len(self._short)
        reason = f"{number} messages over the limit"
        decision = Decision("shorten", reason, self._before_tokens, self._after_tokens, number, next(iter(self._short)))
        return Outcome(conversation.edit(messages), (decision,), (tuple(self._short),))


def may_shorten(message: Message, policy: Policy) -> bool:
    """Whether a message after the leading ones may be over the policy's limit. A quick test, by its whole size."""
    limit = policy.max_message_tokens
    if limit is None or message.tokens <= limit or message.has_fixed_texts or message.keep:
        return False
    if message.role is Role.SYSTEM:
        return policy.preserve_system is PreserveSystem.LEADING
    return message.role is Role.ASSISTANT or (message.role is Role.USER and policy.truncate_users)


def shorten_message(message: Message, limit: int, work: Work) -> Message:
    """The message with texts of at most `limit` tokens; the same one if they fit, or if little would be saved.

    A message with so many texts that each would get less than MIN_SHARE tokens stays too: its texts would have to be
    joined. Raises LargeWorkError if the allowance of `work` is used up.
    """
    if limit < MIN_SHARE * len(message.texts):
        return message
    how = ASK_PART if message.role is Role.USER else ""
    work_out = partial(_work_out, message.texts, limit, work.count, how)
    return shorten_once(message, None, f"shorten {limit}{how}", work, work_out)


def _work_out(texts: tuple[str, ...], limit: int, count: CountTokens, how: str) -> Shortened:
    def shorten(text: str, share: Budget) -> str:
        return truncate_text(hide_payloads(text).text, share.max_tokens, count, how=how)

    tokens = sum(map(count, texts))
    short = share_budget(texts, Budget(limit), count, shorten)
    saved_tokens = tokens - sum(map(count, short))
    return Shortened(short, saved_tokens) if saved_tokens > tokens * MIN_SAVED_SHARE else UNTOUCHED
