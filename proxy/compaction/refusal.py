"""What a request that cannot fit would cost, and what its client could shorten.

Law: figures and names of parts only, in plain words; never text of the conversation.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace

from proxy.telemetry.ledger import Entry
from rules.conversation import Decision
from rules.pipeline.exceeded import LimitExceededError
from rules.tokens.sections import FindMarks, Sections, count_sections
from rules.tokens.shrink import Part, list_parts, share_excess


class RefusedError(LimitExceededError):
    """A LimitExceededError in the model's own tokens, with what the prompt consists of.

    original_sections, sections: before and after compaction.
    parts: of the prompt after compaction, in plain words.
    """

    original_sections = Sections()
    sections = Sections()
    parts: Sequence[Part] = ()

    @property
    def excess_tokens(self) -> int:
        """How much shorter the prompt would have to be."""
        return max(self.tokens - self.limit, 1)


def refuse(
    error: LimitExceededError, original: Sections, find: FindMarks, *, limit_tokens: int, ratio: float
) -> RefusedError:
    """Convert an error to the model's own tokens.

    original: the sections of the client's prompt, in our tokens.
    """
    decisions = scale_decisions(error.decisions, error.original_tokens, ratio)
    original_tokens, tokens = round(ratio * error.original_tokens), round(ratio * error.tokens)
    refused = RefusedError(original_tokens, tokens, limit_tokens, window=error.window, decisions=decisions)
    refused.original_sections = original.scale(ratio)
    if error.conversation is not None:
        refused.sections = count_sections(error.conversation, find).scale(ratio)
        refused.parts = list_parts(error.conversation, find, ratio)
    return refused


def add_cleaned(error: RefusedError, decisions: Sequence[Decision]) -> RefusedError:
    """The error with what was taken out of the request before; `decisions` are in the model's own tokens."""
    if not decisions:
        return error
    original_tokens = error.original_tokens + sum(decision.saved_tokens for decision in decisions)
    every = (*decisions, *error.decisions)
    added = RefusedError(original_tokens, error.tokens, error.limit, window=error.window, decisions=every)
    added.original_sections = add_to_system(error.original_sections, decisions)
    added.sections, added.parts = error.sections, error.parts
    return added


def add_to_system(sections: Sections, decisions: Iterable[Decision]) -> Sections:
    """The sections with what the decisions took out of the declarations of tools."""
    return sections._replace(system=sections.system + sum(decision.saved_tokens for decision in decisions))


def scale_decisions(decisions: Iterable[Decision], original_tokens: int, ratio: float) -> tuple[Decision, ...]:
    """Decisions in the model's own tokens, each with the size of the whole prompt before and after it.

    original_tokens: the prompt before the first of them, in our tokens. Some rules tell the size of what they changed.
    """
    tokens, scaled = original_tokens, []
    for decision in decisions:
        before, tokens = round(ratio * tokens), tokens - decision.saved_tokens
        scaled.append(replace(decision, tokens_before=before, tokens_after=round(ratio * tokens)))
    return tuple(scaled)


def scale_cleaned(cleaned: Sequence[Decision], left_tokens: int, ratio: float) -> tuple[Decision, ...]:
    """The decisions about what was taken out of a request before it was planned, as `scale_decisions` does.

    left_tokens: what is left of the prompt, in our tokens.
    """
    return scale_decisions(cleaned, left_tokens + sum(decision.saved_tokens for decision in cleaned), ratio)


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
        "excess_tokens": error.excess_tokens,
        "sections": sections,
        "decisions": [entry.explain() for entry in entries],
        "shrink": [asdict(part) for part in share_excess(error.parts, error.excess_tokens)],
    }


def describe_excess(error: RefusedError) -> str:
    """The message of the answer to a refused request."""
    done = ", ".join(f"{decision.rule} saved {decision.saved_tokens}" for decision in error.decisions)
    shared = share_excess(error.parts, error.excess_tokens)
    shorter = ", and ".join(f"{part.what} by {part.by_tokens} of its {part.tokens} tokens" for part in shared)
    # OpenAI's own wording, which clients look for.
    return (
        f"This model's maximum context length is {error.window} tokens."
        f" However, your messages resulted in {error.tokens} tokens after compaction ({done or 'nothing helped'})."
        f" {error.window - error.limit} tokens of the window are reserved for the completion,"
        f" which leaves a limit of {error.limit} tokens for the prompt: {error.excess_tokens} tokens too many."
        " Please reduce the length of the newest messages, or of what is always kept:"
        " system messages, tools, the first user message."
        + (f" To fit, shorten for example {shorter}." if shorter else "")
    )
