"""Whether a request is so far below its limit that no rule would act, told from upper bounds alone.

Law: whatever the tokens really are, as long as they are within the bounds, plan() does nothing where this says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rules.conversation import Conversation, Message
from rules.policy import PREFETCH_GAP, Policy
from rules.results import dedupe
from rules.results.pairing import pair_tool_calls
from rules.results.tidy import rule as tidy_results
from rules.treatment import Treatment
from rules.window.room import HEAD_STEPS


@dataclass(frozen=True, slots=True)
class Outline:
    """A transcript of which only roles and calls were read; upper bounds stand for what it costs.

    `tokens` bounds the whole request, `result_bytes` its largest tool result, and `result_chars` the texts of any: what
    is tidied, truncated or deduplicated is told by proof only, for there a wrong guess would change bytes that were
    sent before.
    """

    messages: Sequence[Message]
    tokens: int
    result_bytes: int
    result_chars: int


def is_far_below(outline: Outline, policy: Policy, *, request_max_tokens: int | None = None) -> bool:
    """Whether the request goes out as it came.

    The next cut is fixed at `high_water - PREFETCH_GAP` of the room. The more of the tokens the head takes, the further
    they are from that; so without any head, but for its rounding, is the worst.
    """
    limit = policy.limit_tokens(request_max_tokens)
    room = limit - limit // HEAD_STEPS - 1
    if outline.tokens >= int(room * (policy.high_water - PREFETCH_GAP)):
        return False
    if not all(_leaves_alone(treatment, outline) for treatment in policy.treatments()):
        return False
    conversation = Conversation(tuple(outline.messages))
    return pair_tool_calls(conversation, count=len).conversation is conversation


def _leaves_alone(treatment: Treatment, outline: Outline) -> bool:
    """Whether results of that size are surely left as they are, whatever they say."""
    if treatment.is_exempt:
        return True
    budget = treatment.budget
    if outline.result_bytes > budget.max_tokens:  # no text has more tokens than bytes
        return False
    if budget.max_bytes is not None and outline.result_bytes > budget.max_bytes:
        return False
    is_small = outline.result_chars <= min(dedupe.MIN_CHARS, tidy_results.MIN_CHARS)
    return is_small or not (treatment.tidying or treatment.dedupe)
