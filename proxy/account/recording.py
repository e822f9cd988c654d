"""Makes the recording of a request: what arrived, what was sent, and everything that its plan depended on.

Law: no credential. Whatever takes time runs in the writer's thread: on the event loop, only references are taken.
"""

import os
import time
from dataclasses import replace
from functools import partial

import msgspec

from proxy.account.outcome import ID_BYTES, Outcome, keep
from proxy.account.recorder import Recorder, fail_open
from proxy.account.recordings.format import (
    SUMMARY_ENDPOINT,
    Counted,
    RecordedCall,
    RecordedRequest,
    RecordedSending,
    RecordedSummary,
    Recording,
    encode,
    write_body,
)
from proxy.account.recordings.writing import Draft, Recordings
from proxy.account.redact import Hidden, find_hidden, redact_body, redact_value
from proxy.account.served import CarriedOut, Served
from proxy.account.statistics.till import Till
from proxy.http.credentials import is_credential, plain
from proxy.memory import KEPT_FACTOR
from proxy.state.catalogue.costs import price
from proxy.state.summaries.calls import SummaryCall
from rules.pipeline.story import tell_story

KEPT_HEADERS = frozenset(
    {
        "accept", "content-encoding", "content-type", "user-agent",
        "anthropic-beta", "anthropic-version", "openai-beta",
        "x-trimtab-mode", "x-trimtab-profile",
    }
)  # fmt: skip
"""The client's headers that are recorded: those that decide how a request is read and compacted, and who made it."""


def record(recorder: Recorder, recordings: Recordings, served: Served) -> None:
    """Have a request recorded."""
    request, outcome = served.request, served.outcome
    size_bytes = 0 if request is None else KEPT_FACTOR * len(request.body)
    size_bytes += sum(map(len, served.body or ()))
    recordings.add(Draft(outcome.at, outcome.request_id, size_bytes, partial(_make_content, recorder, served)))


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
    outcome = Outcome(name, at, SUMMARY_ENDPOINT, "POST", "", call.status or 0, call.result, seconds, label=call.model)
    recordings.add(Draft(at, name, 0, partial(encode, Recording(outcome, call=ended)), is_call=True))


def _make_content(recorder: Recorder, served: Served) -> bytes | None:
    """The content of the file; None after a fault, which is counted."""
    with fail_open(recorder, served.outcome.request_id, "record"):
        return encode(_make_recording(served))
    return None


def _make_recording(served: Served) -> Recording:
    outcome, done = served.outcome, served.carried_out
    recording = Recording(
        event=outcome,
        request=_make_request(served),
        sent=RecordedSending(headers=dict(served.added_headers)) if served.was_sent else None,
        circumstances=None if served.describe is None else served.describe(),
        summary=None if done is None else _make_summary(done),
        story=() if done is None else _make_story(done),
        counted=Counted(outcome.has_prompt, bool(outcome.sent_tokens), outcome.counted_decisions),
        bill=outcome.bill,
    )
    hidden = find_hidden(served.config, served.find_shown())
    return _add_bodies(_redact(recording, hidden), served, hidden)


def _redact(recording: Recording, hidden: Hidden) -> Recording:
    """The recording without credentials, in whatever member they are, and without figures that are not kept."""
    values = {**msgspec.to_builtins(recording, str_keys=True), "event": keep(recording.event)}
    told = {name: redact_value(value, hidden, with_numbers=False) for name, value in values.items()}
    return msgspec.convert(told, Recording, str_keys=True)


def _add_bodies(recording: Recording, served: Served, hidden: Hidden) -> Recording:
    """The recording with what arrived and what was sent."""
    arrived, request, sent = served.request, recording.request, recording.sent
    if arrived is None or request is None:
        return recording
    body = redact_body(arrived.body, hidden)
    is_redacted = body != arrived.body
    if sent is not None and served.body is not None:
        forwarded = b"".join(served.body)
        if forwarded != arrived.body:
            told = redact_body(forwarded, hidden)
            is_redacted = is_redacted or told != forwarded
            sent = replace(sent, body=write_body(told))
    return replace(recording, request=replace(request, body=write_body(body), is_redacted=is_redacted), sent=sent)


def _make_request(served: Served) -> RecordedRequest:
    """The head of the request; only names that hold no credential."""
    outcome, request = served.outcome, served.request
    headers = ((name.lower(), value) for name, value in served.headers if not is_credential(plain(name)))
    kept = {name: value for name, value in headers if name in KEPT_HEADERS}
    is_count = request is not None and request.codec.is_count
    return RecordedRequest(served.dialect, outcome.path, outcome.model, kept, is_count=is_count)


def _make_summary(done: CarriedOut) -> RecordedSummary | None:
    text, used = done.text, done.used
    if text is None:
        return None
    kind = "summarise" if text.by_model else "digest"
    return RecordedSummary("" if used is None else used.id, kind, text.by_model, text.text)


def _make_story(done: CarriedOut) -> tuple[str, ...]:
    story = tell_story(done.plan, done.applied, ratio=done.ratio)
    return tuple(sentence.text for sentence in story.sentences)
