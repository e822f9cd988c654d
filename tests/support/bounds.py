"""Narrow bounds on what is kept of an answer, so that small answers reach them."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from proxy.wire.sse import MAX_EVENT_BYTES
from proxy.wire.tap import MAX_HELD_BYTES, MAX_UNREAD_BYTES


@contextmanager
def bounded(
    max_event_bytes: int = MAX_EVENT_BYTES,
    max_held_bytes: int = MAX_HELD_BYTES,
    max_unread_bytes: int = MAX_UNREAD_BYTES,
) -> Iterator[None]:
    """While the block runs, no longer event is read, no more text is collected, and no more is read together."""
    with (
        mock.patch("proxy.wire.sse.MAX_EVENT_BYTES", max_event_bytes),
        mock.patch("proxy.wire.tap.MAX_BODY_BYTES", max_event_bytes),
        mock.patch("proxy.wire.tap.MAX_HELD_BYTES", max_held_bytes),
        mock.patch("proxy.wire.tap.MAX_UNREAD_BYTES", max_unread_bytes),
    ):
        yield
