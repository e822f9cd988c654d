"""What is learned of models from their upstreams: how many tokens they make of ours, and how large their windows are.

Law: it changes in rare steps, each counted and kept in the store, so that every process and every replica plans by the
same figures. Nothing here is waited for, but the store's answer when a process meets a model for the first time.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from proxy.config.schema import UpstreamConfig
from proxy.http.client import UpstreamClient
from proxy.http.headers import Headers
from proxy.lru import BytesLRU
from proxy.state.models.calibration import MIN_SAMPLE_TOKENS, WARM_UP_SAMPLES, Report
from proxy.state.models.catalogue import is_ready, load_catalogue
from proxy.state.models.discovery import MIN_WINDOW_TOKENS
from proxy.state.models.discovery_schedule import Told
from proxy.state.models.facts import Facts, Known, complete, recall
from proxy.state.models.lessons import Lesson
from proxy.state.models.records import ModelName, Record, Records
from proxy.state.models.state import Model
from proxy.state.stores import SummaryStore
from proxy.tasks import Tasks
from proxy.telemetry.metrics import Metrics
from rules.tokens.families import find_family

REFRESH_SECONDS = 10.0
READ_SECONDS = 2.0
"""How long a request waits for the store when its model is met for the first time."""
MAX_MODELS_BYTES = 4 * 1024 * 1024
MODEL_BYTES = 4096
MAX_NAME_CHARS = 256
MAX_WRITES = 3
"""Of one lesson, where others change the same model's record meanwhile."""


@dataclass(slots=True)
class _Model(Model):
    """With its name in logs and metrics, and with what is under way.

    `read_at` is None until the store was asked. `completed` is what a record tells together with the catalogue.
    """

    label: str = "other"
    warned: bool = False
    read_at: float | None = None
    reading: asyncio.Task[None] | None = None
    writing: asyncio.Task[None] | None = None
    completed: tuple[Record, Facts] | None = None


class Models:
    """Looks up, learns and keeps facts. Close it when done.

    `read_seconds` is how long a request waits for the store.
    """

    def __init__(
        self,
        store: SummaryStore,
        client: UpstreamClient,
        metrics: Metrics,
        log: Any,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.read_seconds = READ_SECONDS
        self._records = Records(store)
        self._told = Told(client, clock)
        self._metrics = metrics
        self._log = log
        self._clock = clock
        self._vouched: BytesLRU[ModelName, _Model] = BytesLRU(MAX_MODELS_BYTES, lambda *_: MODEL_BYTES)
        self._strangers: BytesLRU[ModelName, _Model] = BytesLRU(MAX_MODELS_BYTES // 8, lambda *_: MODEL_BYTES)
        """Apart, so that names that clients invent push out none that an upstream has answered for."""
        self._tasks = Tasks(lambda error: log.error("models_fault", error=type(error).__name__))

    async def look_up(self, name: ModelName, label: str) -> Facts:
        """What is known of a model; read from the store at the first time, behind the scenes from then on.

        Until an upstream has answered for it, it is kept among others of its kind only: anybody can invent names.
        """
        if len(name.model) > MAX_NAME_CHARS:
            return self.recall(name)
        model = self._find(name)
        if model is None:
            model = self._strangers[name] = _Model(self._begin(name))
        model.label = label
        is_due = model.read_at is None or self._clock() - model.read_at > REFRESH_SECONDS
        if is_due and (model.reading is None or model.reading.done()):
            model.reading = self._tasks.start(self._read(name, model))
        if model.read_at is None and model.reading is not None:
            await asyncio.wait({model.reading}, timeout=self.read_seconds)
            model.read_at = model.read_at or self._clock()  # a store that hangs is waited for once
        if model.completed is None or model.completed[0] is not model.known:
            if not is_ready(name.base_url):
                await asyncio.to_thread(load_catalogue, (name.base_url,))
            model.completed = model.known, complete(name, model.facts)
        return model.completed[1]

    def vouch_for(self, name: ModelName) -> None:
        """An upstream has answered for this model with success."""
        model = self._strangers.pop(name)
        if model is None:
            return
        model.is_vouched = True
        self._vouched[name] = model
        if model.is_taught:
            model.writing = self._tasks.start(self._write(name, model))
        elif model.read_at is not None:
            model.reading = self._tasks.start(self._take_window(name, model))

    def recall(self, name: ModelName) -> Facts:
        """What this process knows of a model already, and where it knows no window, the catalogue's."""
        model = self._find(name)
        return complete(name, recall(self._begin(name)) if model is None else model.facts)

    def _begin(self, name: ModelName) -> Record:
        """What is known of a model that was not looked up yet."""
        return Record(find_family(name.model).ratio, self._told.find(name))

    def list_known(self) -> list[Known]:
        """The models that an upstream has answered for; names that only a client has said are not among them."""
        return [_show(name, model) for name, model in self._vouched.items()]

    def list_told(self) -> list[tuple[str, str]]:
        """The upstreams' base_url and model, of each whose window an upstream has told this process."""
        return self._told.list_models()

    def observe(self, name: ModelName, report: Report) -> None:
        """An upstream has reported how many tokens a prompt had for it."""
        model = self._vouched.get(name)
        if model is None or report.counted_tokens < MIN_SAMPLE_TOKENS:
            return
        calibration = model.calibration
        calibration.add(report, model.known.ratio, find_family(name.model).ratio)
        if calibration.stays_off(is_calibrated=model.known.calibrated) and not model.warned:
            model.warned = True
            self._log.warning(
                "estimates_off",
                model=model.label,
                mean_error=round(calibration.error, 3),
                meaning="the upstream reports other prompt tokens than were counted",
            )
        self._watch_cuts(name, model, report)
        if model.writing is None or model.writing.done():
            found = calibration.choose_ratio(model.known.ratio, is_calibrated=model.known.calibrated)
            if found is not None:
                calibrated = model.known.calibrated or len(calibration.samples) >= WARM_UP_SAMPLES
                model.writing = self._tasks.start(self._write(name, model, ratio=found, calibrated=calibrated))

    def _watch_cuts(self, name: ModelName, model: _Model, report: Report) -> None:
        """Learn the window of a model whose prompts are cut short without a word."""
        if model.calibration.cuts_short:
            self._metrics.silent_truncations.labels(model.label).inc()
        window_tokens = model.calibration.find_window()
        if window_tokens is None or window_tokens < MIN_WINDOW_TOKENS or not report.believed_tokens:
            return
        if model.facts.correct(report.believed_tokens) <= window_tokens:
            return
        self._log.warning(
            "prompts_cut_short",
            model=model.label,
            window_tokens=window_tokens,
            meaning="the upstream reports far fewer prompt tokens than were sent: it drops what does not fit",
        )
        model.calibration.restart(is_calibrated=False)
        model.writing = self._tasks.start(self.learn(name, report.believed_tokens, Lesson(window_tokens)))

    def learn_soon(self, name: ModelName, believed_tokens: int, lesson: Lesson) -> None:
        """The same as `learn`, behind the scenes."""
        _ = self._tasks.start(self.learn(name, believed_tokens, lesson))

    async def learn(self, name: ModelName, believed_tokens: int, lesson: Lesson) -> None:
        """An upstream has refused a prompt that went by a window of `believed_tokens`: it really is another.

        Waits for the store, but not for long.
        """
        model = self._find(name)
        if model is None:
            return
        lesson, known = lesson.given(model.calibration.most_reported), model.known
        if model.is_vouched and model.find_changes(believed_tokens, lesson):
            writing = self._tasks.start(self._write_lesson(name, model, believed_tokens, lesson))
            await asyncio.wait({writing}, timeout=self.read_seconds)
        if model.known == known:  # a stranger's, or the store hangs: the next request must not be refused again
            model.teach(model.find_changes(believed_tokens, lesson))

    def seek_windows(self, upstream: UpstreamConfig, headers: Headers | None = None) -> None:
        """Ask an upstream for its models' windows behind the scenes, if that is due; `headers` are a credential's."""
        shown = headers or []
        if self._told.take_turn(upstream, shown):
            _ = self._tasks.start(self._ask(upstream, shown))

    async def settle(self) -> None:
        """Wait until nothing is under way that changes what is known."""
        await self._tasks.settle()

    async def close(self) -> None:
        """Give up what is under way."""
        await self._tasks.close()

    def _find(self, name: ModelName) -> _Model | None:
        return self._vouched.get(name) or self._strangers.get(name)

    async def _read(self, name: ModelName, model: _Model) -> None:
        """Take over what the store has, all of whose generations are read so that none of them gets too old."""
        try:
            generation, record = await self._records.read(name)
            if generation < model.generation and model.is_vouched:  # the store has lost what it had
                model.generation = generation
                await self._write(name, model)
            elif record is not None and model.adopts(generation, record):
                self._adopt(model, generation, record)
            await self._take_window(name, model)
        finally:
            model.read_at = self._clock()

    async def _take_window(self, name: ModelName, model: _Model) -> None:
        """Learn a window that discovery found, once: another process that has asked since knows better."""
        found = self._told.find(name)
        if found is None or found == model.discovered:
            return
        if not model.is_vouched:
            model.known = msgspec.structs.replace(model.known, window_tokens=found)
            return
        if found != model.known.window_tokens or not model.generation:
            await self._write(name, model, window_tokens=found)
        if found == model.known.window_tokens:
            model.discovered = found

    async def _write_lesson(self, name: ModelName, model: _Model, believed_tokens: int, lesson: Lesson) -> None:
        """Make a change even if others make theirs at the same time."""
        for _ in range(MAX_WRITES):
            changes = model.find_changes(believed_tokens, lesson)
            if not changes:
                return
            await self._write(name, model, **changes)

    async def _write(self, name: ModelName, model: _Model, **changes: Any) -> None:
        """Make a change everybody's, unless another process has made one meanwhile: then that is taken over.

        The one place from which anything learned leaves this process.
        """
        record = msgspec.structs.replace(model.known, **changes)
        self._adopt(model, *await self._records.append(name, model.generation, record))

    def _adopt(self, model: _Model, generation: int, record: Record) -> None:
        for cause, before, after in model.adopt(generation, record):
            if model.read_at is not None:  # else nothing has been planned by what was before
                self._metrics.policy_changes.labels(model.label, cause).inc()
                self._log.info("policy_changed", model=model.label, cause=cause, before=before, after=after)

    async def _ask(self, upstream: UpstreamConfig, headers: Headers) -> None:
        await self._told.ask(upstream, headers)
        for name, model in (*self._vouched.items(), *self._strangers.items()):
            if name.base_url == upstream.base_url and model.read_at is not None:  # else its first look takes it
                await self._take_window(name, model)


def _show(name: ModelName, model: _Model) -> Known:
    samples, error = len(model.calibration.samples), model.calibration.error
    return Known(name, complete(name, model.facts), model.known.calibrated, samples, error)
