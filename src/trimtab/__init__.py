"""trimtab: a transparent OpenAI-compatible proxy that compacts long conversations in flight.

`trimtab.proxy` is the program, `trimtab.rules` the decisions without I/O. Both folders lie at the top of the
repository; the links beside this file bring them under one import name, which no other package takes.

For a Python program of your own:

    compactor = Compactor(make_policy(context_window=128_000), model="gpt-4o")
    result = compactor.compact(messages, tools=tools)
    result.messages, result.decisions, result.tokens, result.summary_request

The names in `__all__` are public. They are loaded when they are first used, since the program needs none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.proxy.compaction.library import Compactor, Result, SummaryRequest, Tokens, make_policy
    from trimtab.proxy.compaction.tokenizers.exact import VocabularyError
    from trimtab.proxy.wire.transcript.body import UndecodableError
    from trimtab.rules import Decision, LimitExceededError, Policy

__all__ = [
    "Compactor", "Decision", "LimitExceededError", "Policy", "Result", "SummaryRequest", "Tokens", "UndecodableError",
    "VocabularyError", "make_policy",
]  # fmt: skip
_ELSEWHERE = {
    "Decision": "rules",
    "LimitExceededError": "rules",
    "Policy": "rules",
    "UndecodableError": "proxy.compaction",
    "VocabularyError": "proxy.compaction",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'proxy.compaction.library')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
