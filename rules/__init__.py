"""The rules of compaction: pure functions of a transcript and a policy.

Law: no I/O, no clock, no randomness, no environment, and no import from `proxy` (import-linter enforces it). A rule
takes everything that it needs as arguments and returns what it decided.

The names in `__all__` are public. All modules below this package are private and may change.

    planned = plan(conversation, policy, count=count_tokens)
    outcome = apply(planned, policy, count=count_tokens)
    outcome.conversation, outcome.decisions

- `finish_message` completes a `Message` that you build yourself: it counts its tokens and computes its digest.
- `whole_elements` makes the `origins` of a `Conversation` if each message is one element of the request.
- `plan` decides what happens to a `Conversation`; `apply` carries out the plan.
- `planned.request` asks for the summary that a cut needs; None if no cut needs one. `write_prompt` writes the question
  for a model, and `Summary` holds the answer. Without an answer, `apply` writes a digest.
- `Work` and `States` cache results from one request to the next.

`trimtab` offers the same for the messages of an agent, `trimtab.proxy.compaction` for the bytes of a request.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.rules.conversation import (
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
    from trimtab.rules.pipeline.exceeded import LimitExceededError
    from trimtab.rules.pipeline.order import apply, plan
    from trimtab.rules.pipeline.plan import Plan
    from trimtab.rules.pipeline.transcript_state import States
    from trimtab.rules.policy import (
        Budget,
        OnExceeded,
        OverflowStrategy,
        Policy,
        Prices,
        SummaryRole,
        Tidying,
        ToolRule,
        Treatment,
        Truncation,
    )
    from trimtab.rules.results.work import LargeWorkError, Work
    from trimtab.rules.summary.prompts import write_prompt
    from trimtab.rules.summary.request import Summary, SummaryRequest
    from trimtab.rules.tokens.messages import finish_message

__all__ = [
    "Budget", "Conversation", "CountTokens", "Decision", "LargeWorkError", "LimitExceededError", "Media",
    "Message", "OnExceeded", "Origin", "Outcome", "OverflowStrategy", "Plan", "Policy", "Prices", "Role",
    "Shape", "States", "Summary", "SummaryRequest", "SummaryRole", "Tidying", "ToolCall", "ToolRule",
    "Treatment", "Truncation", "Work", "apply", "finish_message", "plan", "whole_elements", "write_prompt",
]  # fmt: skip
_WHERE = (
    "conversation", "policy", "results.work", "tokens.messages", "pipeline.exceeded", "pipeline.order",
    "pipeline.transcript_state", "summary.prompts", "summary.request",
)  # fmt: skip
"""The modules that have them. They are loaded when they are first used: the configuration needs few of them."""


def __getattr__(name: str) -> Any:
    modules = (import_module(f"{__name__}.{module}") for module in _WHERE if name in __all__)
    found = next((module for module in modules if hasattr(module, name)), None)
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(found, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
