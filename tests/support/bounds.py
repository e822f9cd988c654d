"""Narrow limits for what is kept of a response, so that small responses reach them."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from trimtab.proxy.wire.answers.sse import MAX_EVENT_BYTES
from trimtab.proxy.wire.answers.tap import MAX_HELD_BYTES, MAX_UNREAD_BYTES, SCANNED_BYTES


@contextmanager
def bounded(
    max_event_bytes: int = MAX_EVENT_BYTES,
    max_held_bytes: int = MAX_HELD_BYTES,
    max_unread_bytes: int = MAX_UNREAD_BYTES,
) -> Iterator[None]:
    """Within the block these limits replace those of the room wire, for an event, collected text and unread bytes."""
    with (
        mock.patch("trimtab.proxy.wire.answers.sse.MAX_EVENT_BYTES", max_event_bytes),
        mock.patch("trimtab.proxy.wire.answers.tap.MAX_BODY_BYTES", max_event_bytes),
        mock.patch("trimtab.proxy.wire.answers.tap.SCANNED_BYTES", min(SCANNED_BYTES, max_event_bytes)),
        mock.patch("trimtab.proxy.wire.answers.tap.MAX_HELD_BYTES", max_held_bytes),
        mock.patch("trimtab.proxy.wire.answers.tap.MAX_UNREAD_BYTES", max_unread_bytes),
    ):
        yield
