"""Tell what was done to a request.

Law: pure, and total: it is told from the plan and its outcome, and decides nothing.
"""

from rules.conversation import Outcome
from rules.pipeline.plan import Plan
from rules.pipeline.story.alignment import align
from rules.pipeline.story.changes import scale_changes, trace_changes
from rules.pipeline.story.sentences import tell_all
from rules.pipeline.story.values import Story


def tell_story(plan: Plan, outcome: Outcome, *, ratio: float = 1.0) -> Story:
    """The story of a request: each message that is forwarded differently, and the sentences about it.

    outcome: the conversation that is forwarded, and all decisions in order, also those that are not the plan's. The
        figures of its decisions are in the model's own tokens, as are those of the story.
    ratio: the model's own tokens for each of trimtab's, in which the messages are counted.
    """
    rules = tuple(decision.rule for decision in outcome.decisions)
    if outcome.conversation is plan.original:
        traced = []
    else:
        traced = trace_changes(align(plan, outcome.conversation, frozenset(rules)), rules)
        traced = scale_changes(traced, plan.original.tokens, ratio)
    return Story(tell_all(plan, outcome, traced, ratio), tuple(one.change for one in traced))
