"""What a request that cannot fit would cost, and what its client could shorten.

Law: figures and names of parts only, in plain words; never text of the conversation.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from math import ceil

from proxy.telemetry.ledger import Entry
from rules.conversation import Decision
from rules.pipeline.exceeded import LimitExceededError
from rules.tokens.sections import FindMarks, Sections, count_sections
from rules.tokens.shrink import Part, list_parts, share_excess


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
        "irreducible_tokens": error.irreducible_tokens,
        "removable_tokens": error.removable_tokens,
        "refused_above_tokens": error.hard_limit_tokens,
        "excess_tokens": error.excess_tokens,
        "sections": sections,
        "decisions": [entry.explain() for entry in entries],
        "shrink": [asdict(part) for part in error.parts],
    }


def describe_excess(error: RefusedError) -> str:
    """The message of the answer to a refused request."""
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
