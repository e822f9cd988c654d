"""Keeps what the dashboard shows of this process.

Law: bounded. It is told what happened, and changes nothing.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from proxy.account.history.event import Event
from proxy.account.history.live import Live
from proxy.account.history.sessions import Sessions
from proxy.account.history.texts import Texts
from proxy.account.history.timeline import Timeline
from proxy.account.history.turn import Turn, decode_turn, encode_turn
from proxy.account.history.writer import Writer

MAX_EVENTS = 10_000
"""Chosen: an hour of a busy team."""
ROW_BYTES = 500
"""What a kept event takes beside its JSON. Chosen: the row, its texts, and its places in the indexes, generously."""


class Row(NamedTuple):
    """A kept event, with what it is searched by; `encoded` is its turn."""

    at: float
    request_id: str
    session: str
    outcome: str
    label: str
    model: str
    encoded: bytes

    @property
    def turn(self) -> Turn:
        """The event with its place in the session."""
        return decode_turn(self.encoded)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The memory of a history: `events_bytes` for events, `text_bytes` for texts, kept or waiting to be written."""

    events_bytes: int = 8 * 1024 * 1024
    text_bytes: int = 64 * 1024 * 1024


def _ignore(_error: BaseException) -> None:
    """Do nothing."""


class History:
    """What this process did lately.

    keeps_text: whether it also wants the text of requests.
    began_at: since when it keeps anything, in seconds since 1970.
    on_error: gets a fault in writing a text.
    """

    def __init__(
        self,
        *,
        keeps_text: bool = False,
        bounds: Bounds = Bounds(),
        on_error: Callable[[BaseException], None] = _ignore,
    ) -> None:
        self.keeps_text = keeps_text
        self.began_at = time.time()
        self.live = Live()
        self.timeline = Timeline()
        self.sessions = Sessions()
        self.texts = Texts(bounds.text_bytes // 2)
        self.writer = Writer(self.texts, bounds.text_bytes // 2, on_error)
        self._max_bytes = bounds.events_bytes
        self._total_bytes = 0
        self._rows: deque[Row] = deque()
        self._by_id: dict[str, Row] = {}

    def add(self, event: Event, cache_nanodollars: float | None = None) -> None:
        """Keep an event. `cache_nanodollars`: what a token costs more if the prompt cache does not have it."""
        turn = self.sessions.add(event, cache_nanodollars)
        self.timeline.add(event)
        row = Row(event.at, event.request_id, event.session, event.outcome, event.label, event.model, encode_turn(turn))
        self._rows.append(row)
        self._by_id[row.request_id] = row
        self._total_bytes += ROW_BYTES + len(row.encoded)
        while len(self._rows) > MAX_EVENTS or self._total_bytes > self._max_bytes:
            self._forget(self._rows.popleft())
        self.live.publish(turn)

    def add_summary(self, at: float, cost: int, label: str, client: str, session: str) -> None:
        """Count what a summary cost, in nanodollars. It belongs to no event: a later request may use it."""
        self.timeline.add_summary(at, cost, label, client)
        self.sessions.add_summary(session, cost)

    @property
    def events(self) -> tuple[Event, ...]:
        """All kept events, oldest first."""
        return tuple(row.turn.event for row in self._rows)

    def newest(self) -> Iterator[Row]:
        """All kept events, newest first."""
        return reversed(self._rows)

    def find(self, request_id: str) -> Row | None:
        """The event of a request; None if it is not kept."""
        return self._by_id.get(request_id)

    def erase(self, session: str, *, text_only: bool = False) -> bool:
        """Erase a session, or only its texts. Returns whether it was known. Sums of minutes stay."""
        is_known = session in self.sessions.by_name or self.texts.has(session)
        self.texts.erase(session)
        if text_only:
            return is_known
        self.sessions.erase(session)
        rows = [row for row in self._rows if row.session == session]
        self._rows = deque(row for row in self._rows if row.session != session)
        for row in rows:
            self._forget(row)
        return is_known or bool(rows)

    def keep_text(self, *, keeps_text: bool) -> None:
        """From now on keep text or not; if not, erase what is kept."""
        self.keeps_text = keeps_text
        if not keeps_text:
            self.writer.clear()
            self.texts.erase()

    def clear(self) -> None:
        """Forget everything, and end all streams."""
        self.live.close()
        self.writer.clear()
        self.texts.erase()
        self.timeline.buckets.clear()
        self.sessions.clear()
        self._rows.clear()
        self._by_id.clear()
        self._total_bytes = 0

    async def close(self) -> None:
        """End all streams and tasks."""
        self.live.close()
        await self.writer.close()

    def _forget(self, row: Row) -> None:
        self._total_bytes -= ROW_BYTES + len(row.encoded)
        if self._by_id.get(row.request_id) is row:
            del self._by_id[row.request_id]
