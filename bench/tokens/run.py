"""How near our token counts are to what the API reports, how fast they are made, and what stands in for them.

    python bench/tokens.py --peers .bench-peers
    python bench/tokens.py --only accuracy --only warm

Parts: accuracy (recorded requests with the prompt tokens that the API reported, beside LiteLLM and others), cold (texts
not seen before, beside tiktoken), hard (texts that tokenizers choke on), warm (a 400 kB transcript that was seen),
engines (tokenizers that the proxy uses where they are installed) and estimate (tokens by bytes alone, and the requests
that need not wait for a count). All times are processor time; whatever is compared takes turns in one run. About two
minutes in all. What a count does to the event loop is the question of loop_lag.py.
"""

import argparse
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from corpora import load_message_texts, load_tool_outputs, make_hard_texts
from figures import describe_machine, judge
from markdown import print_table
from peers import PEERS, MissingPeerError
from token_accuracy import GOLDEN, GROUPS, count_all, describe, load_golden
from token_engines import measure_engines
from token_estimates import (
    WINDOW_TOKENS,
    describe_errors,
    describe_exit,
    describe_speed,
    measure_requests,
    measure_speed,
    measure_texts,
)
from token_speed import describe_cold, describe_hard, measure_cold, measure_warm
from workload import load_sessions

from proxy.compaction.tokenizers.exact import load_encoding
from rules.tokens.families import O200K

GOAL_RATIO = 1.15
GOAL_MB_PER_SECOND = 10.0
GOAL_WARM_MS = 0.6


def show_accuracy(arguments: argparse.Namespace) -> None:
    rows = load_golden()
    if not rows:
        print(f"\naccuracy: left out, {GOLDEN} is not here")
        return
    counts = count_all(rows, arguments.peers)
    print_table(
        f"Accuracy: {len(rows)} recorded requests; error as a share of the prompt tokens that the API reported",
        ("group", "method", "requests", "exact", "mean error", "p95 error", "worst under"),
        [[group, method, *describe(group, rows, count)] for group in GROUPS for method, count in counts.items()],
    )
    if not any(method.startswith("LiteLLM") for method in counts):
        print("\nLiteLLM is not installed (python bench/install_peers.py --only litellm)")


def show_cold(arguments: argparse.Namespace) -> None:
    encoding = load_encoding(O200K)
    messages = load_message_texts()
    rows = []
    for name, texts in (
        ("agents' messages", messages),
        ("the same as one text", ["\n".join(messages)]),
        ("tools' outputs", load_tool_outputs()),
    ):
        rounds = measure_cold(texts, encoding, arguments.rounds)
        rows.append(describe_cold(name, texts, rounds))
    print_table(
        f"Cold: texts not seen before, processor time, medians of {arguments.rounds} rounds by turns;"
        f" goals: {GOAL_RATIO:g} times tiktoken's own time, {GOAL_MB_PER_SECOND:g} MB/s",
        ("texts", "number", "MB", "trimtab MB/s", "tiktoken MB/s", "time ratio", "range"),
        rows,
    )


def show_hard(_: argparse.Namespace) -> None:
    print_table(
        "Hard texts: each in a process of its own, trimtab first",
        ("text", "MB", "trimtab", "tokens", "tiktoken", "tokens", "time ratio"),
        map(describe_hard, make_hard_texts()),
    )


def show_warm(arguments: argparse.Namespace) -> None:
    figures, yardstick_ms = measure_warm(arguments.requests)
    print_table(
        f"Warm: a 400 kB transcript of 352 messages, processor time in ms, medians of {arguments.requests} requests;"
        f" for comparison: orjson decodes the body in {yardstick_ms:.2f}",
        ("messages", "splitting", "decoding", "both"),
        [[name, f"{row.read:.2f}", f"{row.decode:.2f}", f"{row.both:.2f}"] for name, row in figures.items()],
    )
    print(f"\nall known, decoding (which counts): {judge(figures['all known'].decode, GOAL_WARM_MS, 'ms')}")


def show_engines(arguments: argparse.Namespace) -> None:
    try:
        rows = measure_engines(arguments.peers, load_message_texts(), arguments.rounds)
    except MissingPeerError:
        print("\nengines: left out, not installed (python bench/install_peers.py --only engines)")
        return
    print_table(
        f"Engines: agents' messages not seen before, {arguments.rounds} rounds by turns; tests in both vocabularies",
        ("engine", "MB/s", "time, of tiktoken's", "self-test missed", "random texts missed", "used"),
        rows,
    )


def show_estimate(arguments: argparse.Namespace) -> None:
    encoding = load_encoding(O200K)
    messages, sessions = load_message_texts(), load_sessions([])
    ours, theirs, times = describe_speed(messages, measure_speed(messages, encoding, arguments.rounds))
    print(f"\nEstimate: {ours:.0f} MB/s, tiktoken {theirs:.1f} MB/s on the same text: {times:.0f} times as fast")
    found = measure_requests(sessions, encoding)
    last = [session.body(session.stops[-1]).decode() for session in sessions]
    print_table(
        "The estimate's error, as a share of the exact count",
        ("texts", "number", "mean", "p95", "worst under", "worst over"),
        [
            describe_errors("tools' outputs", measure_texts(load_tool_outputs(), encoding)),
            describe_errors("each session's last request, as JSON", measure_texts(last, encoding)),
            describe_errors("all requests' JSON, beside what they cost", found.errors),
        ],
    )
    print(f"\nrequests that cost more than their bound: {found.below}")
    print_table(
        f"Quick exits: cold, window {WINDOW_TOKENS:,}; the plan leaves {found.left / len(found.errors):.1%} alone",
        ("bound", "requests", "exits", "of those over 32 KiB", "wrong"),
        [describe_exit(name, each) for name, each in found.exits.items()],
    )


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "accuracy": show_accuracy,
    "cold": show_cold,
    "hard": show_hard,
    "warm": show_warm,
    "engines": show_engines,
    "estimate": show_estimate,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, action="append", help="a part; may be given more than once")
    parser.add_argument("--peers", type=Path, default=PEERS, help="where install_peers.py put them")
    parser.add_argument("--rounds", type=int, default=5, help="through all the texts")
    parser.add_argument("--requests", type=int, default=200, help="of a warm transcript")
    arguments = parser.parse_args()
    print(f"{describe_machine()}; tiktoken {version('tiktoken')}, trimtab {version('trimtab')}")
    for name in arguments.only or PARTS:
        PARTS[name](arguments)


if __name__ == "__main__":
    main()
