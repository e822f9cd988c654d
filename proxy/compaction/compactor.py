"""Compaction of one request's bytes: decode, plan, apply, encode. And what a request that cannot fit would cost.

Law: no I/O; safe to run in a thread. What is said of a refused request are figures and names of parts, never text of
the conversation.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import ceil

import msgspec
from msgspec import structs

from trimtab.proxy.compaction.caches import Caches
from trimtab.proxy.recall import Archive
from trimtab.proxy.telemetry.ledger import Entry
from trimtab.proxy.wire.answering import Question
from trimtab.proxy.wire.cache_help import Addition
from trimtab.proxy.wire.codec import Counting, Request, UndecodableError
from trimtab.proxy.wire.json import DECODE_ERRORS
from trimtab.proxy.wire.transcript.body import Adapted, KeptBody, PrefixMatch, Unsent
from trimtab.rules.conversation import Conversation, CountTokens, Decision, Outcome
from trimtab.rules.pipeline.exceeded import LimitExceededError
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.pipeline.story import Story, tell_story
from trimtab.rules.pipeline.transcript_state import NO_COLD
from trimtab.rules.policy import MEMORY_TAGS, OnExceeded, Policy
from trimtab.rules.prefix import hash_prefixes
from trimtab.rules.results.pairing import find_unpaired
from trimtab.rules.results.work import Allowance, Work
from trimtab.rules.summary.prompts import write_inline_prompt
from trimtab.rules.summary.request import Summary, SummaryRequest
from trimtab.rules.tokens.families import GENERIC, Costs
from trimtab.rules.tokens.scripts import note_kinds
from trimtab.rules.tokens.sections import (
    FindMarks,
    Part,
    Parts,
    Sections,
    count_messages,
    count_parts,
    count_sections,
    list_parts,
    share_excess,
)
from trimtab.rules.window.state import ColdCut


class RefusedError(LimitExceededError):
    """A LimitExceededError in the model's own tokens, with what the prompt consists of.

    original_sections, sections: before and after compaction.
    hard_limit_tokens: the size above which the prompt is refused.
    irreducible_tokens: the prompt if everything is removed that a rule may remove.
    excess_tokens: by how much the parts would have to be shorter together.
    parts: of what no rule removes, in plain words; those that would have to be shorter say by how much.
    """

    original_sections = Sections()
    sections = Sections()
    hard_limit_tokens = 0
    irreducible_tokens = 0
    excess_tokens = 1
    parts: Sequence[Part] = ()

    @property
    def removable_tokens(self) -> int:
        """What a rule would still remove of the prompt if the rest were short enough."""
        return max(self.tokens - self.irreducible_tokens, 0)


def refuse(
    error: LimitExceededError,
    original: Sections,
    find: FindMarks,
    *,
    limit_tokens: int,
    ratio: float,
    cleaned: Sequence[Decision] = (),
) -> RefusedError:
    """Convert an error to the model's own tokens.

    original: the sections of the prompt that was planned, in our tokens. cleaned: what was taken out before.
    """
    decisions = (*cleaned, *scale_decisions(error.decisions, error.original_tokens, ratio))
    original_tokens, tokens = round(ratio * error.original_tokens), round(ratio * error.tokens)
    original_tokens += sum(decision.saved_tokens for decision in cleaned)
    refused = RefusedError(original_tokens, tokens, limit_tokens, window=error.window, decisions=decisions)
    refused.original_sections = add_to_system(original.scale(ratio), cleaned)
    refused.hard_limit_tokens = limit_tokens
    refused.irreducible_tokens, refused.excess_tokens = tokens, max(tokens - limit_tokens, 1)
    if error.conversation is not None:
        refused.sections = count_sections(error.conversation, find).scale(ratio)
    if (remainder := error.remainder) is not None:
        refused.hard_limit_tokens = max(int(ratio * remainder.hard_limit), limit_tokens)
        refused.irreducible_tokens = round(ratio * remainder.tokens)
        refused.excess_tokens = ceil(ratio * remainder.excess_tokens)
        parts = list_parts(remainder.conversation, find, ratio)
        refused.parts = share_excess(parts, refused.excess_tokens, ceil(ratio * remainder.head_tokens))
    return refused


def add_to_system(sections: Sections, decisions: Iterable[Decision]) -> Sections:
    return sections._replace(system=sections.system + sum(decision.saved_tokens for decision in decisions))


def scale_decisions(decisions: Iterable[Decision], original_tokens: int, ratio: float) -> tuple[Decision, ...]:
    """Decisions in the model's own tokens, each with the size of the whole prompt before and after it.

    original_tokens: the prompt before the first of them, in our tokens. Some rules tell the size of what they changed.
    """
    tokens, scaled = original_tokens, []
    for decision in decisions:
        before, tokens = round(ratio * tokens), tokens - decision.saved_tokens
        after = round(ratio * tokens)
        scaled.append(
            Decision(decision.rule, decision.reason, before, after, decision.messages, decision.first_changed)
        )
    return tuple(scaled)


def write_cost(error: RefusedError, entries: Iterable[Entry]) -> Mapping[str, object]:
    """The member `context_cost` of the answer to a refused request. `entries`: of its ledger, in order."""
    before, after = error.original_sections, error.sections
    sections = {
        name: {"original": original, "compacted": tokens}
        for name, original, tokens in zip(Sections._fields, before, after, strict=True)
    }
    return {
        "limit_tokens": error.limit,
        "window_tokens": error.window,
        "reserved_tokens": error.window - error.limit,
        "original_tokens": error.original_tokens,
        "tokens": error.tokens,
        "irreducible_tokens": error.irreducible_tokens,
        "removable_tokens": error.removable_tokens,
        "refused_above_tokens": error.hard_limit_tokens,
        "excess_tokens": error.excess_tokens,
        "sections": sections,
        "decisions": [entry.explain() for entry in entries],
        "shrink": [structs.asdict(part) for part in error.parts],
    }


def describe_excess(error: RefusedError) -> str:
    done = ", ".join(f"{decision.rule} saved {decision.saved_tokens}" for decision in error.decisions)
    shorter = ", and ".join(f"{part.what} by {part.by_tokens} of {part.tokens} tokens" for part in error.parts)
    removable = (
        f" trimtab can remove or shorten {error.removable_tokens} of these tokens itself."
        f" {error.irreducible_tokens} tokens must stay: system messages, tools, the first user message,"
        " the newest messages, and a short summary."
    )
    # OpenAI's own wording, which clients look for.
    return (
        f"This model's maximum context length is {error.window} tokens."
        f" However, your messages resulted in {error.tokens} tokens"
        + (f" after compaction ({done})." if done else ".")
        + f" {error.window - error.limit} tokens of the window are reserved for the completion,"
        f" which leaves a limit of {error.limit} tokens for the prompt."
        f" Prompts of more than {error.hard_limit_tokens} tokens are refused."
        + (removable if error.removable_tokens else "")
        + f" What must stay is too long by {error.excess_tokens} tokens."
        + (f" To fit, shorten {shorter}." if shorter else "")
    )


DROP_TOOLS = "drop_tools"
"""Name of the rule in decisions."""
HELP_REASONS: dict[Addition, str] = {
    "cache_key": "prompt_cache_key, so that the session finds its prompt cache",
    "cache_breakpoint": "a breakpoint of the prompt cache at the end of the summary",
    "cache_control": "markers of the prompt cache",
}
FindMatch = Callable[[str, bytes], PrefixMatch | None]


class Planned(msgspec.Struct, frozen=True):
    """A decoded and planned request; only the summary of `plan.request` is missing.

    sections: of the client's prompt, in our tokens.
    """

    request: Request
    original: Conversation
    policy: Policy
    plan: Plan
    sections: Sections

    @property
    def cleaned(self) -> tuple[Decision, ...]:
        """What was taken out of the request before it was planned, in the model's own tokens."""
        cleaned = self.request.cleaned
        tokens = self.original.tokens + sum(decision.saved_tokens for decision in cleaned)
        return scale_decisions(cleaned, tokens, self.policy.token_ratio) if cleaned else ()

    def tell(self, compacted: "Compacted") -> Story:
        outcome = Outcome(compacted.forwarded, compacted.decisions)
        return tell_story(self.plan, outcome, ratio=self.policy.token_ratio)


class Compacted(msgspec.Struct, frozen=True):
    """The compacted request.

    pieces: the body to send, in pieces; the client's own bytes if no rule acted.
    forwarded: the conversation in that body; its token counts are ours.
    original_tokens, sent_tokens, limit_tokens: in the model's own tokens, as far as its ratio is known.
    original_sections, sent_sections: the sections of which the first two are the sums.
    headers: to send in addition, because of the changes.
    untold: the pieces without what the provider is told of the changes, together with `headers`; None if that is
        nothing.
    note_headers: those of them that belong to a provider's own note in it.
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
    note_headers: tuple[tuple[str, str], ...] = ()

    @property
    def body(self) -> bytes:
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)


def _tells_upstream(planned: Planned, *, is_same: bool) -> bool:
    """Whether the upstream may have seen an answer of the model behind other messages than are sent now.

    A request that only counts tokens names no limit for the completion, so it may be cut later than the session's
    others: from the mark on from which a cut is near, it may differ from them.
    """
    plan, is_count = planned.plan, planned.request.codec.is_count
    if is_same and not is_count:
        return plan.was_otherwise
    return plan.was_otherwise or plan.window.changes_sent or (is_count and plan.window.is_long)


def _mark_kept(conversation: Conversation, keeps: Collection[bytes]) -> Conversation:
    messages = conversation.messages
    hashes = hash_prefixes(messages)
    marked = {at: replace(messages[at - 1], keep=True) for at in range(1, len(hashes)) if hashes[at] in keeps}
    return conversation.edit([marked.get(at, one) for at, one in enumerate(messages, 1)]) if marked else conversation


def _describe(
    planned: Planned,
    pieces: tuple[bytes, ...],
    forwarded: Conversation,
    decisions: tuple[Decision, ...],
    original: Sections,
    sent: Sections,
) -> Compacted:
    """The result of carrying out a plan. What was taken out before belongs to the client's prompt."""
    if planned.request.cleaned:
        cleaned = planned.cleaned
        decisions, original = (*cleaned, *decisions), add_to_system(original, cleaned)
    limit_tokens = planned.plan.model_limit
    return Compacted(pieces, forwarded, decisions, sum(original), sum(sent), limit_tokens, original, sent)


def describe_refused(request: Request, error: RefusedError) -> Compacted:
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


def help_cache(request: Request, compacted: Compacted) -> Compacted:
    """The result with what the provider takes for its prompt cache: `request.cache`.

    Each addition is a decision, and no rule's. The result itself if nothing is added. Raises one of DECODE_ERRORS.
    """
    if not request.cache.adds:
        return compacted
    helped, tokens = request.codec.help_cache(request, compacted.forwarded, compacted.pieces), compacted.sent_tokens
    if not helped.added:
        return compacted
    decisions = (Decision(name, HELP_REASONS[name], tokens, tokens, 0, 0) for name in helped.added)
    return structs.replace(compacted, pieces=helped.pieces, decisions=(*compacted.decisions, *decisions))


class Compactor:
    """Compacts requests with one way of counting. Thread-safe.

    `number` distinguishes it from other compactors that share its `caches`. `measure`: as of `Work`. is_early: its
    vocabulary is not loaded yet, so a text takes milliseconds to count.
    """

    def __init__(
        self,
        count: CountTokens,
        costs: Costs = GENERIC.costs,
        *,
        caches: Caches | None = None,
        number: int = 0,
        measure: CountTokens | None = None,
        is_early: bool = False,
    ) -> None:
        self.count = count
        self.is_early = is_early
        self._number = number
        self._caches = caches = caches or Caches()
        self.counting = Counting(count, caches.known, costs, number, caches.tool_lists)
        self._states = caches.states
        # By `max_chars`; callers use only a few values.
        self._works: dict[int | None, Work] = {
            None: Work(
                count,
                caches.results,
                counter=number,
                sketches=caches.sketches,
                diffs=caches.diffs,
                open_archive=Archive,
                measure=measure,
                drops_calls=costs.drops_calls,
            )
        }

    def uncounted_bytes(self, request: Request) -> int:
        return request.codec.uncounted_bytes(request, self.counting)

    def clean(self, request: Request, unsent: Unsent, find_match: FindMatch = lambda _, __: None) -> Request:
        """The request without what must not be sent, and with the decisions about that; itself if it holds none of it.

        Tools that the transcript has called stay. `find_match` finds, for a dialect, an earlier body that a body
        continues. Raises UndecodableError.
        """
        codec = request.codec
        body, decisions = codec.clean(request, unsent)
        if decisions:
            request = request.reduce_to(codec.read(body, find_match(codec.name, body)), decisions)
        if not unsent.tools or not any(request.fixed):
            return request
        before = codec.decode(request, self.counting)
        body, number = codec.drop_tools(request, before, unsent.tools, self.counting)
        if not number:
            return request
        left = codec.read(body, find_match(codec.name, body))
        saved = before.fixed_tokens - codec.decode(left, self.counting).fixed_tokens
        reason = f"{number} declarations of tools"
        return request.reduce_to(left, (Decision(DROP_TOOLS, reason, before.tokens, before.tokens - saved, 0, 0),))

    def plan(
        self,
        request: Request,
        policy: Policy,
        *,
        cold: Mapping[bytes, ColdCut] = NO_COLD,
        keeps: Collection[bytes] = (),
        tells_compaction: bool | None = None,
        max_chars: int | None = None,
    ) -> Planned:
        """Plan a request. `cold`: the cuts at a cold cache, by prefix. `tells_compaction`: as for the rules' `plan`.

        keeps: the hashes of prefixes whose last messages the client wants kept.

        Raises UndecodableError, and LargeWorkError if more than `max_chars` of results are new.
        """
        original = request.codec.decode(request, self.counting)
        if keeps:
            original = _mark_kept(original, keeps)
        if request.keeps_messages:
            policy = replace(policy, on_exceeded=OnExceeded.FORWARD)
            if find_unpaired(original.messages) is not None:
                original = replace(original, continues=True)
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
        if request.keeps_messages:
            planned = planned.keep_messages()
        sections = self._count_prompt(request.kept_body, planned.original, policy.memory_tags, max_chars)
        return Planned(request, planned.original, policy, planned, sections)

    def apply(self, planned: Planned, summary: Summary | None, *, max_chars: int | None = None) -> Compacted:
        """Carry out a plan. `summary`: the one that the plan asked for; None for the digest.

        Raises RefusedError if the policy refuses the request, UndecodableError if the body cannot be spliced, and
        LargeWorkError if more than `max_chars` of results were not compared before.
        """
        ratio, tags, limit = planned.policy.token_ratio, planned.policy.memory_tags, planned.plan.model_limit
        if summary is not None and summary.note:
            summary = self._stand(planned, summary)
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
            find, cleaned = self._find_marks(tags, max_chars), planned.cleaned
            raise refuse(error, planned.sections, find, limit_tokens=limit, ratio=ratio, cleaned=cleaned) from error
        is_same, request = outcome.conversation is planned.original, planned.request
        original = planned.sections if ratio == 1 else planned.sections.scale(ratio)
        sent, encoded = original, tuple[bytes, ...]((request.body,))
        if not is_same:
            prompt, kept_body = outcome.conversation, request.kept_body
            sent = self._count_prompt(kept_body, prompt, tags, max_chars, is_sent=True).scale(ratio)
            encoded = request.codec.encode(request, planned.original, outcome.conversation)
        adapted = Adapted(encoded)
        if _tells_upstream(planned, is_same=is_same):
            adapted = request.codec.adapt(request, planned.original, outcome.conversation, adapted.pieces)
        decisions = scale_decisions((*outcome.decisions, *adapted.decisions), sum(planned.sections), ratio)
        compacted = _describe(planned, adapted.pieces, outcome.conversation, decisions, original, sent)
        if adapted.headers:
            compacted = structs.replace(compacted, headers=adapted.headers, untold=encoded)
        form = request.codec.provider_note if summary is not None and summary.standing else None
        if form is not None and any(decision.rule == "summarise" for decision in outcome.decisions):
            headers = (*compacted.headers, *form.headers)
            compacted = structs.replace(compacted, headers=headers, note_headers=form.headers)
        return compacted

    def _stand(self, planned: Planned, summary: Summary) -> Summary | None:
        """The provider's own note with its messages; None, which is the digest, if it cannot be read."""
        with suppress(UndecodableError, *DECODE_ERRORS):
            return replace(summary, standing=planned.request.codec.decode_note(summary.note, self.counting))
        return None

    def leave_alone(self, planned: Planned) -> Compacted:
        sections = planned.sections.scale(planned.policy.token_ratio)
        return _describe(planned, (planned.request.body,), planned.original, (), sections, sections)

    def _count_prompt(
        self,
        kept_body: KeptBody | None,
        prompt: Conversation,
        tags: tuple[str, ...],
        max_chars: int | None,
        *,
        is_sent: bool = False,
    ) -> Sections:
        """The sections of a client's prompt, or of what is sent. Of a long one, only the new messages are read."""
        find, messages = self._find_marks(tags, max_chars), prompt.messages
        if kept_body is None:  # so it is short
            return count_sections(prompt, find)
        known = kept_body.counted.get(key := (self._number, tags, is_sent))
        counted = kept_body.counted[key] = count_messages(messages, find, known)
        start = 0 if known is None or known.messages != messages[: len(known.messages)] else len(known.messages)
        note_kinds(messages[start:], drops_calls=self.counting.costs.drops_calls)
        return counted.add_up(prompt)

    def _find_marks(self, tags: tuple[str, ...], max_chars: int | None = None) -> FindMarks:
        return self._caches.marks_by(tags, self.count, self._number, Allowance(max_chars).spend)

    def _allow(self, max_chars: int | None) -> Work:
        work = self._works[None] if max_chars is None else self._works.get(max_chars)
        if work is None:
            work = self._works[max_chars] = structs.replace(self._works[None], max_chars=max_chars)
        return work

    def count_sections(self, request: Request, memory_tags: tuple[str, ...] = MEMORY_TAGS) -> tuple[Sections, Parts]:
        format_tokens = request.codec.count_outside(request, self.counting).format_tokens
        conversation, find = request.codec.decode(request, self.counting), self._find_marks(memory_tags)
        return count_sections(conversation, find), count_parts(conversation, find, format_tokens=format_tokens)

    def ask_behind(
        self, request: Request, prefix: Conversation, wanted: SummaryRequest, question: Question
    ) -> bytes | None:
        """Make the body that asks for a summary after forwarded messages; None if the request does not allow it."""
        return request.codec.ask_behind(request, prefix, question, write_inline_prompt(wanted, self.count))
