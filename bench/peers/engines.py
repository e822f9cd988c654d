"""Runs inside the engines' environment, with the repository on its path: tokenizers count the same texts.

Input, one line of JSON: {texts, rounds, random_texts}. Output, one line: a row for each engine, or why there is none.

Law: engines take turns, batch by batch. Each is called through the proxy's adapter, with the proxy's cutting of long
texts.
"""

import json  # noqa: TID251 - the standard library is enough here
import random
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib.metadata import version
from typing import Any

from trimtab.proxy.compaction.tokenizers.exact import VOCABULARIES, count_pieces, load_encoding, make_counter
from trimtab.proxy.compaction.tokenizers.optional import _ENGINES, SELF_TEST

O200K = "o200k_base"
BATCH_CHARS = 200_000
PACKAGES = {"tiktoken": "tiktoken", "ours": "tiktoken", "bpe_openai": "bpe-openai"}
_ALPHABETS = (
    (0x20, 0x7E), (0x61, 0x7A), (0x30, 0x39), (0x09, 0x0D), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x5FF),
    (0x900, 0xE7F), (0x2000, 0x27BF), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xD800, 0xDFFF),
    (0x1F300, 0x1FAFF), (0x20000, 0x323AF),
)  # fmt: skip
"""The alphabets of random texts: ranges of code points, up to four in one text."""
_WORDS = ("<|endoftext|>", "'s", "'LL", "\r\n", "    ", "def ", "http://", "\u017f", "e\u0301", "==", "0x1F")

Count = Callable[[str], int]


@cache
def load_engines(vocabulary: str) -> dict[str, Count | str]:
    """The counts of each engine by its name, or the error that kept it from loading."""
    engines: dict[str, Count | str] = {
        "tiktoken": count_pieces(load_encoding(vocabulary, is_published=True)),
        "ours": count_pieces(load_encoding(vocabulary)),
    }
    for name, load in _ENGINES:
        try:
            engines[name] = load(vocabulary)
        except (ImportError, RuntimeError, ValueError, KeyError, OSError) as error:
            engines[name] = f"{type(error).__name__}: {error}"
    return engines


def measure(counts: dict[str, Count], texts: list[str], rounds: int) -> dict[str, list[float]]:
    """Seconds of processor time of each engine in each round. In each round its counter knows no text."""
    seconds: dict[str, list[float]] = {name: [] for name in counts}
    for number in range(rounds):
        fresh = {name: make_counter(count) for name, count in counts.items()}
        taken = dict.fromkeys(counts, 0.0)
        for place, batch in enumerate(_cut(texts)):
            names = list(counts)
            turn = (place + number) % len(names)
            for name in (*names[turn:], *names[:turn]):
                started = time.process_time()
                for text in batch:
                    fresh[name](text)
                taken[name] += time.process_time() - started
        for name, value in taken.items():
            seconds[name].append(value)
    return seconds


def _cut(texts: list[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if sum(map(len, batch)) >= BATCH_CHARS:
            yield batch
            batch = []
    yield batch


def make_random_texts(number: int) -> Iterator[str]:
    """Short texts of unusual characters, the same in every run."""
    dice = random.Random(23)  # noqa: S311 - no secret
    for _ in range(number):
        ranges = dice.choices(_ALPHABETS, k=dice.randint(1, 4))
        pieces = [chr(dice.randint(*dice.choice(ranges))) for _ in range(dice.randint(1, 200))]
        for _ in range(dice.randint(0, 6)):
            pieces.insert(dice.randrange(len(pieces) + 1), dice.choice(_WORDS))
        yield "".join(pieces)


def count_misses(engine: str, random_texts: int) -> tuple[int, int, int]:
    """How often an engine disagrees: on the self-test and on random texts; and the number of random texts."""
    failed = missed = asked = 0
    for vocabulary in VOCABULARIES:
        engines = load_engines(vocabulary)
        count, truth = engines[engine], engines["tiktoken"]
        if isinstance(count, str) or isinstance(truth, str):
            continue
        failed += sum(count(text) != expected[vocabulary] for text, expected in SELF_TEST)
        texts = list(make_random_texts(random_texts))
        missed += sum(count(text) != truth(text) for text in texts)
        asked += len(texts)
    return failed, missed, asked


def main() -> None:
    wanted = json.loads(sys.stdin.readline())
    engines = load_engines(O200K)
    counts = {name: count for name, count in engines.items() if not isinstance(count, str)}
    seconds = measure(counts, wanted["texts"], wanted["rounds"])
    describe = partial(_describe, seconds=seconds, random_texts=wanted["random_texts"])
    print(json.dumps([describe(name, engine) for name, engine in engines.items()]))


def _describe(name: str, engine: Count | str, *, seconds: dict[str, list[float]], random_texts: int) -> dict[str, Any]:
    if isinstance(engine, str):
        return {"name": name, "missing": engine}
    failed, missed, asked = count_misses(name, random_texts)
    package = PACKAGES[name]
    return {
        "name": f"{package} {version(package)}" + (", regrouped" if name == "ours" else ""),
        "seconds": seconds[name],
        "self_test_misses": failed,
        "random_misses": missed,
        "random_texts": asked,
    }


if __name__ == "__main__":
    main()
