"""The models that one process knows, and how they are read from the store and written to it.

Law: only this module writes anything learned to the store, and only about vouched models (see state.py). Names that
clients invent never push a vouched model out of memory.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from proxy.lru import BytesLRU
from proxy.state.models.facts import Facts
from proxy.state.models.records import ModelName, Record, Records
from proxy.state.models.state import Model
from proxy.tasks import Tasks
from proxy.telemetry.metrics import Metrics
from rules.tokens.families import find_family

REFRESH_SECONDS = 10.0
"""Age after which a request has the store read again. Chosen: the delay with which a process learns from another."""
MAX_MODELS_BYTES = 4 * 1024 * 1024
"""Memory for vouched models. Chosen: room for a thousand."""
MODEL_BYTES = 4096
"""Assumed memory of one model. Measured by tracemalloc: 2.7 kB when new, 4.9 kB with all samples."""
MAX_WRITES = 3
"""Attempts at one change, if other processes write records of the same model meanwhile. Chosen: more are rarely needed,
and the next report or refusal brings the change again."""

FindWindow = Callable[[ModelName], int | None]
"""The window in tokens that the upstream reported for a model; None if it reported none."""
FindChanges = Callable[[Record], dict[str, Any]]
"""The fields to change in a record, given the record; empty for no change."""


@dataclass(slots=True)
class Entry(Model):
    """A model in this process's memory.

    label: its name in logs and metrics.
    warned: the warning about its counts was logged.
    read_at: when the store was last read, by the monotonic clock; None before the first time.
    reading, writing: the last task that reads the store for this model, and the last one that writes to it.
    completed: a cache: the facts, after the three values that they were computed from (the model's record, the record
        of all, and the longest answered prompt).
    """

    label: str = "other"
    warned: bool = False
    read_at: float | None = None
    reading: asyncio.Task[None] | None = None
    writing: asyncio.Task[None] | None = None
    completed: tuple[tuple[Record, Record, int], Facts] | None = None


class Kept:
    """The models that one process knows. A model has one entry for each client, and one for all clients.

    vouched: those that an upstream has answered for. All others are strangers.
    """

    def __init__(
        self,
        records: Records,
        find_window: FindWindow,
        tasks: Tasks,
        metrics: Metrics,
        log: Any,
        clock: Callable[[], float],
    ) -> None:
        self._records = records
        self._find_window = find_window
        self._tasks = tasks
        self._metrics = metrics
        self._log = log
        self._clock = clock
        self.vouched: BytesLRU[ModelName, Entry] = BytesLRU(MAX_MODELS_BYTES, lambda *_: MODEL_BYTES)
        self._strangers: BytesLRU[ModelName, Entry] = BytesLRU(MAX_MODELS_BYTES // 8, lambda *_: MODEL_BYTES)
        """Kept separately, so that invented names cannot push out vouched models."""

    def find(self, name: ModelName) -> Entry | None:
        """The model's entry; None if this process does not know it."""
        return self.vouched.get(name) or self._strangers.get(name)

    def meet(self, name: ModelName, label: str) -> Entry:
        """The model's entry; a new one with the defaults of its family if this process does not know it."""
        model = self.find(name)
        if model is None:
            model = self._strangers[name] = Entry(self.begin(name))
        model.label = label
        return model

    def begin(self, name: ModelName) -> Record:
        """The record to start with: the family's ratio, and the window that the upstream reported."""
        return Record(find_family(name.model).ratio, self._find_window(name))

    def vouch_for(self, name: ModelName) -> None:
        """Note that the upstream has answered a request for this model: what is learned of it may be written now."""
        model = None if name in self.vouched else self._strangers.pop(name)
        if model is None:
            return
        model.is_vouched = True
        self.vouched[name] = model
        if model.is_taught:
            model.writing = self._tasks.start(self.write(name, model))
        elif model.read_at is not None:
            model.reading = self._tasks.start(self.take_window(name, model))

    def refresh(self, name: ModelName, model: Entry) -> asyncio.Task[None] | None:
        """Start to read the store if that is due. Returns the task to wait for if it was never read, else None."""
        is_due = model.read_at is None or self._clock() - model.read_at > REFRESH_SECONDS
        if is_due and (model.reading is None or model.reading.done()):
            model.reading = self._tasks.start(self._read(name, model))
        return model.reading if model.read_at is None else None

    def list_read(self) -> Iterator[tuple[ModelName, Entry]]:
        """The models for which the store was read at least once."""
        for name, model in (*self.vouched.items(), *self._strangers.items()):
            if model.read_at is not None:
                yield name, model

    async def take_window(self, name: ModelName, model: Entry) -> None:
        """Take over the window that discovery found, and write it if the model is vouched.

        Each reported window is taken over once. If the record differs later, another process has asked more recently.
        """
        found = self._find_window(name)
        if found is None or found == model.discovered:
            return
        if not model.is_vouched:
            model.known = msgspec.structs.replace(model.known, window_tokens=found)
            return
        if found != model.known.window_tokens or not model.generation:
            await self.write(name, model, window_tokens=found)
        if found == model.known.window_tokens:  # else another process's record won: try again after the next read
            model.discovered = found

    async def write(self, name: ModelName, model: Entry, **changes: Any) -> None:
        """Write a change as the next record. If another process was faster, its record is adopted instead."""
        record = msgspec.structs.replace(model.known, **changes)
        self._adopt(model, *await self._records.append(name, model.generation, record))

    async def change(self, name: ModelName, model: Entry, find_changes: FindChanges) -> None:
        """Write a change, and try again on top of the other record if another process was faster."""
        for _ in range(MAX_WRITES):
            changes = find_changes(model.known)
            if not changes:
                return
            await self.write(name, model, **changes)

    async def _read(self, name: ModelName, model: Entry) -> None:
        try:
            generation, record = await self._records.read(name)
            if record is not None and record.forgotten < self._count_forgotten(name):
                record = None  # written before an operator had the model forgotten
            if generation < model.generation and model.is_vouched:  # the store has lost records: write ours again
                model.generation = generation
                await self.write(name, model)
            elif record is not None and model.adopts(generation, record):
                self._adopt(model, generation, record)
            await self.take_window(name, model)
        finally:
            model.read_at = self._clock()

    def _count_forgotten(self, name: ModelName) -> int:
        of_all = self.find(name.of_all)
        return 0 if of_all is None else of_all.known.forgotten

    def _adopt(self, model: Entry, generation: int, record: Record) -> None:
        for cause, before, after in model.adopt(generation, record):
            if model.read_at is not None:  # else no request was planned with the value before, so nothing changes
                self._metrics.policy_changes[model.label, cause] += 1
                self._log.info("policy_changed", model=model.label, cause=cause, before=before, after=after)
