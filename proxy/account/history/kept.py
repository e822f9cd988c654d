"""Keeps what the dashboard shows: rows of events, in the place of the store.

Law: a request appends one value and goes on. A thread writes what waits, in batches, and answers readers. While the
place cannot be written, what waits stays here, within a bound.

Replicas share a log of events on Redis: each adds its rows, and copies those of all into its own table. It has figures
and names only, never a text. While the server is out, nobody waits for it.
"""

import asyncio
import sqlite3
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from trimtab.proxy.account.history import table, texts
from trimtab.proxy.account.history.table import FORM, MAX_EVENTS, Bounds, Entry, Erased, Row
from trimtab.proxy.account.history.texts import MAX_TITLES, Packed, Title
from trimtab.proxy.account.outcome import Outcome
from trimtab.proxy.store.sqlite import SqliteFile, SqliteThread, Work, is_broken
from trimtab.proxy.store.store import PREFIX, StoreError
from trimtab.proxy.tasks import Tasks, shield_to_end

KEY = f"{PREFIX}events"
ENTRIES_AT_ONCE = 500  # Entries of one answer. Chosen: a megabyte.
PAUSE_SECONDS = 5.0  # Between a failure and the next attempt. Chosen: pages wait for it once, and not each.
MAX_NUMBER = 2**53  # An item with a larger one is passed over. Source: RFC 8259 section 6: others read it inexactly.
_ADD = """
for at = 3, #ARGV do
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'item', ARGV[at])
end
redis.call('EXPIRE', KEYS[1], ARGV[2])
"""
_encoder = msgspec.json.Encoder()
_rows, _erased = msgspec.json.Decoder(Row), msgspec.json.Decoder(Erased)


class SharedLog:
    """The log on a server. It connects at the first use. What asks it raises StoreError."""

    name = "redis"

    def __init__(self, url: str, *, ttl_seconds: float) -> None:
        """Raises ValueError or TypeError if the URL is invalid or has unknown options."""
        from trimtab.proxy.store.redis import RedisStore  # noqa: PLC0415  an optional package

        self._server = RedisStore(url, ttl_seconds=ttl_seconds)
        self._ttl_seconds = max(1, round(ttl_seconds))
        self._out_until = -inf

    async def add(self, items: list[Row] | list[Erased]) -> None:
        if items:
            arguments = [MAX_EVENTS, self._ttl_seconds, *map(_encoder.encode, items)]
            await self._ask(lambda: self._server.run(_ADD, [KEY], arguments))

    async def read(self, position: str) -> list[Entry]:
        """The oldest entries after a position; none if there are no more."""
        start = f"({position}" if position else "-"
        read = partial(self._server.commands.xrange, KEY, min=start, max="+", count=ENTRIES_AT_ONCE)
        found = await self._ask(lambda: self._server.ask(read))
        return [_read(name.decode(), fields.get(b"item", b"")) for name, fields in found]

    async def erase(self, order: Erased, entries: list[str]) -> None:
        """Drop the entries of a session, and have all replicas erase it."""
        if entries:
            await self._ask(lambda: self._server.ask(partial(self._server.commands.xdel, KEY, *entries)))
        await self.add([order])  # the last step: who has carried it out does not know the entries any more

    async def close(self) -> None:
        await self._server.close()

    async def _ask(self, operation: Callable[[], Awaitable[Any]]) -> Any:
        if time.monotonic() < self._out_until:
            raise StoreError(self.name, "it did not answer a moment ago")
        try:
            return await operation()
        except StoreError:
            self._out_until = time.monotonic() + PAUSE_SECONDS
            raise


def _read(name: str, encoded: bytes) -> Entry:
    item: Row | Erased | None = None
    for decoder in (_rows, _erased):
        with suppress(msgspec.MsgspecError):
            item = decoder.decode(encoded)
    if item is None or any(abs(value) > MAX_NUMBER for value in item if isinstance(value, int | float)):
        return Entry(name, None)
    return Entry(name, item._replace(entry=name) if isinstance(item, Row) else item)


T = TypeVar("T")
Waiting = Outcome | Row  # A request, or what a summary cost

STORE = "sqlite"  # The name of the table's store in metrics
FLUSH_SECONDS = 0.5  # Chosen: a write costs more than a small request; other workers' pages may be so late.
MAX_WAITING = 4096  # Rows that wait; the oldest give way. Chosen: seconds of a busy proxy, while the disk hangs.
MAX_TEXTS_WAITING = 32  # Texts that wait to be written. Chosen: a burst of a team; each holds on to its transcript.
OPEN_TRIES = 3  # Tries to open a file before the next place is taken instead. Chosen: some seconds, if others hold it.
NOTES_SECONDS = 5.0  # Between two writings of a worker's notes for the others. Chosen: they change rarely.


@dataclass(frozen=True, slots=True)
class Text:
    """A text to write; a session's title without request_id. size_bytes: held until then. write: None if it failed."""

    request_id: str
    session: str
    at: float
    size_bytes: int
    write: Callable[[], Packed | Title | None] = field(repr=False)


class Places(msgspec.Struct, frozen=True):
    """Where rows are: the first of `files` that can be used, else memory; and who shares them.

    texts: a file, or `:memory:`. log: the replicas' log, if they share one; then all else are its copies.
    worker: the number of this process among `workers`.
    is_shared: whether the file's rows are also those of other programs, beside these workers.
    """

    files: Sequence[Path] = ()
    texts: str = ":memory:"
    log: SharedLog | None = None
    worker: int = 1
    workers: int = 1
    bounds: Bounds = msgspec.field(default_factory=Bounds)
    is_shared: bool = False


_NOWHERE = Places()


class _InMemory(SqliteFile):
    def __init__(self, prepare: Work[None]) -> None:
        super().__init__(Path(), prepare, None, FORM)

    def use(self, work: Work[T]) -> T:
        """Do some work. If the texts are damaged, they begin again, and the rows stay."""
        try:
            return work(self._connect())
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if not is_broken(error):
                raise
        connection = self._connect()
        connection.execute("DETACH private")
        self._prepare(connection)
        return work(connection)

    def _connect(self) -> Any:
        if self._connection is None:
            self._connection = table.open_in_memory()
            self._prepare(self._connection)
        return self._connection


class Streams:
    """Who reads the stream of events.

    readers: how many. ending: set when all streams are to end; the next ones get another.
    totals: when the totals were read for all of them, on the monotonic clock, and the totals; `reading` while they are.
    """

    def __init__(self) -> None:
        self.readers = 0
        self.ending = asyncio.Event()
        self.totals: tuple[float, dict[str, Any]] | None = None
        self.reading = asyncio.Lock()

    def close(self) -> None:
        self.ending.set()
        self.ending = asyncio.Event()


class History:
    """What this process and those that share its place did lately.

    is_on: whether anything is to be kept. keeps_text: whether it also wants the text of requests.
    titled: the sessions of which it is known what they are called, or soon.
    notes: what people should know about this worker's figures.
    on_error: gets a fault in making a row or a text. on_fault: gets the name of a store that failed.
    """

    def __init__(
        self,
        *,
        is_on: bool = True,
        keeps_text: bool = False,
        places: Places = _NOWHERE,
        log: Any = None,
        on_error: Callable[[BaseException], None] = lambda _: None,
        on_fault: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.is_on, self.keeps_text = is_on, keeps_text
        self.places = places
        self.streams = Streams()
        self.titled: set[str] = set()
        self.notes: Callable[[], bytes] | None = None
        self.bounds, self._log = places.bounds, log
        self._on_error, self._on_fault = on_error, on_fault
        self._rows: deque[Waiting] = deque(maxlen=MAX_WAITING)
        self._texts: deque[Text] = deque()
        self._text_bytes = 0
        self._orders: list[Work[None]] = []
        self._is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._noted_at = 0.0
        self._thread: SqliteThread | None = None
        self._opening, self._writing, self._packing = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()
        self._tasks = Tasks(on_error)

    def add(self, *outcomes: Outcome) -> None:
        self.observe(outcomes)

    def observe(self, outcomes: Iterable[Outcome]) -> None:
        if self.is_on:
            self._rows.extend(outcomes)
            if not self._is_due:
                self._wake()

    def add_summary(self, at: float, cost: int, label: str, client: str, session: str) -> None:
        """Count what a summary cost, in nanodollars. It belongs to no event: a later request may use it."""
        if self.is_on:
            self._rows.append(Row.of_summary(at, cost, label, client, session, self.places.worker))
            self._wake()

    def add_text(self, text: Text) -> None:
        most_bytes = self.bounds.text_bytes // 2
        if text.size_bytes > most_bytes:
            return
        if not text.request_id:
            if len(self.titled) >= MAX_TITLES:
                self.titled.clear()
            self.titled.add(text.session)
        self._texts.append(text)
        self._text_bytes += text.size_bytes
        while len(self._texts) > MAX_TEXTS_WAITING or self._text_bytes > most_bytes:
            dropped = self._take_text()
            if not dropped.request_id:
                self.titled.discard(dropped.session)
        self._wake()

    async def read(self, work: Work[T]) -> T:
        """What `work` returns for the table, with all that was added before. Raises StoreError."""
        await self.flush()
        return await self._use(work)

    async def erase(self, session: str, *, text_only: bool = False) -> bool:
        """Erase a session, or only its texts. Returns whether it was known. Raises StoreError."""
        order = Erased(session, time.time(), text_only)
        is_known, entries = await self.read(partial(table.find_session, session=session, at=order.at))
        if self.places.log is not None:
            # If it does not answer, the rows stay, so that all can be tried again. Texts are only here.
            await self._use(partial(table.erase, order=order._replace(text_only=True)))
            await self.places.log.erase(order, entries)
        await self._use(partial(table.erase, order=order))
        self.titled.discard(session)
        return is_known

    def keep_text(self, *, keeps_text: bool) -> None:
        """From now on keep text or not; if not, erase what is kept."""
        self.keeps_text = keeps_text
        self.titled.clear()
        if not keeps_text:
            self._drop_texts()
            self._order(texts.erase_texts)

    def clear(self) -> None:
        """Forget everything, and end all streams. What others share stays: the rows of a file, a log of replicas."""
        self.streams.close()
        self._rows.clear()
        self._drop_texts()
        self._order(texts.erase_texts if self.places.is_shared else table.clear)

    async def flush(self) -> None:
        """Write the rows that wait. If that fails, they stay. None is lost if the caller leaves."""
        await shield_to_end(self._flush())

    async def _flush(self) -> None:
        async with self._writing:
            orders, rows = self._orders, list(self._rows)
            self._orders = []
            self._rows.clear()
            try:
                for order in orders:
                    await self._use(order)
                await self._write(rows)
            except StoreError:
                self._on_fault(STORE)
                self._orders = [*orders, *self._orders]
                self._rows = deque([*rows, *self._rows], MAX_WAITING)

    async def settle(self) -> None:
        await self.flush()
        await self._write_texts()

    async def _write_texts(self) -> None:
        async with self._packing:
            while self._texts:
                text = self._take_text()
                packed = await asyncio.to_thread(text.write)
                if isinstance(packed, Title):
                    title = packed if self.keeps_text else packed._replace(text="")
                    await self._try(partial(texts.keep_title, session=text.session, at=text.at, title=title))
                elif packed is not None and self.keeps_text:
                    most_bytes = self.bounds.text_bytes // 2
                    keep = partial(texts.keep_text, request_id=text.request_id, session=text.session, at=text.at)
                    await self._try(partial(keep, packed=packed, max_bytes=most_bytes))
                del text, packed  # else this frame would hold the transcript until the next text

    async def close(self) -> None:
        self.streams.close()
        self._drop_texts()
        self._is_due = True  # nothing is started any more
        if self._timer is not None:
            self._timer.cancel()
        if self._rows or self._orders or self._writing.locked():
            await self.flush()
        await self._tasks.close()
        for one in (self._thread, self.places.log):
            if one is not None:
                with suppress(StoreError):
                    await one.close()

    def _wake(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self._write_now)

    def _write_now(self) -> None:
        self._is_due = False
        _ = self._tasks.start(self._write_all())

    async def _write_all(self) -> None:
        await self._flush()
        if self._texts:
            await self._write_texts()
        if self.notes is not None and time.monotonic() - self._noted_at > NOTES_SECONDS:
            self._noted_at = time.monotonic()
            await self._try(partial(texts.write_notes, worker=self.places.worker, notes=self.notes()))

    def _order(self, work: Work[None]) -> None:
        if self._thread is not None or self.places.files:
            self._orders.append(work)
            self._wake()

    async def _write(self, waiting: Sequence[Waiting]) -> None:
        log = self.places.log
        if log is None:
            if waiting:
                await self._use(lambda connection: table.add(connection, self._make_rows(waiting), self.bounds))
            return
        rows = await asyncio.to_thread(self._make_rows, waiting)
        try:
            await log.add(rows)
            rows = []
        except StoreError:  # meanwhile only this replica knows them
            self._on_fault(log.name)
        if rows:
            await self._use(partial(table.add, rows=rows, bounds=self.bounds))
        try:
            while self.is_on and (entries := await log.read(await self._use(table.read_position))):
                await self._use(partial(table.copy, entries=entries, bounds=self.bounds))
        except StoreError:
            self._on_fault(log.name)

    def _make_rows(self, waiting: Sequence[Waiting]) -> list[Row]:
        rows = []
        for one in waiting:
            try:
                rows.append(one if isinstance(one, Row) else Row.of(one, self.places.worker))
            except (ValueError, TypeError, OverflowError) as error:  # it has a text or a number that no JSON has
                self._on_error(error)
        return rows

    def _take_text(self) -> Text:
        text = self._texts.popleft()
        self._text_bytes -= text.size_bytes
        return text

    def _drop_texts(self) -> None:
        self._texts.clear()
        self.titled.clear()
        self._text_bytes = 0

    async def _try(self, work: Work[None]) -> None:
        try:
            await self._use(work)
        except StoreError:
            self._on_fault(STORE)

    async def _use(self, work: Work[T]) -> T:
        if self._thread is None:
            async with self._opening:
                self._thread = self._thread or await self._open()
        return await self._thread.use(work)

    async def _open(self) -> SqliteThread:
        prepare = partial(texts.attach, place=self.places.texts)
        for path in self.places.files:
            thread = SqliteThread(STORE, SqliteFile(path, prepare, self._log, FORM))
            for _ in range(OPEN_TRIES):  # others may begin just now, and hold the file
                with suppress(StoreError):
                    _ = await thread.use(table.read_position)
                    return thread
            self._on_fault(STORE)
            with suppress(StoreError):
                await thread.close()
        return SqliteThread(STORE, _InMemory(prepare))
