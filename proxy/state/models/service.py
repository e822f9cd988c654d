"""What is learned of models from their upstreams: how many tokens they make of ours, and how large their windows are.

Law: it changes in rare steps, each counted and kept in the store, so that every process and every replica plans by the
same figures. What a client has met counts for that client; hypotheses.py says when it counts for all. Nothing here is
waited for, but the store's answer when a process meets a model for the first time.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from proxy.config.schema import UpstreamConfig
from proxy.http.client import UpstreamClient
from proxy.http.headers import Headers
from proxy.state.models.calibration import MIN_SAMPLE_TOKENS, WARM_UP_SAMPLES, Report
from proxy.state.models.catalogue import is_ready, load_catalogue
from proxy.state.models.discovery import MIN_WINDOW_TOKENS
from proxy.state.models.discovery_schedule import Told
from proxy.state.models.facts import Facts, Known, complete, list_learned, recall
from proxy.state.models.hypotheses import MAX_FAILURES, claim, combine, contradict, doubt_ratio, retract
from proxy.state.models.keeping import Entry, FindChanges, Kept
from proxy.state.models.lessons import Lesson, find_changes
from proxy.state.models.records import Claim, ModelName, Records, find_ratios
from proxy.state.stores import SummaryStore
from proxy.tasks import Tasks
from proxy.telemetry.metrics import Metrics
from rules.tokens.families import find_family

READ_SECONDS = 2.0
"""How long a request waits for the store when its model is met for the first time."""
MAX_NAME_CHARS = 256


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
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.read_seconds = READ_SECONDS
        self._told = Told(client, clock)
        self._tasks = Tasks(lambda error: log.error("models_fault", error=type(error).__name__))
        self._kept = Kept(Records(store), self._told.find, self._tasks, metrics, log, clock)
        self._metrics = metrics
        self._log = log
        self._clock = clock
        self._wall_clock = wall_clock

    async def look_up(self, name: ModelName, label: str) -> Facts:
        """What a client's requests are planned by; read from the store at first, behind the scenes from then on.

        Until an upstream has answered for it, a model is kept among others of its kind only: anybody can invent names.
        """
        if len(name.model) > MAX_NAME_CHARS:
            return self.recall(name)
        of_all, model = self._kept.meet(name.of_all, label), self._kept.meet(name, label)
        reading = {self._kept.refresh(name.of_all, of_all), self._kept.refresh(name, model)} - {None}
        if reading:
            await asyncio.wait(filter(None, reading), timeout=self.read_seconds)
            for one in (of_all, model):
                one.read_at = one.read_at or self._clock()  # a store that hangs is waited for once
        if model.known.forgotten < of_all.known.forgotten:
            model.forget(msgspec.structs.replace(self._kept.begin(name), forgotten=of_all.known.forgotten))
        seen = model.known, of_all.known, model.most_answered
        if model.completed is None or model.completed[0] != seen:
            if not is_ready(name.base_url):
                await asyncio.to_thread(load_catalogue, (name.base_url,))
            facts = complete(name, combine(model.facts, of_all.facts))
            model.completed = seen, facts
        return model.completed[1]

    def vouch_for(self, name: ModelName) -> None:
        """An upstream has answered for this model with success."""
        self._kept.vouch_for(name)
        self._kept.vouch_for(name.of_all)

    def recall(self, name: ModelName) -> Facts:
        """What this process knows of a model already, and where it knows no window, the catalogue's."""
        own, of_all = (self._recall(each) for each in (name, name.of_all))
        return complete(name, combine(own, of_all))

    def _recall(self, name: ModelName) -> Facts:
        model = self._kept.find(name)
        return recall(self._kept.begin(name)) if model is None else model.facts

    def list_known(self) -> list[Known]:
        """The models that an upstream has answered for; names that only a client has said are not among them.

        Each once for all, and once for each client that has asked for it.
        """
        return [_show(name, self.recall(name), model) for name, model in self._kept.vouched.items()]

    def list_told(self) -> list[tuple[str, str]]:
        """The upstreams' base_url and model, of each whose window an upstream has told this process."""
        return self._told.list_models()

    def observe(self, name: ModelName, report: Report) -> None:
        """An upstream has reported how many tokens a prompt had for it."""
        model = self._kept.vouched.get(name)
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
            self._calibrate(name, model)

    def _calibrate(self, name: ModelName, model: Entry) -> None:
        """Go by another ratio if the reports say so."""
        calibration, known = model.calibration, model.known
        found = calibration.choose_ratio(known.ratio, is_calibrated=known.calibrated, ratios=find_ratios(name.model))
        if found is None:
            return
        changes: dict[str, Any] = {"calibrated": known.calibrated or len(calibration.samples) >= WARM_UP_SAMPLES}
        if found != known.ratio:
            changes |= {"ratio": found, "ratio_source": "answers", "ratio_at": self._wall_clock()}
            if known.refused_tokens is not None:  # it was counted by the ratio of before
                changes["refused_tokens"] = round(known.refused_tokens * found / known.ratio)
        model.writing = self._tasks.start(self._kept.write(name, model, **changes))
        if changes["calibrated"]:
            self._claim_soon(name, Claim(name.key_id, ratio=found))

    def note_answer(self, name: ModelName, tokens: int, *, is_test: bool = False) -> None:
        """A prompt of so many of the model's tokens was answered: no window is smaller.

        If it was a test, it had left out what was learned, and no ratio is as large as that either.
        """
        model, of_all = self._kept.find(name), self._kept.find(name.of_all)
        if model is None or of_all is None:
            return
        model.most_answered = max(model.most_answered, tokens)
        changes = contradict(model.known, of_all.known, tokens)
        if is_test:
            changes |= doubt_ratio(model.known, of_all.known, find_family(name.model).ratio)
        if changes:
            model.writing = self._tasks.start(self._kept.write(name, model, **changes))
            self._change_of_all(name, partial(retract, name.key_id))

    def take_test(self, name: ModelName) -> bool:
        """Something learned has cut a client's request; whether this one is to test it."""
        model, of_all = self._kept.find(name), self._kept.find(name.of_all)
        return model is not None and of_all is not None and model.take_test(of_all.known)

    def fail_test(self, name: ModelName) -> None:
        """A test was refused: the next one comes later."""
        model = self._kept.find(name)
        if model is not None and model.known.failures < MAX_FAILURES:
            model.writing = self._tasks.start(self._kept.write(name, model, failures=model.known.failures + 1))

    def _watch_cuts(self, name: ModelName, model: Entry, report: Report) -> None:
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
        lesson = Lesson(window_tokens, source="cut prompts")
        model.writing = self._tasks.start(self.learn(name, report.believed_tokens, lesson))

    def learn_soon(self, name: ModelName, believed_tokens: int, lesson: Lesson) -> None:
        """The same as `learn`, behind the scenes."""
        _ = self._tasks.start(self.learn(name, believed_tokens, lesson))

    async def learn(self, name: ModelName, believed_tokens: int, lesson: Lesson) -> None:
        """An upstream has refused a client's prompt that went by a window of `believed_tokens`: it really is another.

        Waits for the store, but not for long.
        """
        model = self._kept.find(name)
        if model is None:
            return
        lesson, known = lesson.given(model.calibration.most_reported), model.known
        now = self._wall_clock()
        if model.is_vouched and model.find_changes(believed_tokens, lesson, now):
            changing = self._kept.change(name, model, partial(find_changes, believed_tokens, lesson, now=now))
            writing = self._tasks.start(changing)
            await asyncio.wait({writing}, timeout=self.read_seconds)
        if model.known == known:  # a stranger's, or the store hangs: the next request must not be refused again
            model.teach(model.find_changes(believed_tokens, lesson, now))
        if lesson.is_certain and lesson.source == "refused prompt":
            met = (believed_tokens, lesson.window_tokens, lesson.added_tokens)
            self._claim_soon(name, Claim(name.key_id, *met))

    def _claim_soon(self, name: ModelName, met: Claim) -> None:
        """A client has met something; what a second one has met, too, counts for all. Without client keys none does."""
        self._change_of_all(name, partial(claim, met, now=self._wall_clock()))

    def _change_of_all(self, name: ModelName, find_changes: FindChanges) -> None:
        of_all = self._kept.find(name.of_all)
        if not (name.key_id and name.tenant) or of_all is None:
            return
        if of_all.is_vouched:
            _ = self._tasks.start(self._kept.change(name.of_all, of_all, find_changes))
        else:
            of_all.teach(find_changes(of_all.known))

    def seek_windows(self, upstream: UpstreamConfig, headers: Headers = (), tenant: str = "") -> None:
        """Ask an upstream for its models' windows behind the scenes, if that is due.

        `headers` are the credential of a `tenant`; what is told to it counts for it alone.
        """
        tenant = tenant if headers else ""
        if self._told.take_turn(upstream, tenant):
            _ = self._tasks.start(self._ask(upstream, headers, tenant))

    async def settle(self) -> None:
        """Wait until nothing is under way that changes what is known."""
        await self._tasks.settle()

    async def close(self) -> None:
        """Give up what is under way."""
        await self._tasks.close()

    async def _ask(self, upstream: UpstreamConfig, headers: Headers, tenant: str) -> None:
        await self._told.ask(upstream, headers, tenant)
        for name, model in self._kept.list_read():  # of others their first look takes it
            if name.base_url == upstream.base_url and tenant in {"", name.tenant}:
                await self._kept.take_window(name, model)


def _show(name: ModelName, facts: Facts, model: Entry) -> Known:
    samples, error = len(model.calibration.samples), model.calibration.error
    learned = list_learned(model.known, for_all=not name.tenant)
    return Known(name, facts, model.known.calibrated, samples, error, learned)
