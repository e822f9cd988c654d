"""Fit the weights of proxy/compaction/tokenizers/estimate.py: what each pair of neighbouring bytes costs in tokens.

Usage: python scripts/fit_estimate.py [--write proxy/compaction/tokenizers/vocabulary/bigrams.npz] CORPUS_DIR...

A corpus is CORPUS_DIR/<kind>/<source>.txt in UTF-8. Of each kind's sources, by name, the second, fifth, eighth ... are
held out of the fit; the printed tables are about those alone. The same corpora give the same weights.

The weights shipped were fitted on 211 kinds, 590 MB: source code, documentation and its translations into 60 languages
(of free software: Python and its packages, Rust, Go, npm, Django, Debian's manuals and message catalogues), and texts
made of these or at random: logs, tables, tool calls, chat bodies, base64, hex, UUIDs, the scripts of Unicode, emoji, a
word or a line over and over (kinds repeat_*).
"""

import argparse
import pathlib
import random
import sys
from collections.abc import Iterable, Iterator
from itertools import cycle, groupby, islice
from typing import Any, NamedTuple

import numpy as np
import tiktoken

from proxy.compaction.tokenizers.estimate import FIRST_BEHIND, PAIRS
from proxy.compaction.tokenizers.exact import load_encoding, split_text

Array = np.ndarray[Any, Any]

VOCABULARIES = "o200k_base", "cl100k_base"
SAMPLES = {2_000: 60, 16_000: 24, 100_000: 8}
"""Characters of a sample to the number of them, for each kind of text; half as many of its held-out sources."""
SHORTEST_CHARS = 1_000
"""A source that is shorter makes no sample."""
TRUST = {"lang_": 0.5, "mojibake": 0.5, "r_": 0.5, "unicode": 0.5, "repeat_": 0.25}
"""What kinds begin with this stand for little of what is sent, and count less than 1."""
TOKENS_BY_BYTE = 0.4, 0.7
"""What a pair costs before anything is known, by whether its first byte is ASCII or not."""
COARSE_RIDGE, FINE_RIDGE = 1e-6, 3e-7
"""Pull towards what went before, per sample. Found by trying threes of ten on held-out sources."""
COARSE_FLOOR, FINE_FLOOR = 0.1, 0.3
"""Least share of what went before: without it many pairs cost nothing, and so would a text of the same few of them."""
STEPS = 200


class Sample(NamedTuple):
    """A piece of a source."""

    kind: str
    is_held_out: bool
    text: str


class Rows(NamedTuple):
    """Samples as the fit sees them: the pairs of each one and how many there are, end to end."""

    samples: list[Sample]
    starts: Array
    pairs: Array
    counts: Array

    def estimate(self, weights: Array) -> Array:
        """The tokens of each sample, by weights."""
        return np.add.reduceat(weights[self.pairs] * self.counts, self.starts[:-1])


def draw_samples(corpora: Iterable[pathlib.Path]) -> Iterator[Sample]:
    """Pieces of all kinds: of each kind about as many, whatever its size."""
    for folder in sorted(folder for corpus in corpora for folder in corpus.iterdir()):
        sources = sorted(folder.glob("*.txt"))
        for is_held_out in (False, True):
            mine = [path for number, path in enumerate(sources) if (number % 3 == 1) == is_held_out]
            dice = random.Random(f"{folder.name} {is_held_out}")  # noqa: S311 - to be repeatable, not secret
            for chars, wanted in SAMPLES.items():
                for path in islice(cycle(mine), max(len(mine), wanted // (1 + is_held_out))):
                    text = path.read_bytes().decode()
                    start = dice.randrange(max(1, len(text) - chars))
                    if len(text) >= SHORTEST_CHARS:
                        yield Sample(folder.name, is_held_out, text[start : start + chars])


def count_tokens(encoding: tiktoken.Encoding, samples: Iterable[Sample]) -> Array:
    """The tokens of each sample, as the proxy counts them."""
    return np.array(
        [sum(len(encoding.encode_ordinary(p)) for p in split_text(sample.text)) for sample in samples], float
    )


def make_rows(samples: list[Sample]) -> Rows:
    """The pairs of each sample, counted."""
    pairs, counts = [], []
    for sample in samples:
        data = np.frombuffer(bytes([FIRST_BEHIND]) + sample.text.encode(), np.uint8).astype(np.intp)
        found, number = np.unique(data[:-1] | data[1:] << 8, return_counts=True)
        pairs.append(found)
        counts.append(number)
    return Rows(samples, np.cumsum([0, *map(len, pairs)]), np.concatenate(pairs), np.concatenate(counts))


def coarse_classes() -> Array:
    """For each pair, the class that it shares with pairs like it: by 41 classes of bytes."""
    groups = [b"aeiou", b"tnrsldhc", b"bfgmpvwy", b"jkqxz", b"AEIOU", b"BCDFGHJKLMNPQRSTVWXYZ", b"0123456789"]
    groups += [b" ", b"\t", b"\n", b"\r", b".", b",", b"_", b"-", b"/", b'"', b"'", b"\\", b"="]
    groups += [b"(){}[]<>", b":;!?", b"#$%&*+@^`|~"]
    firsts = [0x80, 0x90, 0xA0, 0xB0, 0xC0, 0xC4, 0xC9, 0xD0, 0xD2, 0xD7, *range(0xE0, 0xE5), 0xE7, 0xEA, 0xEE, 0xF0]
    classes = np.zeros(256, np.intp)
    for number, group in enumerate([*groups, *(range(first, 256) for first in firsts)], start=1):
        classes[list(group)] = number
    every = np.arange(PAIRS)
    return np.asarray(classes[every & 255] * 256 + classes[every >> 8])


def trust_in(kind: str) -> float:
    """How much an error on a kind of text counts."""
    return next((trust for start, trust in TRUST.items() if kind.startswith(start)), 1.0)


def fit(rows: Rows, tokens: Array, classes: Array, prior: Array, ridge: float, floor: float) -> Array:
    """Weights of all pairs with the least squared relative error, those of a class moving together from the prior.

    Nesterov's accelerated projected gradient, started anew when it turns (O'Donoghue & Candes 2015); its steps are
    those of the separable bound on the curvature that non-negative shares allow (De Pierro 1995).
    """
    lengths, begins = np.diff(rows.starts), rows.starts[:-1]
    trust = np.array([trust_in(sample.kind) for sample in rows.samples])
    shares = rows.counts * np.repeat(trust / tokens, lengths)
    columns, size, pull = classes[rows.pairs], int(classes.max()) + 1, ridge * len(tokens)
    curvature = np.bincount(columns, shares * np.repeat(np.add.reduceat(shares, begins), lengths), size) + pull
    missing = trust - np.add.reduceat(shares * prior[rows.pairs], begins)
    furthest = np.full(size, np.inf)
    np.minimum.at(furthest, classes, prior * (1 - floor))
    moved = ahead = np.zeros(size)
    speed = 1.0
    for _ in range(STEPS):
        errors = np.add.reduceat(shares * ahead[columns], begins) - missing
        slope = np.bincount(columns, shares * np.repeat(errors, lengths), size) + pull * ahead
        stepped = np.maximum(ahead - slope / curvature, -furthest)
        speed = 1.0 if slope @ (stepped - moved) > 0 else speed
        faster = (1 + (1 + 4 * speed * speed) ** 0.5) / 2
        moved, ahead = stepped, stepped + (speed - 1) / faster * (stepped - moved)
        speed = faster
    return np.asarray(prior + moved[classes])


def fit_all(rows: Rows, tokens: Array) -> Array:
    """Weights by classes of bytes first, so that a pair seldom seen costs what pairs like it do; then pair by pair."""
    every = np.arange(PAIRS)
    flat = np.where(every & 255 < 0x80, *TOKENS_BY_BYTE)
    coarse = fit(rows, tokens, coarse_classes(), flat, COARSE_RIDGE, COARSE_FLOOR)
    return fit(rows, tokens, every, coarse, FINE_RIDGE, FINE_FLOOR).astype(np.float16)


def describe(name: str, errors: Array, factors: Array) -> str:
    """A line of the table: relative errors in percent, and by how much an estimate must be multiplied to cover."""
    off = abs(errors) * 100
    percents = f"{errors.mean() * 100:+5.1f} {off.mean():5.1f} {np.quantile(off, 0.95):5.1f} {errors.min() * 100:6.1f}"
    quantiles = " ".join(f"{np.quantile(factors, share):6.3f}" for share in (0.99, 0.999, 1))
    return f"{name:24}{len(errors):6} {percents} {errors.max() * 100:6.1f} {quantiles}\n"


def report(rows: Rows, tokens: Array, weights: Array) -> None:
    """Print the accuracy on samples that the weights have not seen, by the first word of their kinds."""
    estimates = rows.estimate(weights.astype(np.float64))
    # No text has more tokens than bytes: where it has as many, no factor is needed.
    is_bytes = tokens >= np.add.reduceat(rows.counts, rows.starts[:-1])
    errors, factors = estimates / tokens - 1, np.where(is_bytes, 1, tokens / estimates)
    sys.stdout.write(f"{'kind':24}{'n':>6}  bias  mean   p95  under   over    99%  99.9%   100%\n")
    order = groupby(range(len(tokens)), key=lambda number: rows.samples[number].kind.split("_")[0])
    for kind, numbers in ((kind, list(numbers)) for kind, numbers in order):
        sys.stdout.write(describe(kind, errors[numbers], factors[numbers]))
    usual = np.array([not sample.kind.startswith("repeat_") for sample in rows.samples])
    sys.stdout.write(describe("all but repeat", errors[usual], factors[usual]))


def main() -> None:
    """Fit both vocabularies' weights, print how good they are, write them if asked to."""
    parser = argparse.ArgumentParser(description="Fit the weights of proxy/compaction/tokenizers/estimate.py.")
    parser.add_argument("corpora", metavar="CORPUS_DIR", nargs="+", type=pathlib.Path)
    parser.add_argument("--write", metavar="FILE", type=pathlib.Path)
    options = parser.parse_args()
    samples = list(draw_samples(options.corpora))
    seen, unseen = (make_rows([sample for sample in samples if sample.is_held_out is held]) for held in (False, True))
    weights: dict[str, Any] = {}
    for vocabulary in VOCABULARIES:
        encoding = load_encoding(vocabulary)
        weights[vocabulary] = fit_all(seen, count_tokens(encoding, seen.samples))
        sys.stdout.write(f"\n{vocabulary}, held-out sources\n")
        report(unseen, count_tokens(encoding, unseen.samples), weights[vocabulary])
    if options.write:
        np.savez_compressed(options.write, **weights)


if __name__ == "__main__":
    main()
