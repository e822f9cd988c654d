"""Measures how costs grow: turns from 1 to 2,000, memory of sessions and streams, bytes in the store.

    python -m bench.scale.run --json bench/results/scale.json --plot bench/results/scale.png
    python -m bench.scale.run --quick

Prints Markdown. Linux, two cores; `--plot` needs the extra `bench`. See SCALE.md for the results.
"""

import argparse
import signal
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

import orjson

from bench.figures import describe_machine, print_table
from bench.harness.native import describe_native, find_native
from bench.scale.gateways import BARE, CUT, WHOLE, run_gateway, run_upstream
from bench.scale.plot import draw_plot
from bench.scale.room import Held, Stored, measure_sessions, measure_store, measure_streams, pause_streams
from bench.scale.turns import MEGABYTE, REPEATS, Point, find_slope, measure_lengths, measure_news

GATEWAYS = (BARE, WHOLE, CUT)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    lengths: tuple[int, ...] = (1, 20, 50, 100, 200, 400, 800, 1200, 1600, 2000)
    length: int = 200
    news: tuple[int, ...] = (1, 5, 20, 50, 100)
    repeats: int = REPEATS
    news_repeats: int = 5
    sessions: int = 1000
    session_turns: tuple[int, ...] = (1, 20)
    streams: int = 1000
    store_sessions: int = 40
    store_turns: tuple[int, ...] = (20, 40, 60)


QUICK = Size(
    lengths=(1, 50, 200, 800),
    news=(1, 20, 100),
    repeats=5,
    news_repeats=2,
    sessions=200,
    streams=200,
    store_sessions=8,
)


@dataclass(slots=True)
class Found:
    """All rows of a run."""

    machine: str
    lengths: list[Point] = field(default_factory=list)
    news: list[Point] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    stored: list[Stored] = field(default_factory=list)


def main() -> None:
    # So that a run that `timeout` ends still ends the gateways that it has started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less of everything; takes half a minute")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--plot", type=Path, help="draw the plot as this PNG file")
    arguments = parser.parse_args()
    found = Found(f"{describe_machine()}; upstream {describe_native(find_native('upstream'))}")
    print(found.machine, flush=True)
    measure(QUICK if arguments.quick else Size(), found)
    show(found)
    if arguments.json:
        arguments.json.write_bytes(orjson.dumps(asdict(found), option=orjson.OPT_INDENT_2))
    if arguments.plot:
        draw_plot(found.lengths, found.news, arguments.plot)


def measure(size: Size, found: Found) -> None:
    """Measure question by question. Each has its own gateways, so that none inherits another's memory."""
    with run_upstream() as port, tempfile.TemporaryDirectory(prefix="trimtab-scale-") as folder:
        for what in ("lengths", "news"):
            with ExitStack() as stack:
                gateways = [stack.enter_context(run_gateway(name, port)) for name in GATEWAYS]
                if what == "lengths":
                    found.lengths.extend(measure_lengths(gateways, size.lengths, repeats=size.repeats))
                else:
                    found.news.extend(measure_news(gateways, size.length, size.news, repeats=size.news_repeats))
            _say(f"{what} are measured")
        for turns in size.session_turns:
            with run_gateway(WHOLE, port) as gateway:
                found.held.append(measure_sessions(gateway, size.sessions, turns))
        _say("sessions are measured")
        file = Path(folder, "summaries.sqlite3")
        settings = (f"store=sqlite:///{file}", "defaults.context_window=32768")
        with run_gateway(CUT, port, settings) as gateway:
            found.stored.append(measure_store(gateway, file, size.store_sessions, size.store_turns))
        _say("the store is measured")
        pause_streams(port)
        for name in (BARE, WHOLE):
            with run_gateway(name, port) as gateway:
                found.held.append(measure_streams(gateway, size.streams))
        _say("streams are measured")


def show(found: Found) -> None:
    """Print the tables and the slopes."""
    headings = ["old bytes, MB", *(f"{name}, {unit}" for name in GATEWAYS for unit in ("CPU ms", "ms"))]
    print_table("A turn of 5 KB, by its old bytes.", headings, _write_rows(found.lengths, "old_bytes"))
    headings[0] = "new bytes, KB"
    print_table("A turn in a session of 1 MB, by its new bytes.", headings, _write_rows(found.news, "new_bytes"))
    for name in (WHOLE, CUT):
        old, new = find_slope(found.lengths, name), find_slope(found.news, name, "new_bytes")
        print(f"\n{name}: {old:.2f} ms a further MB of old bytes, {new:.0f} ms a MB of new, beyond the bare proxy.")
    rows = [
        [one.gateway, one.what, str(one.number), f"{one.megabytes:.1f}", f"{one.per_thousand_mb:.0f}"]
        for one in found.held
    ]
    print_table("Memory.", ["", "what", "number", "MB", "MB per 1,000"], rows)
    stored = [
        [
            str(one.sessions),
            f"{one.transcript_bytes / one.sessions / 1000:.0f}",
            f"{one.store_bytes / one.sessions / 1000:.1f}",
        ]
        for one in found.stored
    ]
    print_table(
        "The store, at a window of 32,768 tokens.", ["sessions", "transcript, KB each", "store, KB each"], stored
    )


def _write_rows(points: list[Point], by: str) -> list[list[str]]:
    unit = MEGABYTE if by == "old_bytes" else 1000
    rows: dict[int, list[str]] = {}
    for point in points:
        cells = rows.setdefault(getattr(point, by), [f"{getattr(point, by) / unit:.2f}"])
        cells += [f"{point.processor_ms:.2f}", f"{point.passed_ms:.2f}"]
    return list(rows.values())


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
