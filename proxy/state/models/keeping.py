"""What one process has of the models that it has met, and how that is read from the store and written to it.

Law: from here alone anything learned leaves this process, and only of models that an upstream has answered for. Names
that clients invent push out none of these.
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
MAX_MODELS_BYTES = 4 * 1024 * 1024
MODEL_BYTES = 4096
MAX_WRITES = 3
"""Of one change, if others change the same model's record meanwhile."""

FindWindow = Callable[[ModelName], int | None]
"""The window in tokens that a model's upstream has told, if it has."""
FindChanges = Callable[[Record], dict[str, Any]]
"""What is to change of a record."""


@dataclass(slots=True)
class Entry(Model):
    """A model with its name in logs and metrics, and with what is under way.

    `read_at` is None until the store was asked. `completed` is what its record and that of all tell together with the
    catalogue.
    """

    label: str = "other"
    warned: bool = False
    read_at: float | None = None
    reading: asyncio.Task[None] | None = None
    writing: asyncio.Task[None] | None = None
    completed: tuple[tuple[Record, Record, int], Facts] | None = None


class Kept:
    """The models that one process has met, each as it is known to one client or to all."""

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
        """Apart, so that names that clients invent push out none that an upstream has answered for."""

    def find(self, name: ModelName) -> Entry | None:
        """The model, if this process has met it."""
        return self.vouched.get(name) or self._strangers.get(name)

    def meet(self, name: ModelName, label: str) -> Entry:
        """The model; as its family begins if this process meets it for the first time."""
        model = self.find(name)
        if model is None:
            model = self._strangers[name] = Entry(self.begin(name))
        model.label = label
        return model

    def begin(self, name: ModelName) -> Record:
        """What is known of a model that was not looked up yet."""
        return Record(find_family(name.model).ratio, self._find_window(name))

    def vouch_for(self, name: ModelName) -> None:
        """An upstream has answered for this model with success: from now on what is learned of it is written."""
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
        """Read the store if that is due; the task to wait for if it never was read."""
        is_due = model.read_at is None or self._clock() - model.read_at > REFRESH_SECONDS
        if is_due and (model.reading is None or model.reading.done()):
            model.reading = self._tasks.start(self._read(name, model))
        return model.reading if model.read_at is None else None

    def list_read(self) -> Iterator[tuple[ModelName, Entry]]:
        """The models of which the store was asked."""
        for name, model in (*self.vouched.items(), *self._strangers.items()):
            if model.read_at is not None:
                yield name, model

    async def take_window(self, name: ModelName, model: Entry) -> None:
        """Learn a window that discovery found, once: another process that has asked since knows better."""
        found = self._find_window(name)
        if found is None or found == model.discovered:
            return
        if not model.is_vouched:
            model.known = msgspec.structs.replace(model.known, window_tokens=found)
            return
        if found != model.known.window_tokens or not model.generation:
            await self.write(name, model, window_tokens=found)
        if found == model.known.window_tokens:
            model.discovered = found

    async def write(self, name: ModelName, model: Entry, **changes: Any) -> None:
        """Make a change everybody's, unless another process has made one meanwhile: then that is taken over."""
        record = msgspec.structs.replace(model.known, **changes)
        self._adopt(model, *await self._records.append(name, model.generation, record))

    async def change(self, name: ModelName, model: Entry, find_changes: FindChanges) -> None:
        """Make a change even if others make theirs at the same time."""
        for _ in range(MAX_WRITES):
            changes = find_changes(model.known)
            if not changes:
                return
            await self.write(name, model, **changes)

    async def _read(self, name: ModelName, model: Entry) -> None:
        """Take over what the store has, all of whose generations are read so that none of them gets too old."""
        try:
            generation, record = await self._records.read(name)
            if record is not None and record.forgotten < self._count_forgotten(name):
                record = None
            if generation < model.generation and model.is_vouched:  # the store has lost what it had
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
            if model.read_at is not None:  # else nothing has been planned by what was before
                self._metrics.policy_changes.labels(model.label, cause).inc()
                self._log.info("policy_changed", model=model.label, cause=cause, before=before, after=after)
