"""What is learned of models from their upstreams: how many tokens they make of ours, and how large their windows are.

Law: it changes in rare steps, each counted and kept in the store, so that every process and every replica plans by the
same figures. Nothing here is waited for, but the store's answer when a process meets a model for the first time.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from proxy.catalogue import find_window, is_ready, load_catalogue
from proxy.config import UpstreamConfig
from proxy.discovery import Windows, discover
from proxy.lru import BytesLRU
from proxy.metrics import Metrics
from proxy.records import MAX_RATIO, ModelName, Record, Records
from proxy.stores import SummaryStore
from proxy.upstream import Headers, UpstreamClient
from rules.families import find_family

MIN_SAMPLE_TOKENS = 500
"""A smaller request says more of its frame than of the vocabulary."""
MAX_SAMPLE_RATIO = 20.0
MIN_SAMPLE_RATIO = 0.5
"""Of what is expected. No vocabulary makes so few of a text: such a server leaves out what it had cached, or cuts
prompts short, or always says the same. To go by it would fill windows twice over."""
WARM_UP_SAMPLES = 8
URGENT_SAMPLES = 2
URGENT_RATIO = 1.5
URGENT_SHARE = 4
"""A model that reports so much more than expected is not left until it overflows: one answer is enough, of beyond
MAX_RATIO two. What is small beside the limit, a quarter of it or less, may be the server's own preamble: it waits."""
KEPT_SAMPLES = 64
KEPT_SHARE = 0.10
"""A ratio once found is kept until the median of the last samples is further off than this."""
NOISE_SHARE = 0.02
"""What warm-up finds nearer to the expected ratio than this changes nothing: each change breaks a prompt cache."""
ERROR_WEIGHT = 0.2
WARNED_ERROR = 0.15
REFRESH_SECONDS = 10.0
READ_SECONDS = 2.0
"""How long a request waits for the store when its model is met for the first time."""
REDISCOVER_SECONDS = 600.0
FIRST_RETRY_SECONDS = 5.0
"""Where nothing was learned; doubled each time."""
MAX_TRIED = 16
"""Credentials with which an upstream is asked in that time, until one of them teaches something."""
MAX_MODELS_BYTES = 4 * 1024 * 1024
MODEL_BYTES = 4096
MAX_NAME_CHARS = 256


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a model.

    `ratio` is its tokens for one of ours. `window_tokens` is its context window, None where it is not known;
    `from_catalogue` where nobody but the catalogue knows it.
    """

    ratio: float
    window_tokens: int | None = None
    from_catalogue: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """What may be shown of a model: `samples` are those since its ratio was last found, `mean_error` that of counts."""

    name: ModelName
    facts: Facts
    is_calibrated: bool = False
    samples: int = 0
    mean_error: float = 0.0


@dataclass(slots=True)
class _Model:
    """One model's state in this process; `generation` counts the changes that the store has.

    `answers_off` are those in a row after which the mean `error` was too large; `discovered` is the window last learned
    from the upstream by this process itself.
    """

    facts: Facts
    generation: int = 0
    is_calibrated: bool = False
    samples: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_SAMPLES))
    urgent: deque[float] = field(default_factory=lambda: deque(maxlen=WARM_UP_SAMPLES))
    error: float = 0.0
    answers_off: int = 0
    warned: bool = False
    label: str = "other"
    discovered: int | None = None
    reading: asyncio.Task[None] | None = None
    read_at: float = 0.0
    writing: asyncio.Task[None] | None = None


@dataclass(slots=True)
class _Upstream:
    windows: Windows = field(default_factory=lambda: Windows({}, None))
    asked_at: float | None = None
    failures: int = 0
    tried: set[int] = field(default_factory=set)
    asking: asyncio.Task[None] | None = None


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
        self._client = client
        self._metrics = metrics
        self._log = log
        self._clock = clock
        self._models: BytesLRU[ModelName, _Model] = BytesLRU(MAX_MODELS_BYTES, lambda *_: MODEL_BYTES)
        self._strangers: BytesLRU[ModelName, _Model] = BytesLRU(MAX_MODELS_BYTES // 8, lambda *_: MODEL_BYTES)
        self._upstreams: dict[str, _Upstream] = {}
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
            if model.read_at:
                model.reading = self._spawn(self._take_window(name, model))

    def recall(self, name: ModelName) -> Facts:
        """What this process knows of a model already, and where it knows no window, the catalogue's."""
        return complete(name, self._recall(name))

    def _recall(self, name: ModelName) -> Facts:
        model = self._find(name)
        return model.facts if model is not None else Facts(find_family(name.model).ratio, self._find_window(name))

    def list_known(self) -> list[Known]:
        """The models that an upstream has answered for; names that only a client has said are not among them."""
        return [
            Known(name, complete(name, model.facts), model.is_calibrated, len(model.samples), model.error)
            for name, model in self._models.items()
        ]

    def list_told(self) -> list[tuple[str, str]]:
        """The upstreams' base_url and model, of each whose window an upstream has told this process."""
        return [(url, model) for url, known in self._upstreams.items() for model in known.windows.by_model]

    def observe(self, name: ModelName, estimated_tokens: int, reported_tokens: int, limit_tokens: int) -> None:
        """A request of `estimated_tokens` by our own count, without images and the like, was reported as so many.

        `limit_tokens` is what the model's prompts may have: what is far below it is not urgent.
        """
        model = self._models.get(name)
        sample = reported_tokens / max(estimated_tokens, 1)
        if model is None or estimated_tokens < MIN_SAMPLE_TOKENS:
            return
        self._watch_error(model, abs(sample / model.facts.ratio - 1))
        if not MIN_SAMPLE_RATIO * find_family(name.model).ratio <= sample <= MAX_SAMPLE_RATIO:
            return
        model.samples.append(sample)
        if reported_tokens * URGENT_SHARE >= limit_tokens:
            model.urgent.append(sample)
        if model.writing is None or model.writing.done():
            found = _choose_ratio(model)
            if found is not None:
                calibrated = model.is_calibrated or len(model.samples) >= WARM_UP_SAMPLES
                model.writing = self._spawn(self._write(name, model, ratio=found, calibrated=calibrated))

    def seek_windows(self, upstream: UpstreamConfig, headers: Headers | None = None) -> None:
        """Ask an upstream for its models' windows behind the scenes, if that is due; `headers` are a credential's."""
        known = self._upstreams.setdefault(upstream.base_url, _Upstream())
        if known.asking is not None and not known.asking.done():
            return
        has_learned = bool(known.windows.by_model) or known.windows.every is not None
        pause_seconds = REDISCOVER_SECONDS
        if not has_learned:  # it may be starting still
            pause_seconds = min(FIRST_RETRY_SECONDS * 2**known.failures, REDISCOVER_SECONDS)
        is_due = known.asked_at is None or self._clock() - known.asked_at > pause_seconds
        if pause_seconds >= REDISCOVER_SECONDS and is_due:
            known.tried.clear()
        # A credential that was not tried may open what others did not.
        shown = hash(tuple(headers or ()))
        is_let_in = bool(headers) and not has_learned and shown not in known.tried and len(known.tried) < MAX_TRIED
        if is_due or is_let_in:
            known.tried.add(shown)
            known.asking = self._spawn(self._discover(upstream, known, headers or []))

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

    def _find_window(self, name: ModelName) -> int | None:
        """The window that discovery found."""
        known = self._upstreams.get(name.base_url)
        return known.windows.find(name.model) if known else None

    def _find(self, name: ModelName) -> _Model | None:
        return self._models.get(name) or self._strangers.get(name)

    async def _read(self, name: ModelName, model: _Model) -> None:
        """Take over what the store has, all of whose generations are read so that none of them gets too old."""
        try:
            generation, record = await self._records.read(name)
            if generation < model.generation:  # the store has lost what it had
                model.generation = generation
                await self._write(name, model, ratio=model.facts.ratio, calibrated=model.is_calibrated)
            elif record is not None and (generation > model.generation or record.ratio != model.facts.ratio):
                self._adopt(model, generation, record, is_first=model.read_at == 0.0)
            await self._take_window(name, model)
        finally:
            model.read_at = self._clock()

    async def _take_window(self, name: ModelName, model: _Model) -> None:
        """Learn a window that discovery found, once: another process that has asked since knows better."""
        found = self._find_window(name)
        if found is None or found == model.discovered:
            return
        if self._models.get(name) is None:  # nothing is kept of names that anybody can invent
            model.facts = replace(model.facts, window_tokens=found)
            return
        if found != model.facts.window_tokens or not model.generation:
            await self._write(name, model, window_tokens=found, calibrated=model.is_calibrated)
        if found == model.facts.window_tokens:
            model.discovered = found

    async def _write(
        self,
        name: ModelName,
        model: _Model,
        *,
        calibrated: bool,
        ratio: float | None = None,
        window_tokens: int | None = None,
    ) -> None:
        """Make a change, unless another process has made one meanwhile: then that is taken over."""
        known = model.facts
        record = Record(ratio or known.ratio, window_tokens or known.window_tokens, calibrated)
        self._adopt(model, *await self._records.append(name, model.generation, record), is_first=False)

    def _adopt(self, model: _Model, generation: int, record: Record, *, is_first: bool) -> None:
        """Go by a record from now on."""
        before = model.facts
        model.facts = Facts(record.ratio, record.window_tokens or before.window_tokens)
        model.generation, model.is_calibrated = generation, record.calibrated
        model.error, model.answers_off = 0.0, 0
        if record.calibrated:
            model.samples.clear()
            model.urgent.clear()
        if is_first:
            return
        for cause, old, new in (
            ("calibration", before.ratio, record.ratio),
            ("window", before.window_tokens, model.facts.window_tokens),
        ):
            if old != new:
                self._metrics.policy_changes.labels(model.label, cause).inc()
                self._log.info("policy_changed", model=model.label, cause=cause, before=old, after=new)

    def _watch_error(self, model: _Model, error: float) -> None:
        """Say once that a model's counts stay wrong, whatever is done about it."""
        model.error += (min(error, 1.0) - model.error) * ERROR_WEIGHT
        model.answers_off = model.answers_off + 1 if model.error > WARNED_ERROR else 0
        is_settled = model.is_calibrated or not model.samples  # else warm-up is under way
        if is_settled and model.answers_off >= WARM_UP_SAMPLES and not model.warned:
            model.warned = True
            self._log.warning(
                "estimates_off",
                model=model.label,
                mean_error=round(model.error, 3),
                meaning="the upstream reports other prompt tokens than were counted",
            )

    async def _discover(self, upstream: UpstreamConfig, known: _Upstream, headers: Headers) -> None:
        found = await discover(self._client, upstream, headers)
        known.asked_at = self._clock()
        known.failures += 1
        if found.by_model or found.every is not None:
            known.windows, known.failures = found, 0
        for name, model in (*self._models.items(), *self._strangers.items()):
            if name.base_url == upstream.base_url and model.read_at:  # else its first look at the store takes it
                await self._take_window(name, model)


def complete(name: ModelName, facts: Facts) -> Facts:
    """With the catalogue's window where none was learned or discovered; nobody keeps that in the store."""
    if facts.window_tokens is not None:
        return facts
    window_tokens = find_window(name.base_url, name.model)
    return replace(facts, window_tokens=window_tokens, from_catalogue=window_tokens is not None)


def _choose_ratio(model: _Model) -> float | None:
    """The ratio to go by from now on; None where nothing is to change."""
    samples, current = model.samples, model.facts.ratio
    if model.is_calibrated:
        found = _clamp(median(samples))
        return found if len(samples) == KEPT_SAMPLES and abs(found / current - 1) > KEPT_SHARE else None
    if len(samples) >= WARM_UP_SAMPLES:
        found = _clamp(median(samples))
        return found if abs(found / current - 1) > NOISE_SHARE else current
    urgent = model.urgent
    if not urgent or (len(urgent) < URGENT_SAMPLES and urgent[0] > MAX_RATIO):
        return None
    least = _clamp(min(urgent))
    return least if least > URGENT_RATIO * current else None


def _clamp(ratio: float) -> float:
    return round(min(max(ratio, 1 / MAX_RATIO), MAX_RATIO), 4)
