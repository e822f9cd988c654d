"""A million inputs for everything that reads data from the network: no crash, and no law broken.

    python -m bench.fuzz.run --inputs 1000000 --engine atheris

The targets and their laws are those of tests/fuzzing; a few inputs run with every test. Each target has its own
process. An input that breaks a target is saved in --findings under its hash, and the run goes on. To repeat it:

    python -m bench.fuzz.run --target chat --again FILE
"""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import msgspec

from bench.figures import describe_machine, print_table
from bench.fuzz.target import ROOT, Job, Report

sys.path.insert(0, str(ROOT / "tests"))
from fuzzing.live import LIVE
from fuzzing.targets import TARGETS

ALL = {**LIVE, **TARGETS}

HEADINGS = ("target", "inputs", "crashes", "distinct", "seconds", "inputs/s", "slowest, ms")


@click.command(help=__doc__.replace("\n\n    ", "\n\n\b\n    "))
@click.option(
    "--inputs", default=1_000_000, show_default=True, help="inputs of all targets together, divided by their shares"
)
@click.option("--engine", type=click.Choice(["atheris", "hypothesis"]), default="atheris", show_default=True)
@click.option(
    "--target", "names", type=click.Choice(list(ALL)), multiple=True, help="only these targets (default: all)"
)
@click.option(
    "--minutes", default=600.0, show_default=True, help="stop after this many minutes, even if inputs are left"
)
@click.option("--at-once", default=2, show_default=True, help="how many targets run at once, each in its own process")
@click.option("--findings", type=click.Path(path_type=Path), default=Path(".fuzz-findings"), show_default=True)
@click.option("--again", type=click.Path(path_type=Path, exists=True), help="feed the targets only this input")
def main(  # noqa: PLR0913 - an option each
    *,
    inputs: int,
    engine: str,
    names: tuple[str, ...],
    minutes: float,
    at_once: int,
    findings: Path,
    again: Path | None,
) -> None:
    chosen = names or tuple(ALL)
    if again is not None:
        for name in chosen:
            ALL[name].run(again.read_bytes())
        return
    print(describe_machine())
    shares = sum(ALL[name].share for name in chosen)
    findings.mkdir(parents=True, exist_ok=True)
    until = time.time() + 60 * minutes

    def run(name: str) -> Report:
        report = _run(engine, Job(name, -(-inputs * ALL[name].share // shares), until, findings))
        print(f"{name}: {report.inputs} inputs, {report.crashes} crashes", file=sys.stderr)
        return report

    with ThreadPoolExecutor(at_once) as threads:
        reports = dict(zip(chosen, threads.map(run, chosen), strict=True))
    print_table(
        f"{engine}, {sum(report.inputs for report in reports.values())} inputs", HEADINGS, map(_row, reports.items())
    )
    for name, report in reports.items():
        for place, said in report.findings.items():
            print(f"\n{name}: {place}\n  {said}")
    sys.exit(any(report.crashes for report in reports.values()))


def _run(engine: str, job: Job) -> Report:
    """Run one target to its end. A process that ends without a report counts as a crash."""
    options = ("--inputs", str(job.inputs), "--until", str(job.until), "--findings", str(job.findings))
    command = [sys.executable, "-m", "bench.fuzz.target", job.name, "--engine", engine, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
    try:
        return msgspec.json.decode(done.stdout.splitlines()[-1], type=Report)
    except (IndexError, msgspec.DecodeError):
        return Report(crashes=1, findings={f"ended with status {done.returncode}": done.stderr[-2000:]})


def _row(item: tuple[str, Report]) -> tuple[str, ...]:
    name, report = item
    rate = report.inputs / report.seconds if report.seconds else 0
    figures = (report.inputs, report.crashes, len(report.findings), round(report.seconds), round(rate))
    return (name, *map(str, figures), f"{report.slowest_seconds * 1000:.0f}")


if __name__ == "__main__":
    main()
