"""Counts one text that is hard for tokenizers, for run.py: in its own process, because it may never end.

    python -m bench.tokens.hard_texts "1,000,000 blanks"

Output, a JSON line each: the bytes of the text; [seconds of processor time, tokens] of trimtab, first run; the same of
tiktoken's own encode_ordinary, or [null, reason] if it panicked; and of trimtab, median of all runs.
"""

import sys
import time
from collections.abc import Callable
from statistics import median

import orjson

from bench.harness.counting import load_encoding, make_counter
from bench.material.corpora import count_bytes, make_hard_texts

REPEATED_SECONDS = 1.0
"""Chosen: a text that takes longer is measured once, others three times by turns."""
TIMES = 3


def measure(count: Callable[[str], int], text: str) -> tuple[float | None, int | str]:
    """Seconds and tokens, or None and the type of the error."""
    started = time.process_time()
    try:
        tokens = count(text)
    except BaseException as error:  # noqa: BLE001 - tiktoken's panic is a BaseException
        return None, type(error).__name__
    return time.process_time() - started, tokens


def main() -> None:
    text = make_hard_texts()[sys.argv[1]]
    encoding, published = load_encoding(), load_encoding(is_published=True)
    print(count_bytes([text]), flush=True)
    ours = [measure(make_counter(encoding), text)]
    _write(ours)
    theirs = [measure(lambda given: len(published.encode_ordinary(given)), text)]
    if theirs[0][0] is not None and max(ours[0][0] or 0.0, theirs[0][0]) < REPEATED_SECONDS:
        for _ in range(TIMES - 1):
            ours.append(measure(make_counter(encoding), text))
            theirs.append(measure(lambda given: len(published.encode_ordinary(given)), text))
    _write(theirs)
    _write(ours)


def _write(results: list[tuple[float | None, int | str]]) -> None:
    seconds = [taken for taken, _ in results if taken is not None]
    print(orjson.dumps([median(seconds) if seconds else None, results[0][1]]).decode(), flush=True)


if __name__ == "__main__":
    main()
