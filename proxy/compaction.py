"""Compaction of one request's bytes: decode, plan, apply, encode. No I/O; safe to run in a thread."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from proxy.codecs.chat import ChatCodec, ChatRequest
from proxy.lru import BytesLRU
from rules.conversation import Conversation, CountTokens, Decision, Message
from rules.fold import Fold
from rules.pipeline import Plan, apply, plan
from rules.policy import Policy
from rules.summarise import Summary, SummaryRequest, write_inline_prompt
from rules.truncate import Budget, Shortened

CHARACTER_BYTES = 2
"""Of a text in memory, roughly."""
SHORTENED_BYTES = 32 * 1024 * 1024
"""Truncated tool results kept, so that a result is truncated once and not at every request."""
FOLDS_BYTES = 16 * 1024 * 1024
"""Folds kept, one for each transcript seen last, so that a grown one costs its new messages only."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A request decoded and planned: all that is wanting is the text of `plan.request`."""

    request: ChatRequest
    original: Conversation
    policy: Policy
    plan: Plan


@dataclass(frozen=True, slots=True)
class Compacted:
    """What goes out: `body`, the client's own bytes where no rule acted; `forwarded` is what stands in it."""

    body: bytes
    forwarded: Conversation
    decisions: tuple[Decision, ...]
    original_tokens: int
    sent_tokens: int
    limit_tokens: int


class Compactor:
    """Compacts requests that are counted one way. Thread-safe."""

    def __init__(self, count: CountTokens) -> None:
        self.count = count
        self._codec = ChatCodec(count)
        self._shortened: BytesLRU[tuple[bytes, Budget], Shortened] = BytesLRU(SHORTENED_BYTES, _shortened_size)
        self._folds = _Folds()

    def uncounted_bytes(self, request: ChatRequest) -> int:
        """How much of a request was not seen before."""
        return self._codec.uncounted_bytes(request)

    def plan(self, request: ChatRequest, policy: Policy) -> Planned:
        """Decide. Raises UndecodableError."""
        original = self._codec.decode(request)
        planned = plan(
            original,
            policy,
            count=self.count,
            request_max_tokens=request.max_tokens,
            memo=self._shortened,
            folds=self._folds,
        )
        return Planned(request, original, policy, planned)

    def apply(self, planned: Planned, summary: Summary | None) -> Compacted:
        """Carry out; `summary` is what the plan asked for, None for the digest.

        Raises LimitExceededError where the policy refuses, UndecodableError where the body defies splicing.
        """
        outcome = apply(planned.plan, planned.policy, count=self.count, summary=summary)
        return Compacted(
            body=self._codec.encode(planned.request, planned.original, outcome.conversation),
            forwarded=outcome.conversation,
            decisions=outcome.decisions,
            original_tokens=planned.original.tokens,
            sent_tokens=outcome.conversation.tokens,
            limit_tokens=planned.plan.limit,
        )

    def write_inline(
        self, request: ChatRequest, prefix: Sequence[Message], wanted: SummaryRequest
    ) -> dict[str, msgspec.Raw] | None:
        """The members of a body that asks for a summary behind forwarded messages; None where that cannot be."""
        return self._codec.write_inline(request, prefix, write_inline_prompt(wanted, self.count))


class _Folds:
    """Folds by the prefix that they have seen. Whoever takes one has it alone."""

    def __init__(self) -> None:
        self._folds: BytesLRU[bytes, Fold] = BytesLRU(FOLDS_BYTES, lambda key, fold: len(key) + fold.size_bytes)

    def take(self, key: bytes) -> Fold | None:
        """The fold kept under a key, which is forgotten here."""
        return self._folds.pop(key)

    def keep(self, key: bytes, fold: Fold) -> None:
        """Keep a fold until it is taken, or forgotten."""
        self._folds[key] = fold


def _shortened_size(_: tuple[bytes, Budget], shortened: Shortened) -> int:
    """What an entry holds: the new texts."""
    return CHARACTER_BYTES * sum(map(len, shortened.texts))
