"""The rules of compaction: pure functions of a transcript and a policy.

Law: no I/O, no clock, no randomness, no environment, and nothing of `proxy` (import-linter holds it). What a rule needs
comes in, what it decided comes out.

What stands in `__all__` is public; the modules behind it may change.

    planned = plan(conversation, policy, count=count_tokens)
    outcome = apply(planned, policy, count=count_tokens)
    outcome.conversation, outcome.decisions

A `Message` that is made by hand is counted and digested by `finish_message`, and `whole_elements` says where messages
stand of which each is one element of the request. `plan` decides what becomes of a `Conversation`; `apply` carries that
out. Between the two, `planned.request` names the text that a cut wants: `write_prompt` writes the question for a model,
`Summary` takes its answer, and without one `apply` writes a digest. `Work` and `States` keep from request to request
what was worked out. `proxy.compaction` does the same for the bytes of a request.
"""

from rules.conversation import (
    Conversation,
    CountTokens,
    Decision,
    Media,
    Message,
    Origin,
    Outcome,
    Role,
    Shape,
    ToolCall,
    whole_elements,
)
from rules.pipeline.apply import apply
from rules.pipeline.exceeded import LimitExceededError
from rules.pipeline.make_plan import plan
from rules.pipeline.plan import Plan
from rules.pipeline.transcript_state import States
from rules.policy import OnExceeded, OverflowStrategy, Policy, Prices, SummaryRole
from rules.results.work import LargeWorkError, Work
from rules.summary.asking.prompts import write_prompt
from rules.summary.request import Summary, SummaryRequest
from rules.tokens.messages import finish_message
from rules.treatment import Budget, Tidying, ToolRule, Treatment, Truncation

__all__ = [
    "Budget", "Conversation", "CountTokens", "Decision", "LargeWorkError", "LimitExceededError", "Media",
    "Message", "OnExceeded", "Origin", "Outcome", "OverflowStrategy", "Plan", "Policy", "Prices", "Role",
    "Shape", "States", "Summary", "SummaryRequest", "SummaryRole", "Tidying", "ToolCall", "ToolRule",
    "Treatment", "Truncation", "Work", "apply", "finish_message", "plan", "whole_elements", "write_prompt",
]  # fmt: skip
