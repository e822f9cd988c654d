"""What one process knows of models: what is read from the store and written to it, and what their upstreams say.

Law: only this module writes anything learned to the store, and only about vouched models, of which the upstream has
answered a request with success: anybody can invent a name and have it refused. Other processes learn only from written
records. hypotheses.py says for which clients something learned counts. Names that clients invent never push a vouched
model out of memory.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.http.client import UpstreamClient
from trimtab.proxy.http.headers import Headers
from trimtab.proxy.lru import BytesLRU
from trimtab.proxy.models.calibration import Calibration
from trimtab.proxy.models.discovery import Windows, bind, discover
from trimtab.proxy.models.records import (
    UNMEASURED,
    Bounds,
    Facts,
    ModelName,
    Record,
    Records,
    expect_scale,
    find_ratios,
    find_scale,
    recall,
)
from trimtab.proxy.models.tokenizer import Post
from trimtab.proxy.tasks import Tasks, find_pause
from trimtab.proxy.telemetry.metrics import Metrics
from trimtab.rules.tokens.families import SILENT, Reading
from trimtab.rules.tokens.scripts import Scale

REFRESH_SECONDS = 10.0  # Age at which a request has the store read again. Chosen: processes learn so late from others.
MAX_MODELS_BYTES = 4 * 1024 * 1024  # Memory for vouched models. Chosen: room for a thousand.
MODEL_BYTES = 4096  # Assumed memory of one model. Measured by tracemalloc: 2.7 kB when new, 4.9 kB with all samples.
MAX_WRITES = 3  # Attempts at one change. Chosen: more are rarely needed; the next report brings it again.
REDISCOVER_SECONDS = 600.0  # After an answer with windows. Chosen: a server must restart or gain a model for new ones.
FIRST_RETRY_SECONDS = 5.0  # After none, doubled up to REDISCOVER_SECONDS. Chosen: the upstream may be starting.
MAX_ASKING = 16  # With clients' credentials at once. Chosen: bounds the load that new credentials can cause.
MAX_TOLD_BYTES = 8 * 1024 * 1024  # Memory for the answers to single tenants. Chosen: room for some 40,000 windows.
WINDOW_BYTES = 200  # estimated memory of one window in an answer: the name, the number, and their entry in a dictionary

FindTold = Callable[[ModelName], tuple[int | None, Reading]]
"""What the upstream said of a model: its window in tokens, None if it reported none; and how it reads prompts."""
FindChanges = Callable[[Record], dict[str, Any]]
"""The fields to change in a record, given the record; empty for no change."""


Scales = tuple[Scale, Scale, Bounds]
Change = tuple[str, Any, Any]  # The cause (a label of the metric), the value before, and the value now


class Model(msgspec.Struct):
    """One model in this process's memory, as known to one client or to all.

    known: the family's defaults at first, then the last record, changed by lessons since.
    is_vouched: the upstream has answered a request for this model with success, so its name is not invented.
    is_taught: a lesson changed `known`, and no record has it yet.
    generation: number of records that the store has, as far as this process knows.
    discovered: what the upstream said, as last taken into `known`.
    cut_requests: requests that were cut because of something learned, since the last test.
    most_answered: the longest answered prompt, in the model's tokens.
    read_at: when the store was last read, by the monotonic clock; None before the first time.
    reading, writing: the last task that reads the store for this model, and the last one that writes to it.
    completed: a cache: the facts, after the three values that they were computed from (the model's record, the record
        of all, and the longest answered prompt).
    scales: a cache as well: of `find_scales`, after the record that they are of.
    """

    name: ModelName
    known: Record
    is_vouched: bool = False
    is_taught: bool = False
    generation: int = 0
    discovered: tuple[int | None, Reading] | None = None
    cut_requests: int = 0
    most_answered: int = 0
    calibration: Calibration = msgspec.field(default_factory=Calibration)
    label: str = "other"
    warned: bool = False
    read_at: float | None = None
    reading: asyncio.Task[None] | None = None
    writing: asyncio.Task[None] | None = None
    completed: tuple[tuple[Record, Record, int], Facts] | None = None
    scales: tuple[Record, Scales] | None = None

    @property
    def facts(self) -> Facts:
        facts = recall(self.known)
        is_news = self.most_answered > facts.answered_tokens
        return replace(facts, answered_tokens=self.most_answered) if is_news else facts

    def forget(self, record: Record) -> None:
        self.known, self.is_taught, self.cut_requests = record, False, 0
        self.calibration = Calibration()

    def find_scales(self) -> Scales:
        if self.scales is None or self.scales[0] is not self.known:
            expected, ratios = expect_scale(self.name, self.known.reading), find_ratios(self.name.model)
            self.scales = self.known, (find_scale(self.name, self.known), expected, ratios)
        return self.scales[1]

    def restart(self, before: Scale, after: Scale) -> None:
        settled = [each.kind for each in self.known.shown if each.is_settled]
        self.calibration.restart(before, after, settled)

    def teach(self, changes: dict[str, Any]) -> None:
        if changes:
            before = self.known
            self.known = msgspec.structs.replace(before, **changes)
            self.is_taught = True
            if "measured" in changes:
                self.restart(find_scale(self.name, before), find_scale(self.name, self.known))

    def adopts(self, generation: int, record: Record) -> bool:
        """Whether to use a record that was read: a newer one, or with another ratio if no lesson is unwritten.

        After an outage of the store, the record at the same place may be that of another process.
        """
        is_another = (record.ratio, record.weights) != (self.known.ratio, self.known.weights) and not self.is_taught
        return generation > self.generation or is_another

    def adopt(self, generation: int, record: Record) -> list[Change]:
        """Use a record from now on. Returns the values that changed."""
        before = self.known
        # The record may be from a process that has not asked for the window.
        known = msgspec.structs.replace(record, window_tokens=record.window_tokens or before.window_tokens)
        if record.reading == SILENT != before.reading:
            told: dict[str, Any] = {"reading": before.reading, "ratio": expect_scale(self.name, before.reading).ratio}
            known = msgspec.structs.replace(known, **told, calibrated=False, **UNMEASURED)
        old, new = find_scale(self.name, before), find_scale(self.name, known)
        self.known, self.generation, self.is_taught = known, generation, False
        self.restart(old, new)
        scales: Change = ("calibration", old.ratio, new.ratio)
        if old.weights != new.weights:
            scales = ("calibration", [old.ratio, *old.weights], [new.ratio, *new.weights])
        changes: list[Change] = [
            scales,
            ("window", before.window_tokens, known.window_tokens),
            ("window", before.learned_tokens, known.learned_tokens),
        ]
        return [change for change in changes if change[1] != change[2]]


class Kept:
    """The models that a process knows, for each client and for all. vouched: an upstream has answered for them."""

    def __init__(
        self,
        records: Records,
        find_told: FindTold,
        tasks: Tasks,
        metrics: Metrics,
        log: Any,
        clock: Callable[[], float],
    ) -> None:
        self._records = records
        self._find_told = find_told
        self._tasks = tasks
        self._metrics = metrics
        self._log = log
        self._clock = clock
        self.vouched: BytesLRU[str, Model] = BytesLRU(MAX_MODELS_BYTES, lambda *_: MODEL_BYTES)
        self._strangers: BytesLRU[str, Model] = BytesLRU(MAX_MODELS_BYTES // 8, lambda *_: MODEL_BYTES)
        """Kept separately, so that invented names cannot push out vouched models."""

    def find(self, name: ModelName) -> Model | None:
        return self.vouched.get(name.key) or self._strangers.get(name.key)

    def find_both(self, name: ModelName) -> tuple[Model | None, Model | None]:
        own, of_all = self.vouched.get_many((name.key, name.of_all.key))
        return own or self._strangers.get(name.key), of_all or self._strangers.get(name.of_all.key)

    def meet(self, name: ModelName) -> Model:
        model = self.find(name)
        if model is None:
            model = self._strangers[name.key] = Model(name, self.begin(name))
        return model

    def begin(self, name: ModelName) -> Record:
        """The record to start with: the expected ratio, and what the upstream says of itself."""
        window_tokens, reading = self._find_told(name)
        return Record(expect_scale(name, reading).ratio, window_tokens, reading=reading)

    def vouch_for(self, model: Model) -> None:
        """Note that the upstream has answered a request for this model: what is learned of it may be written now."""
        if model.is_vouched or self._strangers.pop(model.name.key) is None:
            return
        model.is_vouched = True
        self.vouched[model.name.key] = model
        if model.is_taught:
            model.writing = self._tasks.start(self.write(model))
        elif model.read_at is not None:
            model.reading = self._tasks.start(self.take_window(model))

    def refresh(self, model: Model) -> asyncio.Task[None] | None:
        """Start to read the store if that is due. Returns the task to wait for if it was never read, else None."""
        is_old = model.read_at is None or self._clock() - model.read_at > REFRESH_SECONDS
        if is_old and (model.reading is None or model.reading.done()):
            model.reading = self._tasks.start(self._read(model))
        return model.reading if model.read_at is None else None

    async def take_windows(self, base_url: str, tenant: str) -> None:
        """Take over what an upstream has told a tenant, or anybody. The models not read yet take it at their read."""
        for _, model in (*self.vouched.items(), *self._strangers.items()):
            name = model.name
            if model.read_at is not None and name.base_url == base_url and tenant in {"", name.tenant}:
                await self.take_window(model)

    async def take_window(self, model: Model) -> None:
        """Take over the window and the reading that discovery found, and write them if the model is vouched.

        What is reported is taken over once. If the record differs later, another process has asked more recently.
        """
        found, reading = told = self._find_told(model.name)
        if (found is None and reading == SILENT) or told == model.discovered:
            return
        changes: dict[str, Any] = {} if found is None else {"window_tokens": found}
        if reading not in {SILENT, model.known.reading}:
            changes["reading"] = reading
            if reading.samples != model.known.reading.samples:  # another count: what was learned is void
                changes |= {"ratio": expect_scale(model.name, reading).ratio, "calibrated": False, "ratio_source": ""}
                changes |= UNMEASURED
                model.calibration = Calibration()
        known = msgspec.structs.replace(model.known, **changes)
        if not model.is_vouched:
            model.known = known
            return
        if known != model.known or not model.generation:
            await self.write(model, **changes)
        if known == model.known:  # else another process's record won: try again after the next read
            model.discovered = told

    async def write(self, model: Model, **changes: Any) -> None:
        """Write a change as the next record. If another process was faster, its record is adopted instead."""
        record = msgspec.structs.replace(model.known, **changes)
        self._adopt(model, *await self._records.append(model.name, model.generation, record))

    async def change(self, model: Model, find_changes: FindChanges) -> None:
        """Write a change, and try again on top of the other record if another process was faster."""
        for _ in range(MAX_WRITES):
            changes = find_changes(model.known)
            if not changes:
                return
            await self.write(model, **changes)

    async def _read(self, model: Model) -> None:
        # Strategy: the chain of records decides, never this process alone. A longer chain is news; a shorter one means
        # that the store has lost records, so ours is written again; else only a window of discovery may be to be added.
        try:
            generation, record = await self._records.read(model.name)
            of_all = self.find(model.name.of_all)
            if record is not None and of_all is not None and record.forgotten < of_all.known.forgotten:
                record = None  # written before an operator had the model forgotten
            if generation < model.generation and model.is_vouched:  # the store has lost records: write ours again
                model.generation = generation
                await self.write(model)
            elif record is not None and model.adopts(generation, record):
                self._adopt(model, generation, record)
            await self.take_window(model)
        finally:
            model.read_at = self._clock()

    def _adopt(self, model: Model, generation: int, record: Record) -> None:
        for cause, before, after in model.adopt(generation, record):
            if model.read_at is not None:  # else no request was planned with the value before, so nothing changes
                self._metrics.policy_changes[model.label, cause] += 1
                self._log.info("policy_changed", model=model.label, cause=cause, before=before, after=after)


class _Upstream(msgspec.Struct):
    """An upstream's answers to one tenant, or to no credential. failures: answers without a window in a row."""

    windows: Windows = msgspec.field(default_factory=lambda: Windows({}, None))
    has_told: bool = False
    asked_at: float | None = None
    failures: int = 0
    is_being_asked: bool = False


class Told:
    """Asks upstreams for windows and keeps the answers.

    An answer without a credential, or to the operator's own key, counts for all clients. An answer to a client's
    credential counts for that tenant only: another tenant may have other models under the same names.
    """

    def __init__(self, client: UpstreamClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._upstreams: dict[str, _Upstream] = {}
        self._of_tenants: BytesLRU[tuple[str, str], _Upstream] = BytesLRU(
            MAX_TOLD_BYTES, lambda _, known: WINDOW_BYTES * (1 + len(known.windows.by_model))
        )
        self._asking: set[tuple[str, str]] = set()

    def find(self, name: ModelName) -> tuple[int | None, Reading]:
        windows = self._find(name)
        window_tokens = windows.find(name.model) if windows else None
        return window_tokens, SILENT if windows is None or window_tokens is None else windows.reading

    def find_slots(self, name: ModelName) -> int | None:
        """How many requests the model's upstream works on at once; None if it does not say."""
        windows = self._find(name)
        return windows.slots if windows else None

    def _find(self, name: ModelName) -> Windows | None:
        known = self._upstreams.get(name.base_url)
        if known is None or not known.has_told:
            known = self._of_tenants.get((name.base_url, name.tenant))
        return known.windows if known else None

    def list_models(self) -> list[tuple[str, str]]:
        return [(url, model) for url, known in self._upstreams.items() for model in known.windows.by_model]

    def take_turn(self, upstream: UpstreamConfig, tenant: str) -> bool:
        """Whether the caller must ask an upstream now, by `ask`, with the same tenant.

        tenant: whose credential would be sent; empty for none. The credential is used only if the upstream has reported
            no window without one.
        """
        known = anybody = self._upstreams.get(upstream.base_url) or self._upstreams.setdefault(
            upstream.base_url, _Upstream()
        )
        if tenant and not anybody.has_told:
            if len(self._asking) >= MAX_ASKING:
                return False
            known = self._of_tenants.get((upstream.base_url, tenant)) or _Upstream()
        pause_seconds = REDISCOVER_SECONDS
        if not known.has_told:  # it may still be starting
            pause_seconds = find_pause(known.failures, FIRST_RETRY_SECONDS, REDISCOVER_SECONDS)
        is_due = known.asked_at is None or self._clock() - known.asked_at > pause_seconds
        if known.is_being_asked or not is_due:
            return False
        known.is_being_asked = True
        if known is not anybody:
            self._asking.add((upstream.base_url, tenant))
            self._of_tenants[upstream.base_url, tenant] = known
        return True

    def bind(self, upstream: UpstreamConfig, headers: Headers) -> Post:
        return bind(self._client, upstream, headers)

    async def ask(self, upstream: UpstreamConfig, headers: Headers, tenant: str) -> None:
        """Ask an upstream for which `take_turn` returned True. Raises nothing."""
        anybody = self._upstreams[upstream.base_url]
        known = anybody
        if tenant and not anybody.has_told:
            known = self._of_tenants.get((upstream.base_url, tenant)) or _Upstream()
        try:
            found = await discover(self._client, upstream, headers, known.windows)
        finally:
            known.is_being_asked = False
            self._asking.discard((upstream.base_url, tenant))
        known.asked_at = self._clock()
        known.failures += 1
        if found.told_any:
            known.windows, known.has_told = found, True
        if known is not anybody:
            self._of_tenants[upstream.base_url, tenant] = known  # set again, because its size has changed
