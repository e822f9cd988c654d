"""What a request's last span tells of it.

Law: figures, names and decisions only, in the form that may be logged.
"""

import time

from proxy.exchange.journey import Journey
from proxy.exchange.report import Report
from proxy.state.catalogue.costs import NANODOLLARS
from proxy.telemetry.ledger import Prompt
from proxy.telemetry.tracing.spans import Attributes

FAILED = frozenset({"broken", "aborted"})
"""Outcomes of requests whose answer did not arrive as a whole; the word also names the kind of error."""


def end_trace(journey: Journey, report: Report) -> None:
    """End the spans of a request, at the time of its answer's last byte."""
    last_byte_at = journey.reply.last_byte_at
    error = report.error.code if report.error is not None else report.outcome if report.outcome in FAILED else ""
    seconds_ago = time.monotonic() - last_byte_at if last_byte_at else 0.0
    journey.trace.end(describe(journey, report), error=error, seconds_ago=seconds_ago)


def describe(journey: Journey, report: Report) -> Attributes:
    """The attributes: those of the conventions for generative AI, and trimtab's own."""
    answered, arrival, target = report.answered, report.arrival, report.target
    call, pace = journey.attempt.call, report.pace
    is_stream = call.request.stream if call is not None else journey.reply.is_stream
    told: dict[str, str | int | float | bool | None] = {
        "gen_ai.request.stream": is_stream or None,
        "gen_ai.request.max_tokens": None if call is None else call.request.max_tokens,
        "gen_ai.response.model": journey.response_model,
        "gen_ai.response.time_to_first_chunk": pace.first_at - journey.sent_at if is_stream and pace.chars else None,
        "gen_ai.usage.input_tokens": answered.prompt_tokens,
        "gen_ai.usage.output_tokens": answered.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": answered.cached_tokens,
        "gen_ai.usage.cache_write.input_tokens": answered.written_tokens,
        # The conventions: never false.
        "gen_ai.conversation.compacted": (journey.attempt.outcome == "compacted" and journey.sent_at > 0) or None,
        "http.response.status_code": report.status or None,
        "trimtab.outcome": report.outcome,
        "trimtab.mode": target.mode,
        "trimtab.upstream": target.upstream,
        "trimtab.client": arrival.tenant.client_name,
        "trimtab.retry": report.retry,
        "trimtab.overhead_seconds": journey.sent_at - arrival.started_at if journey.sent_at else None,
        "trimtab.prefix_kept_ratio": report.prefix_kept,
        "trimtab.cache_miss": report.cache_miss,
    }
    bill = report.bill
    if bill is not None and bill.cost is not None and bill.without_cost is not None:
        told |= {
            "trimtab.cost_usd": bill.cost.total / NANODOLLARS,
            "trimtab.cost_without_usd": bill.without_cost.total / NANODOLLARS,
        }
    known = {name: value for name, value in told.items() if value is not None and value != ""}
    return known if report.prompt is None else {**known, **_describe_prompt(report.prompt)}


def _describe_prompt(prompt: Prompt) -> Attributes:
    told: dict[str, str | int | tuple[str, ...]] = {
        "trimtab.tokens.original": prompt.original_tokens,
        "trimtab.tokens.sent": prompt.sent_tokens,
        "trimtab.tokens.saved": max(prompt.original_tokens - prompt.sent_tokens, 0) if prompt.sent_tokens else 0,
        "trimtab.tokens.limit": prompt.limit_tokens,
        "trimtab.rules": tuple(dict.fromkeys(decision.rule for decision in prompt.decisions)),
    }
    if prompt.summary is not None:
        told["trimtab.summary.kind"] = prompt.summary.kind
    return told
