"""Tells a request that is over to all who keep it.

Law: it must cost the next request nothing: figures are taken at once, text only if somebody wants it.
"""

import time

from proxy.exchange.journey import Journey
from proxy.exchange.report import Report, fail_open
from proxy.exchange.services import Services
from proxy.exchange.telling.event import make_event
from proxy.exchange.telling.span import end_trace


def tell(services: Services, journey: Journey, report: Report) -> None:
    """Tell traces and the history of a request."""
    if journey.trace.is_on:
        with fail_open(services.recorder, report.arrival.request_id, "tell"):
            end_trace(journey, report)
    history = services.history
    if history is None:
        return
    with fail_open(services.recorder, report.arrival.request_id, "tell"):
        label = services.recorder.label(report.target)
        history.add(make_event(journey, report, label, now=time.time()))
