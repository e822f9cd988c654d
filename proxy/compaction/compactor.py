"""Compaction of one request's bytes: decode, plan, apply, encode. No I/O; safe to run in a thread."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from sys import getsizeof
from typing import Generic, TypeVar

import msgspec

from proxy.lru import BytesLRU
from proxy.wire.chat.request import ChatCache, ChatCodec, ChatRequest
from rules.conversation import Conversation, CountTokens, Decision, Message
from rules.pipeline.plan import LimitExceededError, Plan, apply, plan
from rules.policy import Policy
from rules.results.dedupe import Memos, Sketch, View
from rules.results.edit import Allowance, Edits, MemoKey, Shortened, Work
from rules.summary.request import Summary, SummaryRequest, write_inline_prompt
from rules.tokens.families import GENERIC, Costs
from rules.tokens.sections import Sections, count_sections
from rules.window.replay import Fold

SKETCH_LINE_BYTES = 40
"""A checksum in a tuple."""
SHORTENED_BYTES = 32 * 1024 * 1024
"""What became of tool results, so that each is tidied and truncated once and not at every request."""
SKETCHES_BYTES = 32 * 1024 * 1024
"""What tells whether results are alike, by their texts. Most of these are the cached messages' own."""
DIFFS_BYTES = 8 * 1024 * 1024
DIFF_CHARS = 8 * 1024
"""What comparing two results costs, as though so many characters were new."""
FOLDS_BYTES = 16 * 1024 * 1024
"""Folds kept, one for each transcript seen last, so that a grown one costs its new messages only."""
EDITS_BYTES = 64 * 1024 * 1024
"""The same of what became of its results. They hold its messages, nearly always the cached ones, which count again."""
VIEWS_BYTES = 64 * 1024 * 1024
"""The same of its results that were compared."""


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
S = TypeVar("S", bound=Fold | Edits | View)
_ShortenedKey = tuple[int, MemoKey]


@dataclass(frozen=True, slots=True)
class Planned:
    """A request decoded and planned: all that is wanting is the text of `plan.request`."""

    request: ChatRequest
    original: Conversation
    policy: Policy
    plan: Plan


@dataclass(frozen=True, slots=True)
class Compacted:
    """What goes out: `body`, the client's own bytes where no rule acted; `forwarded` is what stands in it.

    Tokens are the model's own, as far as they are known; those within `forwarded` are ours.
    """

    body: bytes
    forwarded: Conversation
    decisions: tuple[Decision, ...]
    original_tokens: int
    sent_tokens: int
    limit_tokens: int


def describe_refused(request: ChatRequest, error: LimitExceededError) -> Compacted:
    """What is known of a request that was refused."""
    nothing = Conversation(())
    return Compacted(request.body, nothing, error.decisions, error.original_tokens, error.tokens, error.limit)


class Caches:
    """What compactors remember, within bounds that they share."""

    def __init__(self) -> None:
        self.chat = ChatCache()
        self.shortened: BytesLRU[_ShortenedKey, Shortened] = BytesLRU(SHORTENED_BYTES, _shortened_size)
        self.sketches: BytesLRU[str, Sketch] = BytesLRU(
            SKETCHES_BYTES, lambda text, sketch: getsizeof(text) + SKETCH_LINE_BYTES * len(sketch.lines)
        )
        self.diffs: BytesLRU[tuple[bytes, bytes], str] = BytesLRU(
            DIFFS_BYTES, lambda key, diff: sum(map(len, key)) + getsizeof(diff)
        )
        self.folds: BytesLRU[tuple[int, bytes], Fold] = BytesLRU(FOLDS_BYTES, _state_size)
        self.edits: BytesLRU[tuple[int, bytes], Edits] = BytesLRU(EDITS_BYTES, _state_size)
        self.views: BytesLRU[tuple[int, bytes], View] = BytesLRU(VIEWS_BYTES, _state_size)


class Compactor:
    """Compacts requests that are counted one way. Thread-safe.

    `number` sets it apart from the other compactors that share its `caches`.
    """

    def __init__(
        self,
        count: CountTokens,
        costs: Costs = GENERIC.costs,
        *,
        caches: Caches | None = None,
        number: int = 0,
    ) -> None:
        self.count = count
        caches = caches or Caches()
        self._codec = ChatCodec(count, costs, cache=caches.chat, number=number)
        self._shortened = _ShortenedResults(caches.shortened, number)
        self._folds = _Kept(caches.folds, number)
        self._edits = _Kept(caches.edits, number)
        self._views = _Kept(caches.views, number)
        self._caches = caches

    def uncounted_bytes(self, request: ChatRequest) -> int:
        """How much of a request was not seen before."""
        return self._codec.uncounted_bytes(request)

    def plan(self, request: ChatRequest, policy: Policy, *, max_chars: int | None = None) -> Planned:
        """Decide. Raises UndecodableError, and LargeWorkError where more than `max_chars` of results are new."""
        original = self._codec.decode(request)
        planned = plan(
            original,
            policy,
            count=self.count,
            request_max_tokens=request.max_tokens,
            work=Work(self.count, self._shortened, Allowance(max_chars), self._edits),
            folds=self._folds,
        )
        return Planned(request, original, policy, planned)

    def apply(self, planned: Planned, summary: Summary | None, *, max_chars: int | None = None) -> Compacted:
        """Carry out; `summary` is what the plan asked for, None for the digest.

        Raises LimitExceededError where the policy refuses, UndecodableError where the body defies splicing, and
        LargeWorkError where more than `max_chars` of results were not compared before.
        """
        allowance = Allowance(max_chars)
        memos = Memos(
            sketches=_Allowed(self._caches.sketches, allowance, len),
            diffs=_Allowed(self._caches.diffs, allowance, lambda _: DIFF_CHARS),
            views=self._views,
        )
        ratio = planned.policy.token_ratio
        limit = planned.policy.model_limit_tokens(planned.request.max_tokens)
        try:
            outcome = apply(planned.plan, planned.policy, count=self.count, summary=summary, memos=memos)
        except LimitExceededError as error:
            decisions = [_scale(decision, ratio) for decision in error.decisions]
            original, tokens = round(ratio * error.original_tokens), round(ratio * error.tokens)
            window = planned.policy.context_window
            raise LimitExceededError(original, tokens, limit, window=window, decisions=decisions) from error
        return Compacted(
            body=self._codec.encode(planned.request, planned.original, outcome.conversation),
            forwarded=outcome.conversation,
            decisions=tuple(_scale(decision, ratio) for decision in outcome.decisions),
            original_tokens=round(ratio * planned.original.tokens),
            sent_tokens=round(ratio * outcome.conversation.tokens),
            limit_tokens=limit,
        )

    def count_sections(self, request: ChatRequest) -> Sections:
        """What the request is made of. Raises UndecodableError."""
        format_tokens = self._codec.count_format(request)
        return count_sections(self._codec.decode(request), self.count, format_tokens=format_tokens)

    def write_inline(
        self, request: ChatRequest, prefix: Sequence[Message], wanted: SummaryRequest
    ) -> dict[str, msgspec.Raw] | None:
        """The members of a body that asks for a summary behind forwarded messages; None where that cannot be."""
        return self._codec.write_inline(request, prefix, write_inline_prompt(wanted, self.count))


def _scale(decision: Decision, ratio: float) -> Decision:
    """A decision in the model's own tokens."""
    before, after = round(ratio * decision.tokens_before), round(ratio * decision.tokens_after)
    return replace(decision, tokens_before=before, tokens_after=after)


class _Kept(Generic[S]):
    """One compactor's states of transcripts, by what they have seen. Whoever takes one has it alone."""

    def __init__(self, states: BytesLRU[tuple[int, bytes], S], number: int) -> None:
        self._states = states
        self._number = number

    def take(self, key: bytes) -> S | None:
        """The state kept under a key, which is forgotten here."""
        return self._states.pop((self._number, key))

    def keep(self, key: bytes, state: S) -> None:
        """Keep a state until it is taken, or forgotten."""
        self._states[self._number, key] = state


class _ShortenedResults:
    """One compactor's tidied and truncated results."""

    def __init__(self, shortened: BytesLRU[_ShortenedKey, Shortened], number: int) -> None:
        self._shortened = shortened
        self._number = number

    def get_many(self, keys: Sequence[MemoKey]) -> list[Shortened | None]:
        """What was kept under each key, if anything."""
        number = self._number
        return self._shortened.get_many([(number, key) for key in keys])

    def __setitem__(self, key: MemoKey, shortened: Shortened) -> None:
        self._shortened[self._number, key] = shortened


class _Allowed(Generic[K, V]):
    """A cache, and what may be worked out anew where it has nothing."""

    def __init__(self, cache: BytesLRU[K, V], allowance: Allowance, chars: Callable[[K], int]) -> None:
        self._cache = cache
        self._allowance = allowance
        self._chars = chars

    def get(self, key: K) -> V | None:
        """What was kept under `key`, if anything. Raises LargeWorkError."""
        value = self._cache.get(key)
        if value is None:
            self._allowance.spend(self._chars(key))
        return value

    def __setitem__(self, key: K, value: V) -> None:
        self._cache[key] = value


def _shortened_size(key: _ShortenedKey, shortened: Shortened) -> int:
    """What an entry holds: the new texts, and those in its key."""
    _, treatment, said, _, name, arguments = key[1]
    texts = (name, arguments, treatment, *shortened.texts, *(said if isinstance(said, tuple) else ()))
    return sum(map(getsizeof, texts))


def _state_size(key: tuple[int, bytes], state: Fold | Edits | View) -> int:
    return len(key[1]) + state.size_bytes
