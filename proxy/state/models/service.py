"""What is learned of models from their upstreams: how many tokens they make of ours, and how large their windows are.

Law: it changes in rare steps, each counted and kept in the store, so that every process and every replica plans by the
same figures. Nothing here is waited for, but the store's answer when a process meets a model for the first time.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from proxy.config.schema import UpstreamConfig
from proxy.http.client import UpstreamClient
from proxy.http.headers import Headers
from proxy.lru import BytesLRU
from proxy.state.models.calibration import MIN_SAMPLE_TOKENS, WARM_UP_SAMPLES, Calibration, Report, clamp
from proxy.state.models.catalogue import is_ready, load_catalogue
from proxy.state.models.discovery import MIN_WINDOW_TOKENS
from proxy.state.models.discovery_schedule import Told
from proxy.state.models.facts import Facts, Known, complete, recall
from proxy.state.models.lessons import Lesson
from proxy.state.models.records import MAX_REFUTED, ModelName, Record, Records
from proxy.state.stores import SummaryStore
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
class _Model:
    """One model's state in this process; `generation` counts the changes that the store has.

    `discovered` is the window last learned from the upstream by this process itself; `is_taught` while a refusal has
    taught what is not in the store yet.
    """

    facts: Facts
    is_taught: bool = False
    generation: int = 0
    is_calibrated: bool = False
    calibration: Calibration = field(default_factory=Calibration)
    warned: bool = False
    label: str = "other"
    discovered: int | None = None
    reading: asyncio.Task[None] | None = None
    read_at: float = 0.0
    writing: asyncio.Task[None] | None = None


class Models:
    """Looks up, learns and keeps facts. Close it when done."""

    def __init__(
        self,
        store: SummaryStore,
        client: UpstreamClient,
        metrics: Metrics,
        log: Any,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._records = Records(store)
        self._told = Told(client, clock)
        self._metrics = metrics
        self._log = log
        self._clock = clock
        self._models: BytesLRU[ModelName, _Model] = BytesLRU(MAX_MODELS_BYTES, lambda *_: MODEL_BYTES)
        self._strangers: BytesLRU[ModelName, _Model] = BytesLRU(MAX_MODELS_BYTES // 8, lambda *_: MODEL_BYTES)
        self._tasks: set[asyncio.Task[None]] = set()

    async def look_up(self, name: ModelName, label: str) -> Facts:
        """What is known of a model; read from the store at the first time, behind the scenes from then on.

        Until an upstream has answered for it, it is kept among others of its kind only: anybody can invent names.
        """
        if len(name.model) > MAX_NAME_CHARS:
            return self.recall(name)
        model = self._find(name)
        if model is None:
            model = self._strangers[name] = _Model(self._recall(name), label=label)
            model.reading = self._spawn(self._read(name, model))
        model.label = label
        if model.read_at == 0.0 and model.reading is not None:
            await asyncio.wait({model.reading}, timeout=READ_SECONDS)
            model.read_at = model.read_at or self._clock()  # a store that hangs is waited for once
        elif self._clock() - model.read_at > REFRESH_SECONDS and (model.reading is None or model.reading.done()):
            model.reading = self._spawn(self._read(name, model))
        if not is_ready(name.base_url):
            await asyncio.to_thread(load_catalogue, (name.base_url,))
        return complete(name, model.facts)

    def vouch_for(self, name: ModelName) -> None:
        """An upstream has answered for this model with success."""
        model = self._strangers.pop(name)
        if model is not None and self._models.get(name) is None:
            self._models[name] = model
            if model.is_taught:
                model.writing = self._spawn(self._write(name, model))
            elif model.read_at:
                model.reading = self._spawn(self._take_window(name, model))

    def recall(self, name: ModelName) -> Facts:
        """What this process knows of a model already, and where it knows no window, the catalogue's."""
        return complete(name, self._recall(name))

    def _recall(self, name: ModelName) -> Facts:
        model = self._find(name)
        return model.facts if model is not None else Facts(find_family(name.model).ratio, self._told.find(name))

    def list_known(self) -> list[Known]:
        """The models that an upstream has answered for; names that only a client has said are not among them."""
        return [_show(name, model) for name, model in self._models.items()]

    def list_told(self) -> list[tuple[str, str]]:
        """The upstreams' base_url and model, of each whose window an upstream has told this process."""
        return self._told.list_models()

    def observe(self, name: ModelName, report: Report) -> None:
        """An upstream has reported how many tokens a prompt had for it."""
        model = self._models.get(name)
        if model is None or report.counted_tokens < MIN_SAMPLE_TOKENS:
            return
        calibration = model.calibration
        calibration.add(report, model.facts.ratio, find_family(name.model).ratio)
        if calibration.stays_off(is_calibrated=model.is_calibrated) and not model.warned:
            model.warned = True
            self._log.warning(
                "estimates_off",
                model=model.label,
                mean_error=round(calibration.error, 3),
                meaning="the upstream reports other prompt tokens than were counted",
            )
        self._watch_cuts(name, model, report)
        if model.writing is None or model.writing.done():
            found = calibration.choose_ratio(model.facts.ratio, is_calibrated=model.is_calibrated)
            if found is not None:
                calibrated = model.is_calibrated or len(calibration.samples) >= WARM_UP_SAMPLES
                model.writing = self._spawn(self._write(name, model, ratio=found, calibrated=calibrated))

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
        model.writing = self._spawn(self.learn(name, report.believed_tokens, Lesson(window_tokens)))

    def learn_soon(self, name: ModelName, believed_tokens: int, lesson: Lesson) -> None:
        """The same as `learn`, behind the scenes."""
        _ = self._spawn(self.learn(name, believed_tokens, lesson))

    async def learn(self, name: ModelName, believed_tokens: int, lesson: Lesson) -> None:
        """An upstream has refused a prompt that went by a window of `believed_tokens`: it really is another.

        Waits for the store, but not for long.
        """
        model = self._find(name)
        if model is None:
            return
        most = model.calibration.most_reported
        if lesson.window_tokens is not None and lesson.window_tokens < most:  # longer prompts were answered
            is_between = not lesson.is_certain and lesson.refused_tokens > most
            lesson = replace(lesson, window_tokens=most if is_between else None)
        known = model.facts
        if self._models.get(name) is None:  # nothing is kept yet of names that anybody can invent
            model.facts = replace(known, **_teach(known, believed_tokens, lesson))
            model.is_calibrated = model.is_calibrated and model.facts.ratio == known.ratio
            model.is_taught = model.is_taught or model.facts != known
            return
        if _teach(known, believed_tokens, lesson):
            writing = self._spawn(self._write_lesson(name, model, believed_tokens, lesson))
            await asyncio.wait({writing}, timeout=READ_SECONDS)
        if model.facts == known:  # the store hangs, and the next request must not be refused again
            model.facts = replace(known, **_teach(known, believed_tokens, lesson))

    def seek_windows(self, upstream: UpstreamConfig, headers: Headers | None = None) -> None:
        """Ask an upstream for its models' windows behind the scenes, if that is due; `headers` are a credential's."""
        shown = headers or []
        if self._told.take_turn(upstream, shown):
            _ = self._spawn(self._ask(upstream, shown))

    async def close(self) -> None:
        """Give up what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that close() ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish)
        return task

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            self._log.error("models_fault", error=type(fault).__name__)

    def _find(self, name: ModelName) -> _Model | None:
        return self._models.get(name) or self._strangers.get(name)

    async def _read(self, name: ModelName, model: _Model) -> None:
        """Take over what the store has, all of whose generations are read so that none of them gets too old."""
        try:
            generation, record = await self._records.read(name)
            if generation < model.generation:  # the store has lost what it had
                model.generation = generation
                await self._write(name, model)
            elif record is not None and (generation > model.generation or self._differs(model, record)):
                self._adopt(model, generation, record, is_first=model.read_at == 0.0)
            await self._take_window(name, model)
        finally:
            model.read_at = self._clock()

    def _differs(self, model: _Model, record: Record) -> bool:
        """Whether a record that this process has read says something else by now; not what was taught meanwhile."""
        return record.ratio != model.facts.ratio and not model.is_taught

    async def _take_window(self, name: ModelName, model: _Model) -> None:
        """Learn a window that discovery found, once: another process that has asked since knows better."""
        found = self._told.find(name)
        if found is None or found == model.discovered:
            return
        if self._models.get(name) is None:  # nothing is kept of names that anybody can invent
            model.facts = replace(model.facts, window_tokens=found)
            return
        if found != model.facts.window_tokens or not model.generation:
            await self._write(name, model, window_tokens=found)
        if found == model.facts.window_tokens:
            model.discovered = found

    async def _write(self, name: ModelName, model: _Model, **changes: Any) -> None:
        """Make a change, unless another process has made one meanwhile: then that is taken over."""
        known = model.facts
        record = Record(
            known.ratio,
            known.window_tokens,
            model.is_calibrated,
            known.learned_tokens,
            known.added_tokens,
            known.refuted,
        )
        record = msgspec.structs.replace(record, **changes)
        self._adopt(model, *await self._records.append(name, model.generation, record), is_first=False)

    async def _write_lesson(self, name: ModelName, model: _Model, believed_tokens: int, lesson: Lesson) -> None:
        """Make a change even where others make theirs at the same time."""
        for _ in range(MAX_WRITES):
            changes = _teach(model.facts, believed_tokens, lesson)
            if not changes:
                return
            calibrated = model.is_calibrated and "ratio" not in changes
            await self._write(name, model, calibrated=calibrated, **changes)

    def _adopt(self, model: _Model, generation: int, record: Record, *, is_first: bool) -> None:
        """Go by a record from now on."""
        before = model.facts
        window_tokens = record.window_tokens or before.window_tokens
        model.facts = recall(record, window_tokens)
        model.generation, model.is_calibrated, model.is_taught = generation, record.calibrated, False
        model.calibration.restart(is_calibrated=record.calibrated)
        if is_first:
            return
        for cause, old, new in (
            ("calibration", before.ratio, record.ratio),
            ("window", before.window_tokens, model.facts.window_tokens),
            ("window", before.learned_tokens, model.facts.learned_tokens),
        ):
            if old != new:
                self._metrics.policy_changes.labels(model.label, cause).inc()
                self._log.info("policy_changed", model=model.label, cause=cause, before=old, after=new)

    async def _ask(self, upstream: UpstreamConfig, headers: Headers) -> None:
        await self._told.ask(upstream, headers)
        for name, model in (*self._models.items(), *self._strangers.items()):
            if name.base_url == upstream.base_url and model.read_at:  # else its first look at the store takes it
                await self._take_window(name, model)


def _teach(known: Facts, believed_tokens: int, lesson: Lesson) -> dict[str, Any]:
    """What a lesson changes of what is known."""
    changes: dict[str, Any] = {}
    window_tokens = lesson.window_tokens or 0
    is_guess_too_many = not lesson.is_certain and window_tokens > (known.learned_tokens or window_tokens)
    if window_tokens >= MIN_WINDOW_TOKENS and known.correct(believed_tokens) != window_tokens and not is_guess_too_many:
        others = tuple(item for item in known.refuted if item != believed_tokens)
        changes |= {"learned_tokens": window_tokens, "refuted": (*others, believed_tokens)[-MAX_REFUTED:]}
    if lesson.ratio is not None and clamp(lesson.ratio) != known.ratio:
        changes["ratio"] = clamp(lesson.ratio)
    if lesson.added_tokens is not None and lesson.added_tokens > (known.added_tokens or -1):
        changes["added_tokens"] = lesson.added_tokens
    return changes


def _show(name: ModelName, model: _Model) -> Known:
    samples, error = len(model.calibration.samples), model.calibration.error
    return Known(name, complete(name, model.facts), model.is_calibrated, samples, error)
