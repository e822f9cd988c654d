"""The README: its size, the figures of its picture, and its table of measurements."""

from pathlib import Path

import orjson
import pytest

from bench.sessions.picture import WindowRun
from bench.sessions.window import PICTURE, read_series

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = ROOT / "bench" / "results"
MAX_BYTES = 9_000
"""Source: issue 18. A README of one page."""
WINDOW_TOKENS = 32_000
CONTESTANTS = {
    "send everything": "nothing",
    "LangChain summarization middleware": "langchain",
    "Headroom, cache mode (20 sessions)": "headroom-cache",
    "mask all but 10 tool results": "mask",
    "sliding window": "window",
}


def test_the_readme_is_one_page() -> None:
    """The size is in bytes, as stored."""
    assert len(README.encode()) <= MAX_BYTES


def test_the_caption_says_what_the_picture_shows() -> None:
    """It names the session, window, date, command and the numbers of the recorded series."""
    run: WindowRun = read_series()
    caption = README[README.index("![") : README.index("## Try it")]
    project = run.about.rpartition(" ")[2]
    for words in (
        PICTURE.relative_to(ROOT).as_posix(),
        f"{len(run.without_tokens)} requests",
        f"{max(run.without_tokens):,}",
        f"window {run.window_tokens:,}",
        f"{run.cost:.2f}",
        run.date,
        run.command,
        project,
    ):
        assert words in caption
    assert len(run.cuts) == 9
    assert "nine cuts" in caption
    assert max(run.sent_tokens) < 19_000
    assert "below 19,000" in caption


def _measured() -> dict[str, tuple[str, ...]]:
    """Cost, worst session and prefix kept from the raw rows, formatted as in the README. The first row is trimtab's."""
    rows = {}
    for row in orjson.loads((RESULTS / "needed.json").read_bytes()):
        if (row["label"], row["window_tokens"], row["settings"]) == ("trimtab (canned)", WINDOW_TOKENS, []):
            rows["trimtab, balanced"] = _write(row["cost"], row["worst"], row["prefix_kept"], row["kept"])
    by_name = {
        row["contestant"]: row
        for row in orjson.loads((RESULTS / "sessions.json").read_bytes())
        if row["window_tokens"] == WINDOW_TOKENS
    }
    for words, name in CONTESTANTS.items():
        row = by_name[name]
        rows[words] = _write(row["cost"], row["worst"], row["kept"])
    return rows


def _write(cost: float, worst: float, *shares: float) -> tuple[str, ...]:
    return (f"{cost:.2f}", f"{worst:.2f}", *(f"{share:.1%}".replace("%", " %") for share in shares))


@pytest.mark.parametrize("name", ["trimtab, balanced", *CONTESTANTS])
def test_the_table_has_the_figures_of_the_raw_rows(name: str) -> None:
    """The figures of trimtab and of the others, with the digits shown."""
    rows = [line.replace("*", "").strip("| ").split(" | ") for line in README.splitlines() if line.startswith("|")]
    (shown,) = [cells for cells in rows if cells[0] == name]
    expected = _measured()[name]
    assert tuple(shown[1 : 1 + len(expected)]) == expected
