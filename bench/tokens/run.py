"""Measures how close token counts are to what the API reports, and how fast they are.

    python -m bench.tokens.run --peers .bench-peers
    python -m bench.tokens.run --only accuracy --only warm

Parts: accuracy (recorded requests with the prompt tokens that the API reported, compared with LiteLLM and others), cold
(texts not seen before, compared with tiktoken), hard (texts that are hard for tokenizers), warm (a 400 kB transcript
that was seen) and engines (tokenizers that the proxy uses if they are installed). All times are processor time; things
that are compared take turns in one run. All parts take about two minutes. `bench.latency.loop_lag` measures what a
count does to the event loop.
"""

import argparse
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from bench.figures import describe_machine, judge, print_table
from bench.harness.counting import load_encoding
from bench.material.corpora import load_message_texts, load_tool_outputs, make_hard_texts
from bench.peers.environments import PEERS, MissingPeerError
from bench.tokens.accuracy import GOLDEN, GROUPS, count_all, describe, load_golden
from bench.tokens.engines import measure_engines
from bench.tokens.speed import describe_cold, describe_hard, measure_cold, measure_warm

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
        print("\nLiteLLM is not installed (python -m bench.peers.install --only litellm)")


def show_cold(arguments: argparse.Namespace) -> None:
    ours, theirs = load_encoding(), load_encoding(is_published=True)
    messages = load_message_texts()
    rows = []
    for name, texts in (
        ("agents' messages", messages),
        ("the same as one text", ["\n".join(messages)]),
        ("tool outputs", load_tool_outputs()),
    ):
        rounds = measure_cold(texts, ours, theirs, arguments.rounds)
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
        print("\nengines: left out, not installed (python -m bench.peers.install --only engines)")
        return
    print_table(
        f"Engines: agents' messages not seen before, {arguments.rounds} rounds by turns; tests in both vocabularies",
        ("engine", "MB/s", "time / tiktoken's", "self-test missed", "random texts missed", "used"),
        rows,
    )


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "accuracy": show_accuracy,
    "cold": show_cold,
    "hard": show_hard,
    "warm": show_warm,
    "engines": show_engines,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, action="append", help="only this part; may be repeated")
    parser.add_argument("--peers", type=Path, default=PEERS, help="folder in which bench.peers.install put the peers")
    parser.add_argument("--rounds", type=int, default=5, help="rounds through all the texts")
    parser.add_argument("--requests", type=int, default=200, help="requests with a warm transcript")
    arguments = parser.parse_args()
    print(f"{describe_machine()}; tiktoken {version('tiktoken')}, trimtab {version('trimtab')}")
    for name in arguments.only or PARTS:
        PARTS[name](arguments)


if __name__ == "__main__":
    main()
