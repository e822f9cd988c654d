"""Compares decisions, cost and prefix kept of the same sessions in each dialect: whole sessions, every request.

    python -m bench.dialects.run --windows 32000:4000 --limit 20 --json bench/results/dialects.json

See README.md, "Do the dialects differ?", for the results and the method.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import orjson

from bench.dialects.converted import DIALECTS, NotConvertibleError, make_comparable
from bench.dialects.decided import Replay, count_differing, replay, replay_nothing
from bench.figures import describe_machine, print_table
from bench.material.workload import Session, load_sessions
from bench.retention.needed.cases import PRICES
from bench.sessions.replaying.replay import Replayed
from bench.sessions.report import Run, Window, summarise
from bench.sessions.run import parse_windows

COMMAND = "python -m bench.dialects.run"
HEADINGS = ("dialect", "requests", "changed", "decided otherwise", "invalid", "cost", "worst", "prefix kept")


@dataclass(frozen=True, slots=True)
class Compared:
    """A session in all dialects, and without trimtab."""

    nothing: Replayed
    replays: Mapping[str, Replay]


@dataclass(frozen=True, slots=True)
class Row:
    """A dialect at a window.

    `left_out` sessions cannot be written in each dialect. `changed` requests were forwarded with at least one decision;
    `differing` ones have other decisions than in chat completions. `problems` are those that the tests' checker of the
    dialect found. `cost`, `worst` and `kept` are those of the `larger_sessions`, as in `bench.sessions.report`.
    """

    dialect: str
    window_tokens: int
    reserve_tokens: int
    sessions: int
    left_out: int
    larger_sessions: int
    requests: int
    changed: int
    differing: int
    problems: int
    cost: float | None
    worst: float | None
    kept: float | None


def main() -> None:
    arguments = parse_arguments()
    found = load_sessions(arguments.files)
    sessions = list(find_comparable(found[:: max(len(found) // (arguments.limit or len(found)), 1)]))
    print(f"{len(sessions)} of {len(found)} sessions; {describe_machine()}", flush=True)
    rows: list[Row] = []
    with ProcessPoolExecutor(arguments.at_once) as pool:
        for window in parse_windows(arguments.windows):
            compared = list(pool.map(partial(compare, window=window), sessions))
            made = list(make_rows(compared, window, left_out=len(found) - len(sessions)))
            print_table(f"window {window.tokens}: {made[0].larger_sessions} larger", HEADINGS, map(write_cells, made))
            rows += made
    if arguments.json:
        told = {"date": datetime.now(tz=UTC).date().isoformat(), "machine": describe_machine(), "command": COMMAND}
        written = {**told, "rows": list(map(asdict, rows))}
        arguments.json.write_bytes(orjson.dumps(written, option=orjson.OPT_INDENT_2) + b"\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("files", nargs="*", type=Path, help="JSONL of sessions (without: ../shared/data/conversations)")
    add("--windows", default="32000:4000", help="TOKENS:RESERVE,...")
    add("--limit", type=int, help="only about this many sessions, evenly picked")
    add("--at-once", type=int, default=2, help="sessions at the same time, each in a process")
    add("--json", type=Path, help="write the rows to this file")
    return parser.parse_args()


def find_comparable(sessions: Sequence[Session]) -> Iterator[Session]:
    """The sessions that each dialect can express, the longest first."""
    for session in sorted(sessions, key=lambda one: -len(one.stops) * sum(map(len, one.messages))):
        try:
            yield make_comparable(session)
        except NotConvertibleError as reason:
            print(f"left out: {session.id}: {reason}", flush=True)


def compare(session: Session, window: Window) -> Compared:
    """Replay a session in all dialects."""
    return Compared(replay_nothing(session), {dialect: replay(dialect, session, window) for dialect in DIALECTS})


def make_rows(compared: Sequence[Compared], window: Window, *, left_out: int = 0) -> Iterator[Row]:
    """The row of each dialect."""
    nothing = [one.nothing for one in compared]
    differing = [count_differing(one.replays) for one in compared]
    for dialect in DIALECTS:
        replays = [one.replays[dialect] for one in compared]
        run = Run(dialect, tuple(one.replayed for one in replays), 0.0)
        row = summarise(run, nothing, window, PRICES, PRICES)
        yield Row(
            dialect=dialect,
            window_tokens=window.tokens,
            reserve_tokens=window.reserve_tokens,
            sessions=len(replays),
            left_out=left_out,
            larger_sessions=row.larger_sessions,
            requests=row.requests,
            changed=sum(bool(decisions) for one in replays for decisions in one.decided),
            differing=sum(one[dialect] for one in differing),
            problems=sum(len(one.problems) for one in replays),
            cost=row.cost,
            worst=row.worst,
            kept=row.kept,
        )


def write_cells(row: Row) -> Sequence[str]:
    ratios = ["-" if ratio is None else f"{ratio:.4f}" for ratio in (row.cost, row.worst)]
    counts = map(str, (row.requests, row.changed, row.differing, row.problems))
    return (row.dialect, *counts, *ratios, "-" if row.kept is None else f"{row.kept:.2%}")


if __name__ == "__main__":
    main()
