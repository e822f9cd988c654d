"""Tells a request that is over to all who keep it.

Law: it must cost the next request nothing: figures are taken at once, text only if somebody wants it.
"""

import time

from proxy.account.history.event import Event
from proxy.exchange.journey import Journey
from proxy.exchange.report import Report, fail_open
from proxy.exchange.services import Services
from proxy.exchange.telling.event import make_event
from proxy.exchange.telling.recording import record
from proxy.exchange.telling.span import end_trace
from proxy.exchange.telling.text import tell_text
from proxy.state.catalogue.costs import PER_TOKEN


def tell(services: Services, journey: Journey, report: Report) -> None:
    """Tell traces, the history and the recordings of a request."""
    if journey.trace.is_on:
        with fail_open(services.recorder, report.arrival.request_id, "tell"):
            end_trace(journey, report)
    history, recordings = services.history, services.recordings
    if history is None and recordings is None:
        return
    with fail_open(services.recorder, report.arrival.request_id, "tell"):
        label = services.recorder.label(report.target)
        event = make_event(journey, report, label, now=time.time())
        if history is not None:
            if history.keeps_text:
                tell_text(services, history, journey, event)
            history.add(event, _price_cache(journey, event))
        if recordings is not None:
            record(services, recordings, journey, report, event)


def _price_cache(journey: Journey, event: Event) -> float | None:
    """What a prompt token costs more if the prompt cache does not have it, in nanodollars; None if not known."""
    call = journey.attempt.call
    if call is None or not call.view.price_list.is_in_dollars:
        return None
    tier = call.view.price_list.at(event.sent_tokens)
    paid = tier.cache_write if event.written_tokens else tier.input
    return max(paid - tier.cached_input, 0.0) * PER_TOKEN
