"""The faster tokenizers that the proxy uses if they are installed, compared with tiktoken in a separate environment."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import orjson

from bench.material.corpora import count_bytes
from bench.peers.environments import ask_peer, find_program
from trimtab.proxy.compaction.tokenizers.optional import SELF_TEST

ENVIRONMENT = "engines"
RANDOM_TEXTS = 4000
"""For each vocabulary. Chosen."""
PEER_SECONDS = 180.0


def measure_engines(peers: Path, texts: Sequence[str], rounds: int) -> list[list[str]]:
    """A row for each engine. Raises MissingPeerError if their environment is missing."""
    python = find_program(peers, ENVIRONMENT, "python")
    wanted = orjson.dumps({"texts": texts, "rounds": rounds, "random_texts": RANDOM_TEXTS}) + b"\n"
    rows = orjson.loads(ask_peer(python, "engines", lines=wanted, seconds=PEER_SECONDS)[-1])
    size_mb = count_bytes(texts) / 1e6
    reference = rows[0]["seconds"]
    return [_describe(row, size_mb, reference) for row in rows]


def _describe(row: dict[str, object], size_mb: float, reference: Sequence[float]) -> list[str]:
    if "missing" in row:
        return [str(row["name"]), f"not loaded: {row['missing']}", "", "", "", ""]
    seconds = row["seconds"]
    if not isinstance(seconds, list):
        raise TypeError(seconds)
    ratios = [taken / other for taken, other in zip(seconds, reference, strict=True)]
    return [
        str(row["name"]),
        f"{size_mb / median(seconds):.1f}",
        f"{median(ratios):.2f}",
        f"{row['self_test_misses']} of {2 * len(SELF_TEST)}",
        f"{row['random_misses']} of {row['random_texts']}",
        "no" if row["self_test_misses"] else "yes",
    ]
