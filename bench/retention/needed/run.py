"""Measures which of the identifiers that the next answer needs are still forwarded, and what that costs.

    python -m bench.retention.needed                                        # all contestants, four windows
    python -m bench.retention.needed --only trimtab --summarisers canned --windows 32000:4000 --set high_water=0.5
    python -m bench.retention.needed --plot bench/results/needed.png --json bench/results/needed.json

See README.md, "What is still needed after a cut?", for the results, the method and its limits.
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

import orjson

from bench.figures import describe_machine
from bench.material.workload import MODEL, Session, load_sessions
from bench.peers.environments import PEERS, MissingPeerError
from bench.retention.needed.cases import REMEDIES, TRIMTAB, Case
from bench.retention.needed.check import show_check
from bench.retention.needed.libraries import LANGCHAIN, measure_library
from bench.retention.needed.measure import Measured, measure
from bench.retention.needed.planted import CHATS, Survival, make_chat_case, measure_chat, measure_planted
from bench.retention.needed.recalled import Found, measure_recalled, show_recalled
from bench.retention.needed.rows import Row, is_larger, make_row
from bench.retention.needed.tables import draw_plot, show_chats, show_survival, show_window
from bench.sessions.prompts import count_parts, read_fixed, read_part
from bench.sessions.replaying.summarisers import SUMMARISERS
from bench.sessions.report import Window
from bench.sessions.run import parse_windows

NOTHING = "nothing"
SIZED = {"window": (0, 200_000), "head-tail": (0, 200_000), "mask": (0, 400)}
"""Remedies that are also run with a size at which they retain as many tokens as trimtab, and the range of the size."""
CONTESTANTS = (TRIMTAB, *REMEDIES, *LANGCHAIN)
WINDOWS = "16000:2000,32000:4000,64000:8000,128000:16000"
_SESSIONS: list[Session] = []
"""The sessions of this process and of those that are forked from it."""


def _measure_all(number: int, cases: Sequence[Case]) -> list[Measured]:
    return [measure(_SESSIONS[number], case) for case in cases]


def _count_tokens(number: int, case: Case) -> tuple[int, int]:
    """Prompt tokens of a session's requests, and the number of requests."""
    session = _SESSIONS[number]
    fixed_tokens = read_fixed(MODEL, session.tools).tokens
    requests = REMEDIES[case.contestant](session, case)
    return sum(fixed_tokens + count_parts(map(read_part, each)) for each in requests), len(session.stops)


@dataclass(slots=True)
class Bench:
    """One run of the command; it remembers what was measured."""

    sessions: Sequence[Session]
    pool: ProcessPoolExecutor
    _done: dict[Case, list[Measured]] = field(default_factory=dict)

    def run(self, cases: Sequence[Case]) -> None:
        """Measure cases on all sessions, one session at a time in each process, the longest first."""
        wanted = [case for case in dict.fromkeys(cases) if case not in self._done]
        order = sorted(range(len(self.sessions)), key=lambda number: -_weigh(self.sessions[number]))
        answers = self.pool.map(_measure_all, order, [wanted] * len(order))
        found = dict(zip(order, answers, strict=True))
        for place, case in enumerate(wanted):
            self._done[case] = [found[number][place] for number in range(len(self.sessions))]

    def run_library(self, case: Case, folder: Path) -> None:
        """Let a library do it, in its own environment. Raises MissingPeerError."""
        self._done[case] = measure_library(case, self.sessions, folder)

    def make_row(self, case: Case) -> Row:
        """The row of a case that was run."""
        nothing = self._done[Case(NOTHING, case.window)]
        return make_row(case, self._done[case], nothing, self.sessions)

    def find_equal(self, name: str, window: Window, tokens: float) -> Case:
        """A remedy with the size at which it retains this many tokens on average, in sessions larger than the window.

        If it cannot retain so few, it gets the smallest size.
        """
        nothing = self._done[Case(NOTHING, window)]
        larger = [number for number, one in enumerate(nothing) if is_larger(one, window.limit_tokens)]
        low, high = SIZED[name]
        while high - low > max(high // 200, 1):
            middle = (low + high) // 2
            found = list(self.pool.map(_count_tokens, larger, [Case(name, window, size=middle)] * len(larger)))
            is_more = sum(one[0] for one in found) > tokens * sum(one[1] for one in found)
            low, high = (low, middle) if is_more else (middle, high)
        return Case(name, window, size=low)


def _weigh(session: Session) -> int:
    return len(session.stops) * sum(map(len, session.messages))


def main() -> None:
    arguments = parse_arguments()
    sessions = load_sessions(arguments.files)
    _SESSIONS.extend(pick(sessions[2::3] if arguments.held_back else sessions, arguments.limit))
    requests = sum(len(session.stops) for session in _SESSIONS)
    print(f"{len(_SESSIONS)} sessions, {requests} requests; {describe_machine()}", flush=True)
    if arguments.check:
        windows = parse_windows(arguments.windows)
        sys.exit(0 if show_check(_SESSIONS, windows, tuple(arguments.settings)) else 1)
    context = multiprocessing.get_context("fork")  # forked processes have the sessions without a copy
    with ProcessPoolExecutor(arguments.processes, mp_context=context) as pool:
        if arguments.planted or arguments.recalled:
            show_planted(pool, arguments) if arguments.planted else show_asked(pool, arguments)
            return
        rows = list(run_all(Bench(_SESSIONS, pool), arguments))
    if arguments.json:
        arguments.json.write_bytes(orjson.dumps(list(map(asdict, rows)), option=orjson.OPT_INDENT_2))
    if arguments.plot:
        draw_plot(rows, arguments.plot)


def show_planted(pool: ProcessPoolExecutor, arguments: argparse.Namespace) -> None:
    """Plant facts in sessions and chats, and show which are found again."""
    given = tuple(arguments.settings)
    for summariser in parse_names(arguments.summarisers, tuple(SUMMARISERS)):
        case = make_chat_case(summariser, given)
        show_chats(list(pool.map(measure_chat, range(CHATS), [case] * CHATS)), summariser)
        for window in parse_windows(arguments.windows):
            survival, case = Survival(), Case(TRIMTAB, window, summariser, given)
            order = sorted(_SESSIONS, key=lambda session: -_weigh(session))
            for one in pool.map(measure_planted, order, [case] * len(order)):
                survival.add(one)
            show_survival(survival, window, summariser)


def show_asked(pool: ProcessPoolExecutor, arguments: argparse.Namespace) -> None:
    """Ask for planted facts behind one, three and five cuts, and show which the model reads."""
    for window in parse_windows(arguments.windows):
        found, case = Found(), Case(TRIMTAB, window, "canned", tuple(arguments.settings))
        for one in pool.map(measure_recalled, _SESSIONS, [case] * len(_SESSIONS)):
            found.add(one)
        print(f"{window.tokens:,}", *show_recalled(found), sep="\n", flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add(
        "files", nargs="*", type=Path, help="JSONL of sessions (default: ../shared/data/conversations, or made-up ones)"
    )
    add("--windows", default=WINDOWS, help=f"TOKENS:RESERVE,... ({WINDOWS})")
    add("--only", default=",".join(CONTESTANTS), help=f"contestants: {', '.join(CONTESTANTS)}")
    add("--summarisers", default="none,canned,words", help=f"summarisers of trimtab: {', '.join(SUMMARISERS)}")
    add("--economies", default="careful,balanced,frugal", help="economies of trimtab, with the canned summariser")
    add(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key of the policy of trimtab",
    )
    add("--held-back", action="store_true", help="only every third session, which no size was fitted on")
    add("--limit", type=int, help="only this many sessions, evenly picked")
    add(
        "--processes",
        type=int,
        default=min(os.cpu_count() or 1, 2),
        help="number of processes (default: cores, at most 2)",
    )
    add("--check", action="store_true", help="also replay through the proxy itself, and compare what is forwarded")
    add("--planted", action="store_true", help="plant facts in sessions and chats, and look for them")
    add("--recalled", action="store_true", help="ask for planted facts, with recall off, injected and as a tool")
    add("--peers", type=Path, default=PEERS, help="folder in which bench.peers.install put the peers")
    add("--json", type=Path, help="write the rows to this file")
    add("--plot", type=Path, help="draw cost against needed kept as this PNG file")
    return parser.parse_args()


def pick(sessions: Sequence[Session], limit: int | None) -> list[Session]:
    """Some of the sessions, at even distances."""
    number = min(limit or len(sessions), len(sessions))
    return [sessions[index * len(sessions) // number] for index in range(number)]


def run_all(bench: Bench, arguments: argparse.Namespace) -> Iterator[Row]:
    """Measure every contestant at every window, and print the tables."""
    windows = parse_windows(arguments.windows)
    names = parse_names(arguments.only, CONTESTANTS)
    started = time.perf_counter()
    cases = {window: list(list_cases(window, names, arguments)) for window in windows}
    bench.run([case for each in cases.values() for case in each])
    for window in windows:
        rows = [bench.make_row(case) for case in cases[window] if case.contestant in names]
        rows += run_equal(bench, window, names, rows)
        missing = run_libraries(bench, window, names, arguments.peers)
        rows += [bench.make_row(Case(name, window)) for name in LANGCHAIN if name in names and name not in missing]
        show_window(rows, missing)
        yield from rows
    print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr)


def run_equal(bench: Bench, window: Window, names: Sequence[str], rows: Sequence[Row]) -> list[Row]:
    """The remedies once more, retaining as many tokens as trimtab with the canned summariser."""
    own = next((row for row in rows if row.contestant == TRIMTAB and row.summariser == "canned"), None)
    if own is None or own.retained_tokens is None:
        return []
    cases = [bench.find_equal(name, window, own.retained_tokens) for name in SIZED if name in names]
    bench.run(cases)
    return [bench.make_row(case) for case in cases]


def run_libraries(bench: Bench, window: Window, names: Sequence[str], folder: Path) -> list[str]:
    """Run the libraries that are named; return those that are not installed."""
    missing = []
    for name in LANGCHAIN:
        if name in names:
            try:
                bench.run_library(Case(name, window), folder)
            except MissingPeerError:
                missing.append(name)
    return missing


def list_cases(window: Window, names: Sequence[str], arguments: argparse.Namespace) -> Iterator[Case]:
    """The cases of one window, doing nothing first."""
    yield Case(NOTHING, window)
    yield from (Case(name, window) for name in names if name in REMEDIES and name != NOTHING)
    if TRIMTAB not in names:
        return
    given = tuple(arguments.settings)
    summarisers = parse_names(arguments.summarisers, tuple(SUMMARISERS))
    yield from (Case(TRIMTAB, window, summariser, given) for summariser in summarisers)
    if "canned" in summarisers:
        for economy in arguments.economies.split(","):
            if economy != "balanced":
                yield Case(TRIMTAB, window, "canned", (f"economy={economy}", *given))


def parse_names(text: str, known: Sequence[str]) -> list[str]:
    """Known names in their order; an unknown name ends the program."""
    wanted = text.split(",")
    unknown = set(wanted) - set(known)
    if unknown:
        message = f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}"
        raise SystemExit(message)
    return [name for name in known if name in wanted]
