"""The README's table of processor time is what was measured, and not long ago."""

import subprocess

import orjson
import pytest
from support.reference_pages import ROOT

from bench.gateways.published import HOT_PATH, RESULTS, publish, write_table
from bench.gateways.samples import Memory, Sample

MAX_COMMITS = 20
"""Source: issue 39. As many commits may have touched the hot path since the table was measured."""


def git(*arguments: str) -> str:
    command = ["git", "-c", "safe.directory=*", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def test_the_table_has_the_figures_of_one_run() -> None:
    assert write_table(orjson.loads(RESULTS.read_bytes())) in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.measured
def test_the_figures_are_of_a_recent_commit() -> None:
    """What to do: python -m bench.gateways.run --targets sglang,aiohttp,trimtab,trimtab_cut --publish."""
    if not (ROOT / ".git").exists() or git("rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("this tree has no history; clone the whole repository")
    commit = orjson.loads(RESULTS.read_bytes())["commit"]
    assert int(git("rev-list", "--count", f"{commit}..HEAD", "--", *HOT_PATH)) <= MAX_COMMITS


def test_the_hot_path_is_there() -> None:
    assert all((ROOT / folder).is_dir() for folder in HOT_PATH)


def make_sample(target: str, scenario: str, number: int, cost_us: float | None) -> Sample:
    return Sample(target, scenario, number, 100, 0, 1000.0, cost_us, 0.5, 0.6, 0.5, 0.0)


def test_a_run_is_published_with_its_medians(tmp_path, monkeypatch) -> None:
    """A target that was not measured has no row, a missing figure an empty cell; what stands around stays."""
    page, results = tmp_path / "README.md", tmp_path / "gateways.json"
    page.write_text("Before.\n\nProcessor time and memory on 1999-12-31:\n\n| old |\n|---|\n| 1 |\n\nAfter | that.\n")
    costs = [("small", 480.0), ("small", 520.0), ("small", 900.0), ("new", 36_400.0), ("events", None)]
    samples = [make_sample("trimtab", scenario, number, cost) for number, (scenario, cost) in enumerate(costs)]
    samples += [make_sample("aiohttp", "events", 0, 35.6)]
    memories = [Memory("trimtab", 0, 0.8, 120.0, 150.4), Memory("aiohttp", 0, 0.2, 40.0, 48.0)]
    monkeypatch.setattr("bench.gateways.published.RESULTS", results)
    monkeypatch.setattr("bench.gateways.published.ROOT", tmp_path)

    publish(samples, memories, "0123abcd")

    published = orjson.loads(results.read_bytes())
    assert page.read_text("utf-8").splitlines() == [
        "Before.",
        "",
        f"Processor time and memory on {published['date']} at commit 0123abcd:",
        "",
        "| | small request | 404 KB, seen before | 404 KB, new | stream's chunk | memory |",
        "|---|---|---|---|---|---|",
        "| trimtab, nothing to cut | 0.52 ms |  | 36 ms |  | 150 MB |",
        "| bare aiohttp proxy |  |  |  | 36 µs | 48 MB |",
        "",
        "After | that.",
    ]
