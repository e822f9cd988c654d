"""Compaction of one request's bytes: decode, plan, apply, encode.

Law: no I/O; safe to run in a thread.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from proxy.compaction.caches import Caches
from proxy.compaction.refusal import RefusedError, add_to_system, refuse, scale_decisions
from proxy.wire.codec import Adapted, Counting, Question, Request
from proxy.wire.transcript.beginnings import Begun
from rules.conversation import Conversation, CountTokens, Decision
from rules.pipeline.apply import apply
from rules.pipeline.exceeded import LimitExceededError
from rules.pipeline.make_plan import plan
from rules.pipeline.plan import Plan
from rules.pipeline.transcript_state import NO_COLD
from rules.policy import MEMORY_TAGS, Policy
from rules.results.work import Work
from rules.summary.asking.prompts import write_inline_prompt
from rules.summary.request import Summary, SummaryRequest
from rules.tokens.families import GENERIC, Costs
from rules.tokens.parts import Parts, count_parts
from rules.tokens.sections import FindMarks, Sections, count_sections
from rules.window.state import ColdCut

MAX_FINDS = 64  # chosen: a configuration uses few sets of memory tags

DROP_TOOLS = "drop_tools"
"""Name of the rule in decisions."""
FindBegun = Callable[[bytes], Begun | None]


@dataclass(frozen=True, slots=True)
class Planned:
    """A decoded and planned request; only the summary of `plan.request` is missing.

    sections: of the client's prompt, in our tokens.
    """

    request: Request
    original: Conversation
    policy: Policy
    plan: Plan
    sections: Sections


@dataclass(frozen=True, slots=True)
class Compacted:
    """The compacted request.

    pieces: the body to send, in pieces; the client's own bytes if no rule acted.
    forwarded: the conversation in that body; its token counts are ours.
    original_tokens, sent_tokens, limit_tokens: in the model's own tokens, as far as its ratio is known.
    original_sections, sent_sections: the sections of which the first two are the sums.
    headers: to send in addition, because of the changes.
    untold: the pieces without what the provider is told of the changes, together with `headers`; None if that is
        nothing.
    """

    pieces: tuple[bytes, ...]
    forwarded: Conversation
    decisions: tuple[Decision, ...]
    original_tokens: int
    sent_tokens: int
    limit_tokens: int
    original_sections: Sections
    sent_sections: Sections
    headers: tuple[tuple[str, str], ...] = ()
    untold: tuple[bytes, ...] | None = None

    @property
    def body(self) -> bytes:
        """The whole body in one piece."""
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)

    def add_cleaned(self, decisions: tuple[Decision, ...]) -> "Compacted":
        """The result with what was taken out of the request before; `decisions` are in the model's own tokens."""
        if not decisions:
            return self
        original_tokens = self.original_tokens + sum(decision.saved_tokens for decision in decisions)
        return replace(
            self,
            decisions=(*decisions, *self.decisions),
            original_tokens=original_tokens,
            original_sections=add_to_system(self.original_sections, decisions),
        )


def _tells_upstream(planned: Planned, *, is_same: bool) -> bool:
    """Whether the upstream may have seen an answer of the model behind other messages than are sent now.

    A request that only counts tokens names no limit for the completion, so it may be cut later than the session's
    others: from the mark on from which a cut is near, it may differ from them.
    """
    plan, is_count = planned.plan, planned.request.codec.is_count
    if is_same and not is_count:
        return plan.was_otherwise
    return plan.breaks_past or (is_count and plan.window.is_long)


def describe_refused(request: Request, error: RefusedError) -> Compacted:
    """The figures of a request that was refused."""
    return Compacted(
        pieces=(request.body,),
        forwarded=Conversation((), 0, ()),
        decisions=error.decisions,
        original_tokens=error.original_tokens,
        sent_tokens=error.tokens,
        limit_tokens=error.limit,
        original_sections=error.original_sections,
        sent_sections=error.sections,
    )


class Compactor:
    """Compacts requests with one way of counting. Thread-safe.

    `number` distinguishes it from other compactors that share its `caches`.
    """

    def __init__(
        self, count: CountTokens, costs: Costs = GENERIC.costs, *, caches: Caches | None = None, number: int = 0
    ) -> None:
        self.count = count
        self._number = number
        self._finds: dict[tuple[str, ...], FindMarks] = {}
        self._caches = caches = caches or Caches()
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
        left = replace(codec.read(body, find_begun(body)), model=request.model, cache=request.cache)
        saved = before.fixed_tokens - codec.decode(left, self._counting).fixed_tokens
        reason = f"{number} declarations of tools"
        return left, (Decision(DROP_TOOLS, reason, before.tokens, before.tokens - saved, 0, 0),)

    def plan(
        self,
        request: Request,
        policy: Policy,
        *,
        cold: Mapping[bytes, ColdCut] = NO_COLD,
        tells_compaction: bool | None = None,
        max_chars: int | None = None,
    ) -> Planned:
        """Plan a request. `cold`: the cuts at a cold cache, by prefix. `tells_compaction`: as for the rules' `plan`.

        Raises UndecodableError, and LargeWorkError if more than `max_chars` of results are new.
        """
        original = request.codec.decode(request, self._counting)
        planned = plan(
            original,
            policy,
            count=self.count,
            request_max_tokens=request.max_tokens,
            work=self._allow(max_chars),
            states=self._states,
            cold=cold,
            tells_compaction=tells_compaction,
        )
        sections = count_sections(planned.original, self._find_marks(policy.memory_tags, max_chars))
        return Planned(request, planned.original, policy, planned, sections)

    def apply(self, planned: Planned, summary: Summary | None, *, max_chars: int | None = None) -> Compacted:
        """Carry out a plan. `summary`: the one that the plan asked for; None for the digest.

        Raises RefusedError if the policy refuses the request, UndecodableError if the body cannot be spliced, and
        LargeWorkError if more than `max_chars` of results were not compared before.
        """
        ratio, limit = planned.policy.token_ratio, planned.plan.model_limit
        find = self._find_marks(planned.policy.memory_tags, max_chars)
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
            raise refuse(error, planned.sections, find, limit_tokens=limit, ratio=ratio) from error
        is_same, request = outcome.conversation is planned.original, planned.request
        original = planned.sections.scale(ratio)
        sent = original if is_same else count_sections(outcome.conversation, find).scale(ratio)
        encoded = request.codec.encode(request, planned.original, outcome.conversation)
        adapted = Adapted(encoded)
        if _tells_upstream(planned, is_same=is_same):
            adapted = request.codec.adapt(request, planned.original, outcome.conversation, adapted.pieces)
        return Compacted(
            pieces=adapted.pieces,
            forwarded=outcome.conversation,
            decisions=scale_decisions((*outcome.decisions, *adapted.decisions), planned.sections.tokens, ratio),
            original_tokens=original.tokens,
            sent_tokens=sent.tokens,
            limit_tokens=limit,
            original_sections=original,
            sent_sections=sent,
            headers=adapted.headers,
            untold=encoded if adapted.headers else None,
        )

    def leave_alone(self, planned: Planned) -> Compacted:
        """The result of `apply` for an empty plan."""
        sections = planned.sections.scale(planned.policy.token_ratio)
        tokens, pieces = sections.tokens, (planned.request.body,)
        limit = planned.plan.model_limit
        return Compacted(pieces, planned.original, (), tokens, tokens, limit, sections, sections)

    def _find_marks(self, tags: tuple[str, ...], max_chars: int | None = None) -> FindMarks:
        if max_chars is None and tags in self._finds:
            return self._finds[tags]
        spend = self._allow(max_chars).begin().allowance.spend
        find = self._caches.marks_by(tags, self.count, self._number, spend)
        if max_chars is None and len(self._finds) < MAX_FINDS:
            self._finds[tags] = find
        return find

    def _allow(self, max_chars: int | None) -> Work:
        work = self._works.get(max_chars)
        if work is None:
            work = self._works[max_chars] = replace(self._works[None], max_chars=max_chars)
        return work

    def count_sections(self, request: Request, memory_tags: tuple[str, ...] = MEMORY_TAGS) -> tuple[Sections, Parts]:
        """Tokens of the request by section, and by speaker and kind. Raises UndecodableError."""
        format_tokens = request.codec.count_format(request, self._counting)
        conversation, find = request.codec.decode(request, self._counting), self._find_marks(memory_tags)
        return count_sections(conversation, find), count_parts(conversation, find, format_tokens=format_tokens)

    def ask_behind(
        self, request: Request, prefix: Conversation, wanted: SummaryRequest, question: Question
    ) -> bytes | None:
        """Make the body that asks for a summary after forwarded messages; None if the request does not allow it."""
        return request.codec.ask_behind(request, prefix, question, write_inline_prompt(wanted, self.count))

    def ask_apart(self, request: Request, leading: Conversation, question: Question, prompt: str) -> bytes | None:
        """Make the body that asks `prompt` after the client's own system messages; None if that cannot be."""
        return request.codec.ask_behind(request, leading, question, prompt, is_apart=True)
