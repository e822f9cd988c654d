"""The tables of costs in docs/explanation have the figures of the raw rows in bench/results."""

import orjson
from support.reference_pages import ROOT, read_rows

EXPLANATION = ROOT / "docs" / "explanation"
RESULTS = ROOT / "bench" / "results"
CONTESTANTS = ("window", "mask", "langchain", "trimtab")
"""The columns of the table of sessions."""


def read_raw(name: str) -> list[dict[str, object]]:
    """The rows of one command."""
    return orjson.loads((RESULTS / name).read_bytes())


def read_table(page: str, heading: str) -> list[list[str]]:
    """The rows of the first table of a page whose heading row begins like this."""
    text = (EXPLANATION / page).read_text("utf-8")
    return read_rows(heading + text.split(heading)[1].split("\n\n")[0])


def find_economy(window: str, economy: str) -> dict[str, object]:
    """The raw row of an economy at a window; `balanced` is the default."""
    name = economy.strip("`")
    settings = [] if name == "balanced" else [f"economy={name}"]
    (row,) = [
        row
        for row in read_raw("needed.json")
        if (row["window_tokens"], row["settings"], row["contestant"])
        == (int(window.replace(",", "")), settings, "trimtab")
    ]
    return row


def percent(share: float) -> str:
    """A share as the pages write it."""
    return f"{share:.1%}".replace("%", " %")


def test_the_costs_of_the_economies_are_those_measured() -> None:
    rows = read_table("replayed-cut.md", "| window | economy | cost")

    assert len(rows) == 12
    for window, economy, *shown in rows:
        raw = find_economy(window, economy)
        assert shown == [f"{raw['cost']:.3f}", percent(raw["prefix_kept"]), percent(raw["kept"])]


def test_what_an_agent_still_knows_is_as_measured() -> None:
    rows = read_table("performance-and-cost.md", "| window | economy | cost")

    assert len(rows) == 5
    for window, economy, *shown in rows:
        raw = find_economy(window, economy)
        repeated = f"{raw['rereads']} of {raw['answered_calls']:,}"
        assert shown == [f"{raw['cost']:.3f}", percent(raw["kept"]), percent(raw["recalled"]), repeated]


def test_the_costs_of_other_methods_are_those_measured() -> None:
    """The cell with the window is filled in the first of its three rows only."""
    rows = read_table("performance-and-cost.md", "| window (sessions) |")
    raw = {(row["contestant"], row["window_tokens"]): row for row in read_raw("sessions.json")}
    assert len(rows) == 12
    for at in range(0, len(rows), 3):
        window, _, sessions = rows[at][0].partition(" ")
        for column, name in enumerate(CONTESTANTS, 2):
            row = raw[name, int(window.replace(",", ""))]
            shown = [line[column] for line in rows[at : at + 3]]
            assert shown == [f"{row['cost']:.3f}", f"{row['worst']:.3f}", percent(row["kept"])]
            assert sessions == f"({row['larger_sessions']})"


def test_the_first_table_of_the_replayed_cut_is_as_measured() -> None:
    rows = read_table("replayed-cut.md", "| method | cost")
    raw = {row["contestant"]: row for row in read_raw("sessions.json") if row["window_tokens"] == 32_000}
    own = find_economy("32,000", "balanced")
    expected = [
        *((f"{raw[name]['cost']:.2f}", percent(raw[name]["kept"])) for name in ("window", "mask")),
        (f"{own['cost']:.2f}", percent(own["prefix_kept"])),
    ]

    assert [tuple(shown) for _, *shown in rows] == expected
