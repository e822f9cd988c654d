"""Makes the event of a request from its journey and report.

Law: figures and decisions only, and only in the form that may be logged.
"""

from typing import Any

from proxy.account.history.event import Event, EventCut, EventWindow
from proxy.exchange.attempt import Attempt, Prepared
from proxy.exchange.journey import Journey
from proxy.exchange.report import Report
from rules.conversation import count_leading
from rules.pipeline.plan import Plan
from rules.policy import Policy


def make_event(journey: Journey, report: Report, label: str, *, now: float) -> Event:
    """The event of a request that is over. `label`: of its model in the metrics. `now`: seconds since 1970."""
    return Event(
        **_name(report, label, now=now),
        **_describe_prompt(report),
        **_describe_answer(report, journey),
        **_describe_session(journey.attempt),
    )


# The parts are mappings, because making the event once costs a third of making it four times.


def _name(report: Report, label: str, *, now: float) -> dict[str, Any]:
    arrival, target = report.arrival, report.target
    return {
        "request_id": arrival.request_id,
        "at": now,
        "seconds": report.seconds,
        "endpoint": arrival.endpoint,
        "method": arrival.method,
        "path": arrival.path,
        "status": report.status,
        "outcome": report.outcome,
        "label": label,
        "model": target.shown_model,
        "upstream": target.upstream,
        "client": arrival.tenant.client_name,
        "mode": target.mode,
        "error": "" if report.error is None else report.error.code,
        "reason": "" if report.error is None else str(report.error),
    }


def _describe_prompt(report: Report) -> dict[str, Any]:
    prompt = report.prompt
    if prompt is None:
        return {}
    used = prompt.summary
    return {
        "original_tokens": prompt.original_tokens,
        "sent_tokens": prompt.sent_tokens,
        "limit_tokens": prompt.limit_tokens,
        "original_sections": tuple(prompt.original_sections),
        "sent_sections": tuple(prompt.sent_sections),
        "decisions": prompt.entries,
        "summary_id": "" if used is None else used.id,
        "summary_kind": "" if used is None else used.kind,
        "summary_messages": 0 if used is None else used.messages,
        "summary_instead": "" if used is None else used.instead,
        "is_client_compaction": report.is_client_compaction,
    }


def _describe_answer(report: Report, journey: Journey) -> dict[str, Any]:
    answered, bill, pace = report.answered, report.bill, report.pace
    started_at = report.arrival.started_at
    return {
        "prompt_tokens": answered.prompt_tokens,
        "cached_tokens": answered.cached_tokens,
        "written_tokens": answered.written_tokens,
        "completion_tokens": answered.completion_tokens,
        "is_estimated": answered.is_estimated,
        "prefix_kept": report.prefix_kept,
        "cache_miss": report.cache_miss,
        "idle_seconds": report.idle_seconds,
        "retry": report.retry,
        "overhead_seconds": (journey.sent_at or started_at + report.seconds) - started_at,
        "first_token_seconds": pace.first_at - started_at if pace.chars else None,
        "cost": None if bill is None or bill.cost is None else bill.cost.total,
        "without_cost": None if bill is None or bill.without_cost is None else bill.without_cost.total,
    }


def _describe_session(attempt: Attempt) -> dict[str, Any]:
    """The session and its window, if the request was planned."""
    if not isinstance(attempt, Prepared):
        return {}
    planned = attempt.chosen.planned
    return {
        "session": attempt.call.session,
        "messages": len(planned.original.messages),
        "window": _draw_window(planned.plan, planned.policy),
    }


def _draw_window(plan: Plan, policy: Policy) -> EventWindow:
    """The window, in the model's own tokens. The waters are shares of the room that the head leaves."""
    messages, window = plan.conversation.messages, plan.window
    head = {*range(count_leading(messages)), window.task} - {None}
    head_tokens = plan.conversation.fixed_tokens + sum(messages[index].tokens for index in head if index is not None)
    room_tokens = max(plan.limit - head_tokens, 0)
    high, low = (
        round((head_tokens + room_tokens * share) * policy.token_ratio)
        for share in (policy.high_water, policy.low_water)
    )
    cuts = tuple(EventCut(str(cut.kind), cut.at, cut.made_at) for cut in window.cuts)
    return EventWindow(high, low, window.prune_stop, cuts)
