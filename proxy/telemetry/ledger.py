"""The ledger of a request: every decision that was made about it, with the attempt and the limit that it was made for.

Law: what was decided is told, whether it was forwarded, refused, or replaced by another plan. It holds no text of a
conversation.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import msgspec

from trimtab.rules.conversation import Decision

REFUSED = "refused"  # The prompt was refused: by the upstream, by trimtab, or in another mode.

COLD_CACHE = "cold_cache"  # The name of the decision to cut at a cold cache
COMPACT_NOW = "compact_now"  # The name of the decision about a cut that somebody asks for
WAS_CUT, IS_CUT = "a cut was asked for, and was made here before", "a cut was asked for"
TOO_SHORT = "a cut was asked for, but the conversation is too short for one"


@dataclass(frozen=True, slots=True)
class Entry(Decision):
    """One decision. attempt: 1 or 2. limit_tokens: of the prompt that it was made for, in the model's own tokens."""

    attempt: int
    limit_tokens: int

    @classmethod
    def of(cls, decision: Decision, attempt: int, limit_tokens: int) -> Self:
        one, sizes = decision, (decision.tokens_before, decision.tokens_after)
        return cls(one.rule, one.reason, *sizes, one.messages, one.first_changed, attempt, limit_tokens)

    def describe(self) -> dict[str, str | int]:
        return {
            "rule": self.rule,
            "attempt": self.attempt,
            "limit_tokens": self.limit_tokens,
            "before_tokens": self.tokens_before,
            "after_tokens": self.tokens_after,
            "saved_tokens": self.saved_tokens,
            "first_changed": self.first_changed,
        }

    def explain(self) -> dict[str, str | int]:
        told = self.describe()
        del told["first_changed"]
        return {"rule": told["rule"], "reason": self.reason, **told}


class Ledger(msgspec.Struct):
    """The entries of one request, in order. The stages of its journey write to it."""

    entries: tuple[Entry, ...] = ()

    def note(self, attempt: int, limit_tokens: int, decisions: Iterable[Decision]) -> None:
        self.entries += tuple([Entry.of(decision, attempt, limit_tokens) for decision in decisions])

    def note_refusal(self, attempt: int, limit_tokens: int, tokens: int, reason: str) -> None:
        """Add that a prompt of `tokens` was refused, or would be; all tokens are the model's own."""
        self.note(attempt, limit_tokens, [Decision(REFUSED, reason, tokens, tokens, 0, 0)])


@dataclass(frozen=True, slots=True)
class UsedSummary:
    """The summary in a prompt; see `Outcome`. Its id is derived from the credential, and reveals nothing of it."""

    id: str
    kind: str
    messages: int
    instead: str = ""
