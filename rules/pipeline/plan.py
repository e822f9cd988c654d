"""What is to be done with one request.

Law: a value. make_plan.py makes it, apply.py carries it out; between the two stands the shell's only wait, for the text
of `request`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rules.conversation import Conversation, Decision, Message, Role, count_leading
from rules.summary.request import SummaryRequest, request_summary
from rules.window.images import saving_tokens
from rules.window.prune import PLACEHOLDER_TOKENS
from rules.window.state import Window


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done with one request.

    `original` is the client's transcript; `conversation` the same after the rules that need no window, `hashes` those
    of prefixes; `whole` is `conversation` before its newest messages were shortened to fit. `model_limit` is what it is
    planned for in the model's own tokens, `limit` the same as we count; `fitting` is what the window holds beside the
    completion asked for, `hard_limit` what it holds at most. `request` is the text to get before `apply`, None if
    nothing was cut; `prefetch` one that the next cut is expected to need. `is_empty`: no rule can act.
    """

    original: Conversation
    conversation: Conversation
    whole: Conversation
    hashes: Sequence[bytes]
    window: Window
    request: SummaryRequest | None
    prefetch: SummaryRequest | None
    decisions: tuple[Decision, ...]
    model_limit: int
    limit: int
    fitting: int
    hard_limit: int
    is_put_off: bool = False
    is_empty: bool = field(default=False, compare=False)

    def put_off(self) -> "Plan | None":
        """The plan without its last cut, as the request before may have been forwarded; None if nothing was cut.

        It is for whoever asked to see whether that fits: nothing is refused.
        """
        window = self.window.earlier
        if window is None:
            return None
        request = request_summary(self.conversation.messages, self.hashes, window)
        return replace(self, window=window, request=request, prefetch=None, is_put_off=True)

    @property
    def reserved_tokens(self) -> int:
        """What would be forwarded at most: a summary taking all of its reserve."""
        messages, window, cut = self.conversation.messages, self.window, self.window.cut
        leading = count_leading(messages)
        head = {*range(leading), window.task} if cut else set()
        tokens: int = self.conversation.fixed_tokens + (cut.tokens if cut else 0)
        tokens += sum(messages[index].tokens for index in head if index is not None)
        without = set(window.without_images)
        for index in range(cut.at if cut else 0, len(messages)):
            message = messages[index]
            is_pruned = index < window.prune_stop and message.role is Role.TOOL
            if index not in head:
                saved_tokens = saving_tokens(message) if index in without else 0
                tokens += min(message.tokens, PLACEHOLDER_TOKENS) if is_pruned else message.tokens - saved_tokens
        return tokens

    def find_prefix(self, forwarded: Conversation, at: int) -> Conversation | None:
        """What is forwarded of the messages before `at`; None where that message is not forwarded.

        Counted from the end, as messages may stand twice; a bridging line of ours may stand behind `at`, too.
        """
        behind = len(self.conversation.messages) - at
        for stop in (len(forwarded.messages) - behind, len(forwarded.messages) - behind - 1):
            if 0 <= stop < len(forwarded.messages) and _is_same(
                forwarded.messages[stop], self.conversation.messages[at]
            ):
                return replace(forwarded, messages=forwarded.messages[:stop], origins=forwarded.origins[:stop])
        return None


def _is_same(forwarded: Message, message: Message) -> bool:
    """Whether a message is forwarded as it is, or without its images."""
    return forwarded is message or (
        forwarded.texts == message.texts and bool(message.raw) and forwarded.raw is message.raw
    )
