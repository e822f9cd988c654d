"""Exceeded: the newest messages are shortened if even a cut does not make enough room for them.

Law: the fold (cut_decision.py) decides how much each message keeps, so a shortened message is forwarded the same in all
later requests. A text is shortened once, from the client's original, and its marker says how much is missing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from rules.conversation import Conversation, CountTokens, Decision, Message, Outcome, Role, replace_messages
from rules.pipeline.remainder import Remainder
from rules.policy import Policy
from rules.results.calls import Place, find_results
from rules.results.edit import Result, edit_one, shorten_once
from rules.results.excerpt.rule import share_budget, truncate_result
from rules.results.tidy.rule import TIDY
from rules.results.work import Shortened, Work
from rules.text.head_tail import truncate_text
from rules.text.markers import ASK_PART
from rules.text.payloads import hide_payloads
from rules.treatment import Budget
from rules.window.images import drop_images
from rules.window.open_step import Cap, least_tokens


class LimitExceededError(ValueError):
    """The request does not fit the window even after compaction, and the policy refuses such requests.

    original_tokens, tokens: the prompt before and after compaction, in our tokens.
    limit: the size that the prompt was planned for, in our tokens.
    window: the context window, in the model's own tokens.
    decisions: what the rules did, in order.
    conversation: what was left after compaction; None if it is not known.
    remainder: what must shrink, because no rule removes it; None if it is not known.
    """

    remainder: Remainder | None = None

    def __init__(
        self,
        original_tokens: int,
        tokens: int,
        limit: int,
        *,
        window: int,
        decisions: Sequence[Decision],
        conversation: Conversation | None = None,
    ) -> None:
        super().__init__(f"{tokens} prompt tokens after compaction, limit {limit}")
        self.original_tokens = original_tokens
        self.tokens = tokens
        self.limit = limit
        self.window = window
        self.decisions = tuple(decisions)
        self.conversation = conversation


def shorten_newest(
    conversation: Conversation, original: Conversation, caps: Iterable[Cap], *, policy: Policy, work: Work
) -> Outcome:
    """Shorten each message of `caps` to its cap.

    `original` holds the same messages before any rule on texts. Tool results are shortened by the policy for their
    tool, user messages to head and tail. The oldest images are removed if a cap leaves no room for them. Raises
    LargeWorkError if the allowance of `work` is used up.
    """
    new: dict[int, Message] = {}
    places = _find_places(original.messages, caps, policy)
    for cap in caps:
        message, place = original.messages[cap.at], places.get(cap.at)
        without = drop_images(message, max(least_tokens(message) - cap.tokens, 0))
        work_out = partial(_work_out, message, place, cap.tokens + message.tokens - without.tokens, work)
        shorter = shorten_once(message, place, f"exceeded {cap.tokens}", work, work_out)
        if without is not message:
            shorter = replace(shorter.shorten(shorter.texts, message.tokens - without.tokens), media=without.media)
        if shorter.tokens < conversation.messages[cap.at].tokens:
            new[cap.at] = shorter
    return replace_messages(conversation, new, "exceeded", f"{len(new)} messages that did not fit the window")


def _find_places(messages: Sequence[Message], caps: Iterable[Cap], policy: Policy) -> dict[int, Place]:
    results = {cap.at for cap in caps if messages[cap.at].role is Role.TOOL}
    if not results:
        return {}
    return {place.at: place for place in find_results(messages, policy, min(results)) if place.at in results}


def _work_out(message: Message, place: Place | None, max_tokens: int, work: Work) -> Shortened:
    count = work.count
    tokens = sum(map(count, message.texts))
    # The cap minus what is not text. At least 1, because no text may become empty.
    limit = max(max_tokens - (message.tokens - tokens), 1)
    texts = message.texts
    if place is None:
        texts = _share_head_tail(texts, limit, count)
    else:
        tidied = edit_one(message, place, TIDY, work)
        result = Result(tidied, place.call, place.treatment)
        budget = Budget(limit, None if result.is_exempt else result.budget.max_bytes)
        texts = truncate_result(result, budget, count)
    return Shortened(texts, tokens - sum(map(count, texts)))


def _share_head_tail(texts: tuple[str, ...], limit: int, count: CountTokens) -> tuple[str, ...]:
    def shorten(text: str, share: Budget) -> str:
        return truncate_text(hide_payloads(text).text, share.max_tokens, count, how=ASK_PART)

    return share_budget(texts, Budget(limit), count, shorten)
