"""Compaction of one request's bytes: decode, plan, apply, encode.

Law: no I/O; safe to run in a thread.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from proxy.compaction.caches import Caches
from proxy.wire.codec import Adapted, Counting, Question, Request
from proxy.wire.transcript.beginnings import Begun
from rules.conversation import Conversation, CountTokens, Decision
from rules.pipeline.apply import apply
from rules.pipeline.exceeded import LimitExceededError
from rules.pipeline.make_plan import plan
from rules.pipeline.plan import Plan
from rules.policy import Policy
from rules.results.work import Work
from rules.summary.asking.prompts import write_inline_prompt
from rules.summary.request import Summary, SummaryRequest
from rules.tokens.families import GENERIC, Costs
from rules.tokens.sections import Sections, count_sections

DROP_TOOLS = "drop_tools"
"""Name of the rule in decisions."""
FindBegun = Callable[[bytes], Begun | None]


@dataclass(frozen=True, slots=True)
class Planned:
    """A decoded and planned request; only the summary of `plan.request` is missing."""

    request: Request
    original: Conversation
    policy: Policy
    plan: Plan


@dataclass(frozen=True, slots=True)
class Compacted:
    """The compacted request.

    pieces: the body to send, in pieces; the client's own bytes if no rule acted.
    forwarded: the conversation in that body; its token counts are ours.
    original_tokens, sent_tokens, limit_tokens: in the model's own tokens, as far as its ratio is known.
    headers: to send in addition, because of the changes.
    """

    pieces: tuple[bytes, ...]
    forwarded: Conversation
    decisions: tuple[Decision, ...]
    original_tokens: int
    sent_tokens: int
    limit_tokens: int
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def body(self) -> bytes:
        """The whole body in one piece."""
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)

    def add_cleaned(self, decisions: tuple[Decision, ...]) -> "Compacted":
        """The result with what was taken out of the request before; `decisions` are in the model's own tokens."""
        if not decisions:
            return self
        original_tokens = self.original_tokens + sum(decision.saved_tokens for decision in decisions)
        return replace(self, decisions=(*decisions, *self.decisions), original_tokens=original_tokens)


def describe_refused(request: Request, error: LimitExceededError) -> Compacted:
    """The figures of a request that was refused."""
    nothing = Conversation((), 0, ())
    return Compacted((request.body,), nothing, error.decisions, error.original_tokens, error.tokens, error.limit)


class Compactor:
    """Compacts requests with one way of counting. Thread-safe.

    `number` distinguishes it from other compactors that share its `caches`.
    """

    def __init__(
        self, count: CountTokens, costs: Costs = GENERIC.costs, *, caches: Caches | None = None, number: int = 0
    ) -> None:
        self.count = count
        caches = caches or Caches()
        self._counting = Counting(count, caches.known, costs, number, caches.tool_lists)
        self._states = caches.states
        # By `max_chars`; callers use only a few values.
        self._works: dict[int | None, Work] = {
            None: Work(count, caches.results, counter=number, sketches=caches.sketches, diffs=caches.diffs)
        }

    def uncounted_bytes(self, request: Request) -> int:
        """Bytes of a request that were not seen before."""
        return request.codec.uncounted_bytes(request, self._counting)

    def drop_tools(
        self, request: Request, globs: tuple[str, ...], find_begun: FindBegun = lambda _: None
    ) -> tuple[Request, tuple[Decision, ...]]:
        """The request without the declarations of tools whose names match one of `globs`, and the decision.

        The request itself, and no decision, if no such tool is declared. Tools that the transcript has called stay.
        The decision is in our tokens. `find_begun` finds an earlier body that a body continues. Raises
        UndecodableError.
        """
        codec = request.codec
        if not globs or not any(request.fixed):
            return request, ()
        before = codec.decode(request, self._counting)
        body, number = codec.drop_tools(request, before, globs, self._counting)
        if not number:
            return request, ()
        left = replace(codec.read(body, find_begun(body)), model=request.model)
        saved = before.fixed_tokens - codec.decode(left, self._counting).fixed_tokens
        reason = f"{number} declarations of tools"
        return left, (Decision(DROP_TOOLS, reason, before.tokens, before.tokens - saved, 0, 0),)

    def plan(self, request: Request, policy: Policy, *, max_chars: int | None = None) -> Planned:
        """Plan a request. Raises UndecodableError, and LargeWorkError if more than `max_chars` of results are new."""
        original = request.codec.decode(request, self._counting)
        planned = plan(
            original,
            policy,
            count=self.count,
            request_max_tokens=request.max_tokens,
            work=self._allow(max_chars),
            states=self._states,
        )
        return Planned(request, planned.original, policy, planned)

    def apply(self, planned: Planned, summary: Summary | None, *, max_chars: int | None = None) -> Compacted:
        """Carry out a plan. `summary`: the one that the plan asked for; None for the digest.

        Raises LimitExceededError if the policy refuses the request, UndecodableError if the body cannot be spliced, and
        LargeWorkError if more than `max_chars` of results were not compared before.
        """
        ratio = planned.policy.token_ratio
        limit = planned.plan.model_limit
        try:
            outcome = apply(
                planned.plan,
                planned.policy,
                count=self.count,
                summary=summary,
                work=self._allow(max_chars),
                states=self._states,
            )
        except LimitExceededError as error:
            decisions = [scale(decision, ratio) for decision in error.decisions]
            original, tokens = round(ratio * error.original_tokens), round(ratio * error.tokens)
            window = planned.policy.context_window
            raise LimitExceededError(original, tokens, limit, window=window, decisions=decisions) from error
        original_tokens = round(ratio * planned.original.tokens)
        is_same, request = outcome.conversation is planned.original, planned.request
        adapted = Adapted(request.codec.encode(request, planned.original, outcome.conversation))
        if not is_same:
            adapted = request.codec.adapt(request, outcome.conversation, adapted.pieces)
        return Compacted(
            pieces=adapted.pieces,
            forwarded=outcome.conversation,
            decisions=(*(scale(decision, ratio) for decision in outcome.decisions), *adapted.decisions),
            original_tokens=original_tokens,
            sent_tokens=original_tokens if is_same else round(ratio * outcome.conversation.tokens),
            limit_tokens=limit,
            headers=adapted.headers,
        )

    def leave_alone(self, planned: Planned) -> Compacted:
        """The result of `apply` for an empty plan."""
        tokens = round(planned.policy.token_ratio * planned.original.tokens)
        return Compacted((planned.request.body,), planned.original, (), tokens, tokens, planned.plan.model_limit)

    def _allow(self, max_chars: int | None) -> Work:
        work = self._works.get(max_chars)
        if work is None:
            work = self._works[max_chars] = replace(self._works[None], max_chars=max_chars)
        return work

    def count_sections(self, request: Request) -> Sections:
        """Tokens of the request by section. Raises UndecodableError."""
        format_tokens = request.codec.count_format(request, self._counting)
        return count_sections(request.codec.decode(request, self._counting), self.count, format_tokens=format_tokens)

    def ask_behind(
        self, request: Request, prefix: Conversation, wanted: SummaryRequest, question: Question
    ) -> bytes | None:
        """Make the body that asks for a summary after forwarded messages; None if the request does not allow it."""
        return request.codec.ask_behind(request, prefix, question, write_inline_prompt(wanted, self.count))


def scale(decision: Decision, ratio: float) -> Decision:
    """Convert a decision to the model's own tokens."""
    before, after = round(ratio * decision.tokens_before), round(ratio * decision.tokens_after)
    return replace(decision, tokens_before=before, tokens_after=after)
