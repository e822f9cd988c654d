"""Plans a recorded request again, as it was planned then.

Law: the same body and circumstances give the same plan. A recording of another version of trimtab may give another.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from proxy.compaction.compactor import Compacted, Compactor, Planned, describe_refused
from proxy.compaction.pool import load_compactor
from proxy.compaction.refusal import RefusedError, add_cleaned, scale_cleaned
from proxy.state.recordings.format import Circumstances, Recording
from proxy.wire.codec import Request, UndecodableError, Unsent
from proxy.wire.dialects import name_codec
from rules.conversation import Decision
from rules.summary.request import Summary
from rules.window.state import ColdCut

FindCompactor = Callable[[str, str], Compactor]
"""Finds the compactor of a model and a vocabulary."""


@dataclass(frozen=True, slots=True)
class Again:
    """A recorded request, planned again.

    is_refused: the policy refuses the request; then `compacted` has the figures of the refusal.
    """

    planned: Planned
    compacted: Compacted
    is_refused: bool = False


@cache
def load_once(model: str, vocabulary: str) -> Compactor:
    """The compactor of a model, made once. Raises VocabularyError."""
    return load_compactor(model, vocabulary=vocabulary or "auto")


def plan_again(recording: Recording, find: FindCompactor = load_once) -> Again | None:
    """Plan a recorded request with its own circumstances; None if it was not planned, or its body is not recorded.

    Raises VocabularyError, and UndecodableError if the body was changed so much that it cannot be read.
    """
    circumstances, body = recording.circumstances, recording.received_body
    if circumstances is None or body is None or recording.request is None or recording.request.is_count:
        return None
    model = recording.request.model
    compactor = find(model, circumstances.vocabulary)
    request = name_codec(recording.request.dialect).read(body)
    request, cleaned = take_out(replace(request, model=request.model or model), compactor, circumstances)
    cold = {bytes.fromhex(prefix): ColdCut(kind) for prefix, kind in circumstances.cold.items()}
    planned = _put_off(compactor.plan(request, circumstances.policy, cold=cold), circumstances)
    scaled = scale_cleaned(cleaned, planned.original.tokens, planned.policy.token_ratio)
    summary = recording.summary
    text = None if summary is None else Summary(summary.text, summary.by_model)
    try:
        compacted = compactor.apply(planned, text).add_cleaned(scaled)
    except RefusedError as error:
        return Again(planned, describe_refused(request, add_cleaned(error, scaled)), is_refused=True)
    return Again(planned, compacted)


def take_out(
    request: Request, compactor: Compactor, circumstances: Circumstances
) -> tuple[Request, tuple[Decision, ...]]:
    """The request without what was taken out before it was planned, and the decisions about that.

    Raises UndecodableError.
    """
    unsent = Unsent(circumstances.local_items, nonces=circumstances.strips_nonces)
    body, cleaned = request.codec.clean(request, unsent)
    if cleaned:
        request = replace(request.codec.read(body), model=request.model)
    request, dropped = compactor.drop_tools(request, circumstances.drop_tools)
    return request, (*cleaned, *dropped)


def _put_off(planned: Planned, circumstances: Circumstances) -> Planned:
    """The plan without the cuts whose summaries were not there yet."""
    plan = planned.plan
    while circumstances.put_off and len(plan.window.cuts) > circumstances.cuts:
        earlier = plan.put_off()
        if earlier is None:
            message = "the recorded cuts are not those of this plan"
            raise UndecodableError(message)
        plan = earlier
    return planned if plan is planned.plan else replace(planned, plan=plan)
