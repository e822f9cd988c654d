"""The one broad `except` of the program."""

from collections.abc import Iterator
from contextlib import contextmanager

from proxy.exchange.record import Exchange
from proxy.exchange.services import Services
from proxy.wire.codec import UndecodableError
from rules.pipeline.plan import LimitExceededError


@contextmanager
def fail_open(services: Services, exchange: Exchange, phase: str) -> Iterator[None]:
    """Whatever breaks within, the request goes on without it, and the fault is counted.

    Raises UndecodableError and LimitExceededError, which are no faults.
    """
    exchange.phase = phase
    try:
        yield
    except (UndecodableError, LimitExceededError):
        raise
    except Exception as error:  # noqa: BLE001 - nothing that trimtab adds may cost a request
        services.recorder.record_fault(exchange, error)
