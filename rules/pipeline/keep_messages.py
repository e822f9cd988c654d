"""Changes a plan so that the number of messages stays: for callers that accept nothing else, such as gateways.

Law: pure. The cut stays where it is, so that what is forwarded stays the same from request to request.
"""

from dataclasses import replace

from msgspec import structs

from trimtab.rules.pipeline.plan import Plan


def keep_messages(plan: Plan) -> Plan:
    """The plan with placeholders for the results before its cut, instead of a summary of everything before it.

    What is forwarded is then longer than the plan says: calls and texts before the cut stay.
    """
    window, cut = plan.window, plan.window.cut
    if cut is not None:
        spared = (*cut.kept_steps, *(step for step in window.spared if step[0] >= cut.at))
        window = structs.replace(window, cuts=(), prune_stop=max(cut.at, window.prune_stop), spared=spared)
    return replace(plan, window=window, request=None, prefetch=None)
