"""Learns the ratios and context windows of models from their upstreams, and looks them up for requests.

Law: what is known changes in rare steps. Each step is counted and written to the store, so all processes and replicas
plan with the same figures. What a client's requests teach counts for that client; hypotheses.py says when it counts for
all clients. A request waits only for the first read of a model from the store, for a lesson of its own refusal, and for
the count of a server with a tokenizer, a few times for each kind of text.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from trimtab.proxy.catalogue.prices import MIN_WINDOW_TOKENS, is_ready, load_catalogue
from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.http.client import UpstreamClient
from trimtab.proxy.http.headers import Headers
from trimtab.proxy.models.calibration import MIN_SAMPLE_TOKENS, NOISE_SHARE, Report
from trimtab.proxy.models.hypotheses import MAX_FAILURES, claim, combine, contradict, doubt_ratio, is_test_due, retract
from trimtab.proxy.models.keeping import REFRESH_SECONDS, FindChanges, Kept, Model, Scales, Told
from trimtab.proxy.models.lessons import Lesson, find_changes
from trimtab.proxy.models.records import (
    Claim,
    Facts,
    Known,
    ModelName,
    Records,
    complete,
    expect_scale,
    list_learned,
    recall,
    take_measured,
    take_prompt,
)
from trimtab.proxy.models.tokenizer import Prompt, measure_prompt
from trimtab.proxy.store.store import SummaryStore
from trimtab.proxy.tasks import Tasks
from trimtab.proxy.telemetry.metrics import Metrics
from trimtab.rules.tokens.families import SILENT

READ_SECONDS = 2.0  # How long a request waits for the store, at most. Chosen: the time limit of the SQLite store.
MAX_NAME_CHARS = 256  # Nothing is kept of a model with a longer name. Chosen: far above real names; bounds the memory.


class Models:
    """Looks up, learns and keeps facts about models; close it. read_seconds: a request waits so long for the store."""

    def __init__(
        self,
        store: SummaryStore,
        client: UpstreamClient,
        metrics: Metrics,
        log: Any,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.read_seconds = READ_SECONDS
        self._told = Told(client, clock)
        self._tasks = Tasks(lambda error: log.error("models_fault", error=type(error).__name__))
        self.find_slots = self._told.find_slots
        self.list_told = self._told.list_models
        self._kept = Kept(Records(store), self._told.find, self._tasks, metrics, log, clock)
        self._metrics = metrics
        self._log = log
        self._clock = clock
        self._wall_clock = wall_clock

    async def look_up(self, name: ModelName, label: str) -> Facts:
        """The facts to plan with. A model's first request waits for the store; later ones have it read meanwhile."""
        if len(name.model) > MAX_NAME_CHARS:
            return self.recall(name)
        model, of_all = self._kept.find_both(name)
        if model is None or of_all is None:
            of_all, model = self._kept.meet(name.of_all), self._kept.meet(name)
        model.label = of_all.label = label
        own_at, all_at = model.read_at, of_all.read_at
        if own_at is None or all_at is None or self._clock() - min(own_at, all_at) > REFRESH_SECONDS:
            await self._refresh(model, of_all)
        if model.known.forgotten < of_all.known.forgotten:  # an operator had the model forgotten
            model.forget(msgspec.structs.replace(self._kept.begin(name), forgotten=of_all.known.forgotten))
        seen = model.known, of_all.known, model.most_answered
        if model.completed is None or model.completed[0] != seen:
            if not is_ready(name.base_url):
                await asyncio.to_thread(load_catalogue, (name.base_url,))
            facts = complete(name, combine(model.facts, of_all.facts))
            model.completed = seen, facts
        return model.completed[1]

    async def _refresh(self, model: Model, of_all: Model) -> None:
        """Read the store. Waits only for the first time."""
        reading = {self._kept.refresh(of_all), self._kept.refresh(model)} - {None}
        if reading:
            await asyncio.wait(filter(None, reading), timeout=self.read_seconds)
            for one in (of_all, model):
                one.read_at = one.read_at or self._clock()  # requests wait only once for a store that hangs

    def recall(self, name: ModelName) -> Facts:
        """The facts in this process's memory, without reading the store; with the catalogue's window if needed."""
        models = zip((name, name.of_all), map(self._kept.find, (name, name.of_all)), strict=True)
        own, of_all = (recall(self._kept.begin(one)) if model is None else model.facts for one, model in models)
        return complete(name, combine(own, of_all))

    def list_known(self) -> list[Known]:
        return [
            Known(
                model.name,
                self.recall(model.name),
                model.known.calibrated,
                model.calibration.number,
                model.calibration.error,
                list_learned(model.known, for_all=not model.name.tenant),
            )
            for _, model in self._kept.vouched.items()
        ]

    def observe(self, name: ModelName, report: Report) -> None:
        model = self._kept.vouched.get(name.key)
        if model is None or report.counted_tokens < MIN_SAMPLE_TOKENS:
            return
        calibration, kept = model.calibration, model.scales
        scales = kept[1] if kept is not None and kept[0] is model.known else model.find_scales()
        is_due = calibration.add(report, *scales[:2])
        if calibration.stays_off(is_calibrated=model.known.calibrated) and not model.warned:
            model.warned = True
            self._log.warning(
                "estimates_off",
                model=model.label,
                mean_error=round(calibration.error, 3),
                meaning="the upstream reports a different number of prompt tokens than trimtab counts",
            )
        self._watch_cuts(name, model, report)
        if is_due and (model.writing is None or model.writing.done()):  # else the ratio in `known` is about to change
            self._calibrate(name, model, scales)

    def _calibrate(self, name: ModelName, model: Model, scales: Scales) -> None:
        known, (scale, _, ratios) = model.known, scales
        found = model.calibration.measure(scale, ratios)
        if not found:
            return
        changes = take_measured(scale, known, found, ratios)
        changes["calibrated"] = known.calibrated or any(each.is_settled for each in found)
        if changes["ratio"] != scale.ratio or "weights" in changes:
            changes |= {"ratio_source": "answers", "ratio_at": self._wall_clock()}
            if known.refused_tokens is not None:  # it was computed with the old ratio
                changes["refused_tokens"] = round(known.refused_tokens * changes["ratio"] / scale.ratio)
        model.writing = self._tasks.start(self._kept.write(model, **changes))
        if changes["calibrated"]:
            settled = tuple(each for each in changes["measured"] if each.is_settled)
            weights = changes.get("weights", known.weights)
            self._claim_soon(name, Claim(name.key_id, ratio=changes["ratio"], weights=weights, measured=settled))

    def note_answer(self, name: ModelName, tokens: int, *, is_test: bool = False, vouches: bool = True) -> None:
        """Learn that a prompt of this size, in the model's tokens, was answered: the window is at least that large.

        tokens: 0 if the size proves nothing. vouches: the model is no invented name, so what is learned may be written.
        is_test: it was a test, which succeeded. Then a ratio that no usage report confirmed is dropped, too.
        """
        model, of_all = self._kept.find_both(name)
        if model is None or of_all is None:
            return
        if vouches and not (model.is_vouched and of_all.is_vouched):
            self._kept.vouch_for(model)
            self._kept.vouch_for(of_all)
        model.most_answered = max(model.most_answered, tokens)
        own, all_learned = model.known, of_all.known.learned_tokens
        has_window = own.learned_tokens is not None or all_learned is not None  # else there is nothing to contradict
        changes = contradict(own, of_all.known, tokens) if has_window else {}
        if is_test:
            changes |= doubt_ratio(model.known, of_all.known, expect_scale(name, model.known.reading).ratio)
        if changes:
            model.writing = self._tasks.start(self._kept.write(model, **changes))
            self._change_of_all(name, partial(retract, name.key_id))

    def may_test_ratio(self, name: ModelName) -> bool:
        """Whether a request may go out by the family's ratio: no test of this client has failed."""
        model = self._kept.find(name)
        return model is not None and not model.known.failures

    def take_test(self, name: ModelName) -> bool:
        """Count a request that was cut because of something learned. Returns True if it is to be sent as a test."""
        model, of_all = self._kept.find_both(name)
        if model is None or of_all is None:
            return False
        model.cut_requests += 1
        is_due = is_test_due(model.known, of_all.known, model.cut_requests)
        model.cut_requests = 0 if is_due else model.cut_requests
        return is_due

    def fail_test(self, name: ModelName) -> None:
        model = self._kept.find(name)
        if model is not None and model.known.failures < MAX_FAILURES:
            model.writing = self._tasks.start(self._kept.write(model, failures=model.known.failures + 1))

    def _watch_cuts(self, name: ModelName, model: Model, report: Report) -> None:
        if model.calibration.cuts_short:
            self._metrics.silent_truncations[model.label] += 1
        window_tokens = model.calibration.find_window()
        if window_tokens is None or window_tokens < MIN_WINDOW_TOKENS or not report.believed_tokens:
            return
        if model.facts.correct(report.believed_tokens) <= window_tokens:
            return
        self._log.warning(
            "prompts_cut_short",
            model=model.label,
            window_tokens=window_tokens,
            meaning="the upstream reports far fewer prompt tokens than trimtab sent: it drops what does not fit",
        )
        scale, *_ = model.find_scales()
        model.calibration.restart(scale, scale)
        lesson = Lesson(window_tokens, source="cut prompts")
        model.writing = self._tasks.start(self.learn(name, report.believed_tokens, lesson))

    def learn_soon(self, name: ModelName, believed_tokens: int, lesson: Lesson) -> None:
        _ = self._tasks.start(self.learn(name, believed_tokens, lesson))

    async def learn(self, name: ModelName, believed_tokens: int, lesson: Lesson) -> None:
        """Learn a lesson about a prompt that was planned with this window. Waits up to `read_seconds`."""
        model = self._kept.find(name)
        if model is None:
            return
        lesson = lesson.given(model.calibration.most_reported)
        await self._keep(model, partial(find_changes, believed_tokens, lesson, now=self._wall_clock()))
        if lesson.is_certain and lesson.source == "refused prompt":
            # Without the ratio: only usage reports prove a ratio well enough for other clients.
            met = (believed_tokens, lesson.window_tokens, lesson.added_tokens)
            self._claim_soon(name, Claim(name.key_id, *met))

    async def _keep(self, model: Model, find_changes: FindChanges) -> None:
        """Write changes, and wait for the store for at most `read_seconds`."""
        known = model.known
        if model.is_vouched and find_changes(known):
            writing = self._tasks.start(self._kept.change(model, find_changes))
            await asyncio.wait({writing}, timeout=self.read_seconds)
        # Not written, because the model is not vouched or the store hangs: keep it in memory, or the next request would
        # be refused or counted wrongly, too.
        if model.known == known:
            model.teach(find_changes(known))

    async def measure(self, name: ModelName, prompt: Prompt, upstream: UpstreamConfig, headers: Headers) -> bool:
        """Have a server count a prompt of a new kind of text, which waits. Returns whether it counts otherwise."""
        model = self._kept.find(name)
        if model is None or not model.known.reading.samples:
            return False
        kind = prompt.find_kind(drops_calls=model.known.reading.drops_calls)
        calibration = model.calibration
        share = calibration.take_question(kind, prompt.sent.tokens, is_first=prompt.is_first)
        if share is None:
            return False
        row = await measure_prompt(self._told.bind(upstream, headers), name.model, prompt)
        if row is None:
            calibration.unanswered.add(kind)
            return False
        if abs(row.tokens / model.find_scales()[0].predict(1.0, row.chars) - 1) <= share:
            return False
        if share == NOISE_SHARE:
            await self._keep(model, partial(take_prompt, name, row))
        else:  # neither written nor measured again: the records would grow in number with each change of language
            model.teach(take_prompt(name, row._replace(is_settled=True), model.known))
        return True

    def _claim_soon(self, name: ModelName, met: Claim) -> None:
        """Note a client's claim in the record of all, in the background. Does nothing without client keys."""
        expected = expect_scale(name, SILENT)
        self._change_of_all(name, partial(claim, met, now=self._wall_clock(), expected=expected))

    def _change_of_all(self, name: ModelName, find_changes: FindChanges) -> None:
        of_all = self._kept.find(name.of_all)
        if not (name.key_id and name.tenant) or of_all is None:
            return  # without client keys, one client could pose as two
        if of_all.is_vouched:
            _ = self._tasks.start(self._kept.change(of_all, find_changes))
        else:
            of_all.teach(find_changes(of_all.known))

    def seek_windows(self, upstream: UpstreamConfig, headers: Headers = (), tenant: str = "") -> None:
        """Ask an upstream for its windows in the background, if due.

        headers: the credential of `tenant`, for whom alone the answer counts; without them, it counts for all.
        """
        tenant = tenant if headers else ""
        if self._told.take_turn(upstream, tenant):
            _ = self._tasks.start(self._ask(upstream, headers, tenant))

    async def settle(self) -> None:
        await self._tasks.settle()

    async def close(self) -> None:
        await self._tasks.close()

    async def _ask(self, upstream: UpstreamConfig, headers: Headers, tenant: str) -> None:
        await self._told.ask(upstream, headers, tenant)
        await self._kept.take_windows(upstream.base_url, tenant)
