"""Measures how fast tool results are tidied and truncated: recorded outputs by kind, long texts, and the event loop.

Law: processor time, not the clock; things that are compared take turns in one run. A separate probe
(harness/loop_probe.py) watches the loop while the work runs in a thread.
"""

import asyncio
import gc
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import median

import tiktoken
import uvloop

from bench.figures import judge, print_table
from bench.harness.counting import load_encoding, make_counter
from bench.harness.loop_probe import LAG_HEADINGS, Lag, Probe, describe_lags
from bench.material.tool_outputs import Output
from bench.retention.shorteners import DEFAULT_BUDGET_TOKENS, load_counter, tidy_ours, truncate_ours
from bench.retention.texts import MEGABYTE, SHAPES, make_shape
from trimtab.rules.conversation import CountTokens

GOAL_TIDY_MB_PER_SECOND = 15.0
GOAL_TRUNCATE_MB_PER_SECOND = 10.0
GOAL_HELD_MS = 10.0
SIZES_MB = (1, 5, 20)
LINEAR = 1.5
"""Chosen: a megabyte of the longest text may take this many times a megabyte of the shortest."""
NEGLIGIBLE_SECONDS = 0.001
"""Seconds for a megabyte. Chosen: a fiftieth of the goal is noise."""
PATIENCE_SECONDS = 60.0
"""Chosen: a text is skipped if, judged by a smaller one, its largest size would take longer."""
SHAPE_ROUNDS = 3
"""Chosen: rounds for the shortest texts; longer ones are measured once."""
LOOP_ROUNDS = 2
BREATH_SECONDS = 0.2

Work = Callable[[], object]
TIDY, TRUNCATE, COUNTED = "tidying", "truncation", "both, with counting"


@dataclass(frozen=True, slots=True)
class Subject:
    """A text whose tokens the shell has counted before."""

    name: str
    text: str
    tokens: int
    is_file: bool = False
    tidied_tokens: dict[int, int] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Size of the text in UTF-8."""
        return len(self.text.encode("utf-8", "surrogatepass"))

    def make_works(self) -> dict[str, Work]:
        """The works to measure: with the counts of whole texts known, as in the proxy, or with nothing counted."""
        fresh = make_counter(_load())
        known = self._know(make_counter(_load()))
        text, limit = self.text, DEFAULT_BUDGET_TOKENS
        return {
            TIDY: lambda: tidy_ours(text, limit, self._count_tidied, is_file=self.is_file),
            TRUNCATE: lambda: truncate_ours(text, limit, known),
            COUNTED: lambda: truncate_ours(tidy_ours(text, limit, fresh, is_file=self.is_file), limit, fresh),
        }

    def _know(self, count: CountTokens) -> CountTokens:
        return lambda text: self.tokens if text is self.text else count(text)

    def _count_tidied(self, text: str) -> int:
        """Tidying asks whether its result fits. Count it once; later it is known by its length at no cost."""
        if len(text) not in self.tidied_tokens:
            self.tidied_tokens[len(text)] = self.tokens if text is self.text else load_counter()(text)
        return self.tidied_tokens[len(text)]

    def warm(self) -> None:
        """Count once what tidying will ask for."""
        self.make_works()[TIDY]()


@cache
def _load() -> tiktoken.Encoding:
    return load_encoding()


def show_speed(outputs: Sequence[Output], rounds: int, sizes_mb: Sequence[int]) -> None:
    """Print all tables, each with its goal."""
    _show_kinds(outputs, rounds)
    _show_shapes(sizes_mb)
    _show_loop(outputs, sizes_mb[-1])


def _show_kinds(outputs: Sequence[Output], rounds: int) -> None:
    count = load_counter()
    subjects = [Subject(output.kind, output.text, count(output.text), output.is_file) for output in outputs]
    seconds = _measure_rounds(subjects, rounds)
    kinds = sorted({subject.name for subject in subjects})
    print_table(
        f"Speed, MB/s of processor time, medians of {rounds} rounds by turns; truncation to"
        f" {DEFAULT_BUDGET_TOKENS} tokens, the whole text's count known; or neither's",
        ("kind", "MB", TIDY, TRUNCATE, COUNTED),
        [_describe_kind(kind, subjects, seconds) for kind in (*kinds, "")],
    )
    for name, goal in ((TIDY, GOAL_TIDY_MB_PER_SECOND), (TRUNCATE, GOAL_TRUNCATE_MB_PER_SECOND)):
        rate = _rate(subjects, seconds[name])
        print(f"\n{name}: {rate:.1f} MB/s, goal {goal:g}: {'met' if rate >= goal else 'MISSED'}", flush=True)


def _measure_rounds(subjects: Sequence[Subject], rounds: int) -> dict[str, list[list[float]]]:
    """Seconds by work, subject and round."""
    for subject in subjects:
        subject.warm()
    seconds: dict[str, list[list[float]]] = {name: [[] for _ in subjects] for name in (TIDY, TRUNCATE, COUNTED)}
    for number in range(rounds):
        for place, subject in enumerate(subjects):
            works = list(subject.make_works().items())
            turn = (number + place) % len(works)
            for name, work in (*works[turn:], *works[:turn]):
                seconds[name][place].append(_time(work))
    return seconds


def _time(work: Work) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _rate(subjects: Sequence[Subject], seconds: Sequence[Sequence[float]], kind: str = "") -> float:
    """MB/s of one kind or of all: their bytes divided by the median round."""
    chosen = [place for place, subject in enumerate(subjects) if subject.name == kind or not kind]
    size_mb = sum(subjects[place].size_bytes for place in chosen) / MEGABYTE
    sums = [float(sum(taken)) for taken in zip(*(seconds[place] for place in chosen), strict=True)]
    return size_mb / max(median(sums), 1e-9)


def _describe_kind(kind: str, subjects: Sequence[Subject], seconds: dict[str, list[list[float]]]) -> list[str]:
    size_mb = sum(subject.size_bytes for subject in subjects if subject.name == kind or not kind) / MEGABYTE
    rates = (_rate(subjects, each, kind) for each in seconds.values())
    return [kind or "all", f"{size_mb:.2f}", *(f"{rate:,.1f}" for rate in rates)]


def _show_shapes(sizes_mb: Sequence[int]) -> None:
    """Print the table, and whether the time of each shape is proportional to its length."""
    rows, bent = [], []
    for shape in SHAPES:
        per_mb = _measure_shape(shape, sizes_mb)
        rows.append([shape, *(_describe_growth(values, len(sizes_mb)) for values in per_mb.values())])
        bent += [f"{shape}, {name}" for name in (TIDY, TRUNCATE) if not _is_linear(per_mb[name], len(sizes_mb))]
    sizes = ", ".join(map(str, sizes_mb))
    print_table(f"Long texts: ms for a megabyte, texts of {sizes} MB", ("text", TIDY, TRUNCATE, COUNTED), rows)
    print(f"\nlinear: {'all' if not bent else 'MISSED by ' + '; '.join(bent)}", flush=True)


def _measure_shape(shape: str, sizes_mb: Sequence[int]) -> dict[str, list[float]]:
    """Seconds for a megabyte by work and size, until a text takes too long."""
    per_mb: dict[str, list[float]] = {TIDY: [], TRUNCATE: [], COUNTED: []}
    for size_mb in sizes_mb:
        subject = _make_subject(shape, size_mb)
        rounds = 1 if size_mb > SIZES_MB[0] else SHAPE_ROUNDS
        for name, each in _measure_rounds([subject], rounds).items():
            seconds = median(each[0])
            per_mb[name].append(seconds / (subject.size_bytes / MEGABYTE))
            print(f"{shape}, {size_mb} MB, {name}: {seconds:.2f} s", file=sys.stderr, flush=True)
        if max(values[-1] for values in per_mb.values()) * sizes_mb[-1] > PATIENCE_SECONDS:
            break
    return per_mb


def _make_subject(shape: str, size_mb: int) -> Subject:
    text = make_shape(shape, size_mb * MEGABYTE)
    return Subject(shape, text, make_counter(_load())(text))


def _describe_growth(seconds_per_mb: Sequence[float], sizes: int) -> str:
    given_up = "" if len(seconds_per_mb) == sizes else ", given up"
    return ", ".join(f"{seconds * 1000:.1f}" for seconds in seconds_per_mb) + given_up


def _is_linear(seconds_per_mb: Sequence[float], sizes: int) -> bool:
    """Times below the threshold count as linear."""
    slowest = max(seconds_per_mb[1:], default=0.0)
    return len(seconds_per_mb) == sizes and slowest <= max(LINEAR * seconds_per_mb[0], NEGLIGIBLE_SECONDS)


def _show_loop(outputs: Sequence[Output], size_mb: int) -> None:
    """Print the delays, and whether one was longer than the goal."""
    largest = max(outputs, key=lambda output: len(output.text))
    recorded = Subject(largest.name, largest.text, load_counter()(largest.text), largest.is_file)
    subjects = [recorded, *(_make_subject(shape, size_mb) for shape in SHAPES)]
    for subject in subjects:
        subject.warm()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        measured = runner.run(_watch(subjects))
    print_table(
        f"Delays of the event loop in ms while {size_mb} MB are worked on in a thread, {LOOP_ROUNDS} times",
        ("text", *LAG_HEADINGS),
        [[name, *describe_lags(lags, idle)] for name, (lags, idle) in measured.items()],
    )
    longest = max(lag.program for lags, _ in measured.values() for lag in lags)
    print(f"\nlongest of the program: {longest:.1f} ms, {judge(longest, GOAL_HELD_MS, 'ms')}", flush=True)


Lags = Sequence[Lag]


async def _watch(subjects: Sequence[Subject]) -> dict[str, tuple[Lags, Lags]]:
    """By text and work: the delays during the work, and those of the idle loop afterwards."""
    gc.freeze()  # as `trimtab serve` does
    probe = Probe()
    measured: dict[str, tuple[Lags, Lags]] = {}
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(probe.run())
        for subject in subjects:
            works = subject.make_works()
            for name in (TIDY, TRUNCATE):
                await asyncio.sleep(BREATH_SECONDS)
                probe.take()
                for _ in range(LOOP_ROUNDS):
                    await asyncio.to_thread(works[name])
                busy = [lag for _, lag in probe.take()]
                await asyncio.sleep(BREATH_SECONDS)
                measured[f"{subject.name}, {name}"] = (busy, [lag for _, lag in probe.take()])
        watching.cancel()
    return measured
