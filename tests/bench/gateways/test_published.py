"""The README's table of processor time is what was measured, and not long ago."""

import subprocess

import orjson
import pytest
from support.reference_pages import ROOT

from bench.gateways.published import HOT_PATH, RESULTS, write_table

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
