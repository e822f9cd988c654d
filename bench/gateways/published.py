"""The README's table of processor time, and the figures behind it with their day, machine and commit.

Law: the table is a function of bench/results/gateways.json, which one run has written.
"""

import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import orjson

from bench.figures import describe_machine
from bench.gateways.report import find_median, read_cost_us
from bench.gateways.samples import Memory, Sample
from bench.gateways.targets import TARGETS, YARDSTICK

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results" / "gateways.json"
HOT_PATH = (
    "proxy/account",
    "proxy/compaction",
    "proxy/exchange",
    "proxy/http",
    "proxy/server",
    "proxy/telemetry",
    "proxy/wire",
    "rules",
)
"""The folders that most requests walk through."""

_SCENARIOS = {
    "small": "small request",
    "known": "404 KB, seen before",
    "new": "404 KB, new",
    "events": "stream's chunk",
}
_SHOWN = {
    "trimtab": "trimtab, nothing to cut",
    "trimtab_cut": "trimtab, with a cut",
    YARDSTICK: "bare aiohttp proxy",
    "sglang": "SGLang gateway",
}
_HEAD = "| | "


def read_commit() -> str:
    """The commit of this tree. Raises subprocess.CalledProcessError if it has no history."""
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def gather(samples: Sequence[Sample], memories: Sequence[Memory], commit: str) -> dict[str, Any]:
    """The medians over all rounds: for a target, microseconds of processor time by scenario, and megabytes."""
    targets: dict[str, dict[str, float]] = {}
    for target in (one.name for one in TARGETS if one.name in _SHOWN):
        own = [one for one in samples if one.target == target]
        costs = {name: find_median((one for one in own if one.scenario == name), read_cost_us) for name in _SCENARIOS}
        resident = [one.after_mb for one in memories if one.target == target]
        if resident:
            found = {name: round(cost, 1) for name, cost in costs.items() if cost is not None}
            targets[target] = {**found, "memory": round(median(resident))}
    rounds = len({one.round for one in samples})
    day = datetime.now(UTC).date().isoformat()
    return {
        "commit": commit,
        "date": day,
        "machine": describe_machine(),
        "rounds": rounds,
        "targets": targets,
    }


def write_table(published: dict[str, Any]) -> str:
    """A heading line, and the table in Markdown."""
    lines = [
        f"Processor time and memory on {published['date']} at commit {published['commit']}:",
        "",
        f"{_HEAD}{' | '.join((*_SCENARIOS.values(), 'memory'))} |",
        f"|{'---|' * (len(_SCENARIOS) + 2)}",
    ]
    for target, label in _SHOWN.items():
        if figures := published["targets"].get(target):
            costs = (_write_cost(figures.get(name)) for name in _SCENARIOS)
            lines.append(f"| {' | '.join((label, *costs))} | {figures['memory']} MB |")
    return "\n".join(lines) + "\n"


def publish(samples: Sequence[Sample], memories: Sequence[Memory], commit: str) -> None:
    """Write the figures, and the table into the README in the place of the one that is there."""
    published = gather(samples, memories, commit)
    RESULTS.write_bytes(orjson.dumps(published, option=orjson.OPT_INDENT_2) + b"\n")
    page = ROOT / "README.md"
    before, first, rest = page.read_text("utf-8").partition("Processor time and memory on ")
    _, _, after = rest.partition("|\n\n")
    if not first or not after:
        message = "README.md has no table of processor time; put its first line back: Processor time and memory on"
        raise SystemExit(message)
    page.write_text(f"{before}{write_table(published)}\n{after}", "utf-8")


def _write_cost(us: float | None) -> str:
    """Two digits: in microseconds below a tenth of a millisecond."""
    if us is None:
        return ""
    return f"{us:.0f} µs" if us < 100 else f"{float(f'{us / 1000:.2g}'):g} ms"
