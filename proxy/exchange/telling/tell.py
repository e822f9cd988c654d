"""Tells a request that is over to all who keep it.

Law: it must cost the next request nothing: figures are taken at once, text only if somebody wants it.
"""

import time

from proxy.exchange.journey import Journey
from proxy.exchange.report import Report, fail_open
from proxy.exchange.services import Services
from proxy.exchange.telling.event import make_event
from proxy.exchange.telling.recording import record


def tell(services: Services, journey: Journey, report: Report) -> None:
    """Tell the history and the recordings of a request."""
    history, recordings = services.history, services.recordings
    if history is None and recordings is None:
        return
    with fail_open(services.recorder, report.arrival.request_id, "tell"):
        label = services.recorder.label(report.target)
        event = make_event(journey, report, label, now=time.time())
        if history is not None:
            history.add(event)
        if recordings is not None:
            record(services, recordings, journey, report, event)
