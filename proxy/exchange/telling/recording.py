"""Makes the recording of a request: what arrived, what was sent, and everything that its plan depended on.

Law: no credential. Whatever takes time runs in the writer's thread: on the event loop, only references are taken.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import islice

import msgspec

from proxy.account.history.event import Event
from proxy.account.recordings.format import (
    SUMMARY_ENDPOINT,
    Circumstances,
    Counted,
    RecordedCall,
    RecordedFacts,
    RecordedRequest,
    RecordedSending,
    RecordedSummary,
    Recording,
    encode,
    write_body,
)
from proxy.account.recordings.writing import Draft, Recordings
from proxy.account.statistics.till import Till
from proxy.compaction.pool import Compactors
from proxy.config.schema import Config
from proxy.exchange.arrival import ID_BYTES
from proxy.exchange.attempt import Attempt, Call, Prepared
from proxy.exchange.journey import NO_TARGET, Journey
from proxy.exchange.report import Recorder, Report, fail_open
from proxy.exchange.services import Services
from proxy.exchange.telling.hidden import Hidden, find_hidden
from proxy.exchange.telling.redact import redact_body, redact_value
from proxy.http.credentials import is_credential, plain
from proxy.memory import KEPT_FACTOR
from proxy.state.catalogue.costs import price
from proxy.state.summaries.calls import SummaryCall
from proxy.wire.codec import Request
from rules.conversation import Outcome
from rules.pipeline.story.tell import tell_story

KEPT_HEADERS = frozenset(
    {
        "accept", "content-encoding", "content-type", "user-agent",
        "anthropic-beta", "anthropic-version", "openai-beta",
        "x-trimtab-mode", "x-trimtab-profile",
    }
)  # fmt: skip
"""The client's headers that are recorded: those that decide how a request is read and compacted, and who made it."""
MAX_COLD = 256
"""Cuts at a cold cache that are recorded of a request without a plan. Chosen: more than one session has."""


@dataclass(frozen=True, slots=True)
class _Served:
    """A request that is over. was_sent: something of it was sent to the upstream."""

    event: Event
    request: Request | None
    attempt: Attempt
    report: Report
    was_sent: bool
    compactors: Compactors
    config: Config


def record(services: Services, recordings: Recordings, journey: Journey, report: Report, event: Event) -> None:
    """Have a request recorded, except one that was refused by its head alone: anybody can send many of those."""
    request, attempt = journey.request, journey.attempt
    if report.error is not None and report.target == NO_TARGET:
        return
    served = _Served(event, request, attempt, report, bool(journey.sent_at), services.compactors, services.config)
    size_bytes = 0 if request is None else KEPT_FACTOR * len(request.body)
    size_bytes += sum(map(len, attempt.body or ()))
    make = partial(_make_content, services.recorder, served)
    recordings.add(Draft(event.at, event.request_id, size_bytes, make))


def end_call(till: Till, recordings: Recordings | None, call: SummaryCall, seconds: float) -> None:
    """Book what a call for a summary cost, and have it recorded."""
    if call.charged is not None:
        charged, payer = call.charged
        till.charge_summary(call.model, payer.client_name, charged, payer.prices, payer.session)
    if recordings is not None:
        _record_call(recordings, call, seconds)


def _record_call(recordings: Recordings, call: SummaryCall, seconds: float) -> None:
    tokens, payer = call.charged or (None, None)
    prices = None if payer is None else payer.prices
    cost = None if tokens is None or prices is None else price(tokens, prices)
    ended = RecordedCall(
        label=call.model,
        form=call.form,
        result=call.result,
        seconds=seconds,
        prompt_tokens=call.prompt_tokens,
        completion_tokens=call.completion_tokens,
        charged=tokens,
        cost=None if cost is None else cost.total,
        client="" if payer is None else payer.client_name,
    )
    name, at = os.urandom(ID_BYTES).hex(), time.time()
    event = Event(name, at, seconds, SUMMARY_ENDPOINT, "POST", "", call.status or 0, call.result, label=call.model)
    recordings.add(Draft(at, name, 0, partial(encode, Recording(event, call=ended)), is_call=True))


def _make_content(recorder: Recorder, served: _Served) -> bytes | None:
    """The content of the file; None after a fault, which is counted."""
    with fail_open(recorder, served.event.request_id, "record"):
        return encode(_make_recording(served))
    return None


def _make_recording(served: _Served) -> Recording:
    attempt, report, event = served.attempt, served.report, served.event
    prompt, hidden = report.prompt, find_hidden(served.config, report.arrival)
    recording = Recording(
        event=event,
        request=_make_request(served),
        sent=_make_sending(served),
        circumstances=None if attempt.call is None else _make_circumstances(served, attempt.call),
        summary=_make_summary(attempt),
        story=_make_story(attempt),
        counted=Counted(prompt is not None, bool(prompt and prompt.sent_tokens), report.counted_decisions),
        bill=report.bill,
    )
    return _add_bodies(_redact(recording, hidden), served, hidden)


def _redact(recording: Recording, hidden: Hidden) -> Recording:
    """The recording without credentials, in whatever member they are."""
    values = msgspec.to_builtins(recording, str_keys=True)
    told = {name: redact_value(value, hidden, with_numbers=False) for name, value in values.items()}
    return msgspec.convert(told, Recording, str_keys=True)


def _add_bodies(recording: Recording, served: _Served, hidden: Hidden) -> Recording:
    """The recording with what arrived and what was sent."""
    arrived, attempt = served.request, served.attempt
    request, sent = recording.request, recording.sent
    if arrived is None or request is None:
        return recording
    body = redact_body(arrived.body, hidden)
    is_redacted = body != arrived.body
    if sent is not None and attempt.body is not None:
        forwarded = b"".join(attempt.body)
        if forwarded != arrived.body:
            told = redact_body(forwarded, hidden)
            is_redacted = is_redacted or told != forwarded
            sent = replace(sent, body=write_body(told))
    return replace(recording, request=replace(request, body=write_body(body), is_redacted=is_redacted), sent=sent)


def _make_request(served: _Served) -> RecordedRequest:
    """The head of the request; only names that hold no credential."""
    arrival, request = served.report.arrival, served.request
    headers = ((name.lower(), value) for name, value in arrival.end_to_end if not is_credential(plain(name)))
    kept = {name: value for name, value in headers if name in KEPT_HEADERS}
    dialect = "" if arrival.passed is not None else arrival.endpoint
    is_count = request is not None and request.codec.is_count
    return RecordedRequest(dialect, arrival.path, served.report.target.shown_model, kept, is_count=is_count)


def _make_sending(served: _Served) -> RecordedSending | None:
    if not served.was_sent:
        return None
    attempt = served.attempt
    headers = {} if attempt.compacted is None or attempt.body is None else dict(attempt.compacted.headers)
    return RecordedSending(headers=headers)


def _make_circumstances(served: _Served, call: Call) -> Circumstances:
    attempt = served.attempt
    view, settings, upstream = call.view, call.route.settings, call.route.upstream
    facts = {field.name: getattr(view.facts, field.name) for field in fields(RecordedFacts)}
    plan = attempt.chosen.planned.plan if isinstance(attempt, Prepared) else None
    return Circumstances(
        config=settings.model_dump(mode="json", by_alias=True, exclude_unset=True),
        policy=view.policy,
        believed_tokens=view.believed_tokens,
        facts=RecordedFacts(**facts),
        prices=view.price_list,
        upstream_url=upstream.base_url,
        count=settings.count,
        vocabulary=served.compactors.name_vocabulary(settings, call.route.target.model),
        request_max_tokens=call.request.max_tokens,
        local_items=settings.local_items,
        strips_nonces=upstream.strips_nonces,
        drop_tools=settings.drop_tools,
        cleaned=call.request.cleaned,
        cold=_find_cold(call, attempt),
        put_off=plan is not None and plan.is_put_off,
        cuts=0 if plan is None else len(plan.window.cuts),
        is_test=isinstance(attempt, Prepared) and attempt.is_test,
        attempt=call.attempt,
        cache_adds=tuple(sorted(call.request.cache.adds)),
    )


def _find_cold(call: Call, attempt: Attempt) -> Mapping[str, str]:
    """The cuts at a cold cache of this session; without a plan, all that are known of this client, some of them."""
    if not isinstance(attempt, Prepared):
        return {prefix.hex(): str(kind) for prefix, kind in islice(call.cold.items(), MAX_COLD)}
    plan = attempt.chosen.planned.plan
    return {plan.hashes[at].hex(): str(kind) for at, kind in plan.cold.items()}


def _make_summary(attempt: Attempt) -> RecordedSummary | None:
    if not isinstance(attempt, Prepared) or attempt.chosen.text is None:
        return None
    text, used = attempt.chosen.text, attempt.summary
    kind = "summarise" if text.by_model else "digest"
    return RecordedSummary("" if used is None else used.id, kind, text.by_model, text.text)


def _make_story(attempt: Attempt) -> tuple[str, ...]:
    if not isinstance(attempt, Prepared):
        return ()
    planned, compacted = attempt.chosen.planned, attempt.compacted
    outcome = Outcome(compacted.forwarded, compacted.decisions)
    story = tell_story(planned.plan, outcome, ratio=planned.policy.token_ratio)
    return tuple(sentence.text for sentence in story.sentences)
