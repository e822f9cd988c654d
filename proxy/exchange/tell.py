"""Fills the outcome of a request that is over, and hands it to all who keep it.

Law: an outcome is made once. Telling must cost the next request nothing: figures are taken at once, text only if
somebody wants it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from trimtab.proxy.account.outcome import Cut, Outcome, Window, name_error, read_head, write_attributes
from trimtab.proxy.account.recorder import Recorder, fail_open
from trimtab.proxy.catalogue.prices import PER_TOKEN
from trimtab.proxy.compaction.compactor import Compacted
from trimtab.proxy.exchange.answer import NOTHING_LEARNED, Learned
from trimtab.proxy.exchange.arrival import Arrival
from trimtab.proxy.exchange.attempt import MAX_ATTEMPTS, NO_ATTEMPT, Attempt, Call, Prepared
from trimtab.proxy.exchange.early_answer import Opening
from trimtab.proxy.exchange.record import Over, record, tell_text, tell_title
from trimtab.proxy.exchange.route import NO_TARGET, Target
from trimtab.proxy.exchange.services import Services
from trimtab.proxy.exchange.trace import Trace
from trimtab.proxy.http.errors import ContextExceededError, ProxyError
from trimtab.proxy.http.headers import OUTCOME_HEADER, Headers
from trimtab.proxy.http.relay import Reply
from trimtab.proxy.telemetry.ledger import Entry, UsedSummary
from trimtab.proxy.telemetry.metrics import OTHER
from trimtab.proxy.wire.codec import Request
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.policy import Policy
from trimtab.rules.tokens.sections import Sections

_NO_SECTIONS = Sections()
MAX_TOLD_ENTRIES = 32
"""In a response header. Chosen: two attempts have some 25; so it has 4 KiB, and clients refuse heads above 8 KiB."""
NO_TOKENS: Mapping[str, int] = {}
_NOTHING: Mapping[str, Any] = {}


class Finished(msgspec.Struct, frozen=True):
    """One request that is over, with what was found out of it.

    attempt: the last one that was made. request: what the client sent; None if it was not decoded.
    sent_at: time of the first attempt on the monotonic clock; 0.0 if nothing was sent.
    is_hopeless: the client gets the refusal, because nothing shorter could be sent.
    """

    arrival: Arrival
    reply: Reply
    target: Target = NO_TARGET
    attempt: Attempt = NO_ATTEMPT
    request: Request | None = None
    trace: Trace | None = None
    sent_at: float = 0.0
    opening: Opening | None = None
    learned: Learned = NOTHING_LEARNED
    is_hopeless: bool = False


Note = Callable[[Finished], None]
"""Takes what was found out of a request, also if it ends with an error; the last note counts."""


def tell(services: Services, finished: Finished, error: ProxyError | None, *, has_failed: bool) -> None:
    """Pass on what became of a request to all who keep it.

    error: ours, which the client got. has_failed: by an error that nobody expected.
    """
    recorder, history, recordings = services.recorder, services.history, services.recordings
    is_kept = history is not None or recordings is not None
    outcome = make_outcome(recorder, finished, error, has_failed=has_failed, is_kept=is_kept)
    recorder.record(outcome)
    take = partial(Over, services, finished.arrival, finished.request, finished.attempt, outcome)
    if finished.trace is not None:
        with fail_open(recorder, outcome.request_id, "tell"):
            last_byte_at = finished.reply.last_byte_at
            seconds_ago = time.monotonic() - last_byte_at if last_byte_at else 0.0
            finished.trace.end(write_attributes(outcome), error=name_error(outcome), seconds_ago=seconds_ago)
    if history is not None and outcome.session and outcome.session not in history.titled:
        with fail_open(recorder, outcome.request_id, "tell"):
            tell_title(take())
    if history is not None and history.keeps_text:
        with fail_open(recorder, outcome.request_id, "tell"):
            tell_text(take())
    # One that was refused by its head alone is not recorded: anybody can send many of those.
    if recordings is not None and (error is None or finished.target != NO_TARGET):
        with fail_open(recorder, outcome.request_id, "tell"):
            record(take(), recordings)


def make_outcome(
    recorder: Recorder, finished: Finished, error: ProxyError | None, *, has_failed: bool = False, is_kept: bool = False
) -> Outcome:
    """What became of a request; see `tell`. is_kept: with what only the dashboard and recordings show."""
    arrival, target, attempt, sent_at = finished.arrival, finished.target, finished.attempt, finished.sent_at
    opening, status = finished.opening, finished.reply.status if error is None else error.status
    # A request that is only counted is sent again to be answered; its tokens are recorded then.
    prompt = None if finished.request is not None and finished.request.codec.is_count else attempt.compacted
    seconds, went_at = time.monotonic() - arrival.started_at, _when_sent(sent_at, error)
    told = _NOTHING if prompt is None else _describe_prompt(attempt, prompt, went_at)
    is_again = attempt.call is not None and attempt.call.attempt == MAX_ATTEMPTS
    label = recorder.metrics.label_model(target.model, target.match)
    is_refused = finished.is_hopeless or (is_again and opening is not None and opening.overflow is not None)
    if label == OTHER and status == 200 and prompt is not None and not is_refused:
        label = recorder.metrics.vouch_for(target.vouched)
    return Outcome(
        request_id=arrival.request_id,
        at=time.time(),
        endpoint=arrival.endpoint,
        method=arrival.method,
        path=arrival.path,
        status=status,
        outcome=_name_outcome(finished, error, status, has_failed=has_failed),
        seconds=seconds,
        client=arrival.tenant.client_name,
        upstream=target.upstream,
        model=target.shown_model,
        match=target.match,
        mode=target.mode,
        label=label,
        retry=_name_retry(finished, error, is_again=is_again),
        has_prompt=prompt is not None,
        is_uncompacted=error is None and arrival.passed is not None and arrival.passed.has_prompt,
        phase_seconds=attempt.seconds,
        overhead_seconds=sent_at - arrival.started_at if sent_at else seconds,
        **(_NOTHING if error is None else _describe_error(error)),
        **told,
        **(_describe_session(recorder, finished, told.get("sent_tokens", 0)) if is_kept else _NOTHING),
        **_describe_answer(finished, went_at),
    )


# The parts are mappings, because to make the outcome once costs a part of making it four times. They cost no call.


def _describe_error(error: ProxyError) -> Mapping[str, Any]:
    cost = error.context_cost if isinstance(error, ContextExceededError) else None
    return {"error": error.code, "reason": str(error), "context_cost": cost}


def _describe_prompt(attempt: Attempt, compacted: Compacted, sent_at: float) -> Mapping[str, Any]:
    sent_tokens, sent_sections = find_sent(attempt, compacted, sent_at)
    used = attempt.summary if isinstance(attempt, Prepared) else None
    told = {
        "original_tokens": compacted.original_tokens,
        "limit_tokens": compacted.limit_tokens,
        "original_sections": tuple(compacted.original_sections),
        "sent_tokens": sent_tokens,
        "sent_sections": tuple(sent_sections),
        "decisions": () if attempt.call is None else attempt.call.ledger.entries,
        "planned": compacted.decisions,
        "is_client_compaction": isinstance(attempt, Prepared) and attempt.chosen.planned.plan.is_client_compaction,
    }
    if used is not None:
        told["summary_id"], told["summary_kind"] = used.id, used.kind
        told["summary_messages"], told["summary_instead"] = used.messages, used.instead
    return told


def _describe_session(recorder: Recorder, finished: Finished, sent_tokens: int) -> Mapping[str, Any]:
    attempt = finished.attempt
    if not isinstance(attempt, Prepared):
        return _NOTHING
    planned = attempt.chosen.planned
    with fail_open(recorder, finished.arrival.request_id, "tell"):
        return {
            "session": attempt.call.session,
            "messages": len(planned.original.messages),
            "window": _draw_window(planned.plan, planned.policy),
            "cache_price": _price_cache(attempt.call, sent_tokens, finished.learned.answered.written_tokens),
        }
    return _NOTHING


def _describe_answer(finished: Finished, sent_at: float) -> Mapping[str, Any]:
    arrival, reply, call = finished.arrival, finished.reply, finished.attempt.call
    answered, observed, bill = finished.learned.answered, finished.learned.observed, finished.learned.bill
    pace, started_at, last_byte_at = reply.pace, arrival.started_at, reply.last_byte_at
    has_text, is_stream = pace.chars > 0, reply.is_stream if call is None else call.request.stream
    return {
        "prompt_tokens": answered.prompt_tokens,
        "cached_tokens": answered.cached_tokens,
        "written_tokens": answered.written_tokens,
        "completion_tokens": answered.completion_tokens,
        "is_estimated": answered.is_estimated,
        "prefix_kept": observed.prefix_kept,
        "cache_miss": observed.cache_miss,
        "idle_seconds": None if call is None or call.idle_seconds is None else round(call.idle_seconds, 1),
        "first_token_seconds": pace.first_at - started_at if has_text else None,
        "first_chunk_seconds": pace.first_at - sent_at if has_text and is_stream else None,
        "tokens_per_second": pace.tokens_per_second(answered.streamed_tokens or 0) if has_text else None,
        "upstream_seconds": (last_byte_at - sent_at if last_byte_at and sent_at and arrival.passed is None else None),
        "upstream_overhead_seconds": sent_at - started_at if sent_at else None,
        "is_stream": is_stream,
        "max_tokens": None if call is None else call.request.max_tokens,
        "response_model": finished.learned.response_model,
        "recall_rounds": finished.learned.recall_rounds,
        "recall_prompt_tokens": finished.learned.recall_prompt_tokens,
        "is_compacted": finished.attempt.outcome == "compacted" and sent_at > 0,
        "bill": bill,
        "cost": None if bill is None or bill.cost is None else bill.cost.total,
        "without_cost": None if bill is None or bill.without_cost is None else bill.without_cost.total,
    }


def _draw_window(plan: Plan, policy: Policy) -> Window:
    """The window, in the model's own tokens. The waters are shares of the room that the head leaves."""
    messages, window = plan.conversation.messages, plan.window
    head_tokens = plan.conversation.fixed_tokens
    for index in {*range(plan.leading), window.task}:
        head_tokens += 0 if index is None else messages[index].tokens
    room_tokens = max(plan.limit - head_tokens, 0)
    return Window(
        high_tokens=round((head_tokens + room_tokens * policy.high_water) * policy.token_ratio),
        low_tokens=round((head_tokens + room_tokens * policy.low_water) * policy.token_ratio),
        prune_stop=window.prune_stop,
        cuts=tuple([Cut(str(cut.kind), cut.at, cut.made_at) for cut in window.cuts]) if window.cuts else (),
    )


def _name_outcome(finished: Finished, error: ProxyError | None, status: int, *, has_failed: bool) -> str:
    """The metrics' label `outcome`. A broken or aborted request counts as such, whatever was done to it."""
    if finished.reply.broken or has_failed:
        return "broken"
    if finished.reply.client_left or not status:
        return "aborted"
    return finished.attempt.outcome if error is None else error.outcome


def _name_retry(finished: Finished, error: ProxyError | None, *, is_again: bool) -> str:
    """The metrics' label for the second attempt; `hopeless` if nothing shorter could be sent; empty if not needed."""
    opening = finished.opening
    if not is_again:
        return "hopeless" if finished.is_hopeless else ""
    if error is not None or opening is None:
        return "aborted" if error is None else "failed"
    if opening.overflow is not None:
        return "refused"
    return "recovered" if opening.status == 200 else "failed"


def _price_cache(call: Call, sent_tokens: int, written_tokens: int | None) -> float | None:
    """What a prompt token costs more if the prompt cache does not have it, in nanodollars; None if not known."""
    if not call.view.price_list.is_in_dollars:
        return None
    tier = call.view.price_list.at(sent_tokens)
    paid = tier.cache_write if written_tokens else tier.input
    return max(paid - tier.cached_input, 0.0) * PER_TOKEN


def write_headers(arrival: Arrival, attempt: Attempt, sent_at: float, error: ProxyError | None = None) -> Headers:
    call, compacted, planned, used = attempt.call, attempt.compacted, None, None
    overhead_seconds = (sent_at or time.monotonic()) - arrival.started_at
    outcome = attempt.outcome if error is None else error.outcome
    if isinstance(attempt, Prepared):
        planned, used = attempt.chosen.planned, attempt.summary
        if planned.original.continues:
            outcome += ";history=upstream"
        if planned.plan.is_client_compaction:
            outcome += ";compaction=client"
    budget = [("x-trimtab-budget", arrival.budget)] if arrival.budget else []
    if call is None or compacted is None:
        return [*write_own_headers(arrival.request_id, overhead_seconds, outcome), *budget]
    sent_tokens, sent_sections = find_sent(attempt, compacted, _when_sent(sent_at, error))
    tokens = {"original": compacted.original_tokens, "sent": sent_tokens, "limit": compacted.limit_tokens}
    is_too_long = compacted.original_tokens > compacted.limit_tokens  # of a refused request, which has no plan
    if is_too_long if planned is None else planned.plan.window.is_near:
        tokens["high_water"] = True
    if head := read_head(compacted.original_sections, compacted.limit_tokens):
        tokens["head"] = round(100 * head)
    headers = write_own_headers(arrival.request_id, overhead_seconds, outcome, tokens)
    told = write_ledger_headers(compacted.original_sections, sent_sections, call.ledger.entries, used)
    return [*headers, *told, *budget]


def write_own_headers(
    request_id: str,
    overhead_seconds: float,
    outcome: str,
    tokens: Mapping[str, int] = NO_TOKENS,
) -> Headers:
    """Our own headers of a response, times in milliseconds. outcome, tokens: by RFC 9651, where True is a boolean."""
    timing = f"trimtab;dur={overhead_seconds * 1000:.1f}"
    headers = [("x-trimtab-request-id", request_id), ("Server-Timing", timing), (OUTCOME_HEADER, outcome)]
    if tokens:
        told = ", ".join([f"{name}={'?1' if number is True else number}" for name, number in tokens.items()])
        headers.append(("x-trimtab-tokens", told))
    return headers


def write_ledger_headers(
    original: Sections, sent: Sections, entries: Sequence[Entry], summary: UsedSummary | None
) -> Headers:
    """The headers that say what became of the prompt: sections before and after, the last MAX_TOLD_ENTRIES entries."""
    named = zip(Sections._fields, original, sent, strict=True)
    told = ", ".join([f"{name};original={original};sent={sent}" for name, original, sent in named])
    headers = [("x-trimtab-sections", told)]
    if entries:
        headers.append(("x-trimtab-decisions", ", ".join(map(_write_entry, entries[-MAX_TOLD_ENTRIES:]))))
    if summary is not None:
        value = f'"{summary.id}";kind={summary.kind};messages={summary.messages}'
        headers.append(("x-trimtab-summary", f"{value};instead={summary.instead}" if summary.instead else value))
    return headers


def _write_entry(entry: Entry) -> str:
    tokens = f"saved={entry.saved_tokens};before={entry.tokens_before};after={entry.tokens_after}"
    return f"{entry.rule};{tokens};limit={entry.limit_tokens};attempt={entry.attempt}"


def _when_sent(sent_at: float, error: ProxyError | None) -> float:
    return 0.0 if error is not None and error.is_unsent else sent_at


def find_sent(attempt: Attempt, compacted: Compacted, sent_at: float) -> tuple[int, Sections]:
    """The tokens of what was sent, and their sections; 0 if nothing was."""
    if not sent_at:
        return 0, _NO_SECTIONS
    if attempt.call is not None and attempt.call.route.target.mode != "enforce":
        return compacted.original_tokens, compacted.original_sections
    return compacted.sent_tokens, compacted.sent_sections
