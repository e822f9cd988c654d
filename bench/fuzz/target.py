"""One fuzz target in its own process, for run.py. The last line that it prints is its report, as JSON.

python -m bench.fuzz.target chat --engine atheris --inputs 1000 --until 2000000000 --findings .fuzz-findings
"""

import hashlib
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
MAX_INPUT_BYTES = 2000
SLOW_SECONDS = 5.0
"""Of processor time. Chosen: an input that takes longer is reported as a finding, too."""
HANG_SECONDS = 120
"""Chosen: after this time libFuzzer ends the process."""
EXAMPLES_A_TURN = 5000
"""Chosen: Hypothesis remembers what it has tried, and becomes slower with it."""
SHOWN_CHARS = 300


class Report(msgspec.Struct):
    """How many inputs, in how much time, and each kind of crash.

    A kind is the exception and its place; it has the input and the message of its first crash.
    """

    inputs: int = 0
    crashes: int = 0
    seconds: float = 0.0
    slowest_seconds: float = 0.0
    findings: dict[str, str] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Job:
    """A target, the maximum of inputs, the time to stop (Unix seconds), and the folder for inputs that break it."""

    name: str
    inputs: int
    until: float
    findings: Path


class Run:
    """Feeds a target, and saves inputs that break it."""

    def __init__(self, run: Callable[[bytes], None], job: Job) -> None:
        self.report = Report()
        self._run = run
        self._job = job
        self._seen: set[str] = set()
        self._started = time.perf_counter()

    def feed(self, data: bytes) -> None:
        """Feed one input. After the last one the process ends."""
        started = time.process_time()
        try:
            self._run(data)
        except Exception as error:  # noqa: BLE001 - whatever comes out is a finding
            self._keep(data, error)
        seconds = time.process_time() - started
        if seconds > SLOW_SECONDS:
            self._keep(data, TimeoutError(f"{seconds:.1f} s"))
        report = self.report
        report.slowest_seconds = max(report.slowest_seconds, seconds)
        report.inputs += 1
        if report.inputs >= self._job.inputs or time.time() >= self._job.until:
            report.seconds = time.perf_counter() - self._started
            print("\n" + msgspec.json.encode(report).decode(), flush=True)
            os._exit(0)  # libFuzzer ends only by a crash

    def _keep(self, data: bytes, error: Exception) -> None:
        self.report.crashes += 1
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{type(error).__name__} {frames[-1].name}:{frames[-1].lineno}" if frames else type(error).__name__
        said = str(error)[:SHOWN_CHARS]
        key = place if not isinstance(error, AssertionError) else f"{place} {said[:40]}"
        if key not in self._seen:
            self._seen.add(key)
            self._job.findings.mkdir(parents=True, exist_ok=True)
            path = self._job.findings / hashlib.sha256(data).hexdigest()[:16]
            path.write_bytes(data)
            self.report.findings[f"{place} ({path})"] = said


@click.command()
@click.argument("name")
@click.option("--engine", type=click.Choice(["atheris", "hypothesis"]), required=True)
@click.option("--inputs", type=int, required=True)
@click.option("--until", type=float, required=True)
@click.option("--findings", type=click.Path(path_type=Path), required=True)
def main(*, name: str, engine: str, inputs: int, until: float, findings: Path) -> None:
    {"atheris": run_atheris, "hypothesis": run_hypothesis}[engine](Job(name, inputs, until, findings))


def run_atheris(job: Job) -> None:
    """Feed inputs by libFuzzer, which uses the coverage of trimtab's code, starting from the seeds."""
    import atheris  # noqa: PLC0415 - imported only if it is asked for: it is not available for every Python

    with atheris.instrument_imports(include=["proxy", "rules"]):
        from fuzzing.targets import write_seeds  # noqa: PLC0415 - what is imported here is instrumented

        target = find_target(job.name)
    run = Run(target.run, job)
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(write_seeds(target, DATA)):
            (Path(corpus) / str(number)).write_bytes(seed)
        options = [
            f"-max_len={MAX_INPUT_BYTES}", "-len_control=0", "-seed=1", "-verbosity=0", f"-timeout={HANG_SECONDS}",
            "-rss_limit_mb=2048", f"-artifact_prefix={job.findings}/",
        ]  # fmt: skip
        atheris.Setup([sys.argv[0], *options, corpus], run.feed)
        atheris.Fuzz()


def run_hypothesis(job: Job) -> None:
    """Feed random bytes without feedback from coverage; half of the inputs are long."""
    from hypothesis import HealthCheck, Phase, given, seed, settings  # noqa: PLC0415 - see above
    from hypothesis import strategies as st  # noqa: PLC0415

    run = Run(find_target(job.name).run, job)
    any_bytes = st.binary(max_size=60) | st.binary(min_size=200, max_size=MAX_INPUT_BYTES)
    quiet = settings(
        max_examples=EXAMPLES_A_TURN,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    turn = 0
    while True:
        turn += 1
        seed(turn)(quiet(given(any_bytes)(run.feed)))()


def find_target(name: str) -> Any:
    """Find a target by its name."""
    from fuzzing.live import LIVE  # noqa: PLC0415
    from fuzzing.targets import TARGETS  # noqa: PLC0415

    return {**TARGETS, **LIVE}[name]


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))
    main()
