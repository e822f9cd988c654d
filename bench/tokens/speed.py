"""Measures how fast new texts are counted, compared with tiktoken, and how cheap a known transcript is.

Law: processor time, not the clock; trimtab and tiktoken take turns on the same texts, in one process.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import orjson
import tiktoken

from bench.harness.counting import Codec, load_encoding, make_counter, read_body
from bench.material.corpora import batch, count_bytes
from bench.material.transcript import build_body

BATCH_CHARS = 200_000
HARD_SECONDS = 60.0
"""Chosen: a hard text that takes longer is stopped, and the table says so."""
MODEL = "gpt-4o"
TRANSCRIPT_BYTES = 400_000
COLD_REQUESTS = 5


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds of processor time of each for all texts."""

    ours: float
    tiktoken: float


@dataclass(frozen=True, slots=True)
class Warm:
    """Medians in milliseconds: of splitting the body, of decoding and counting, and of both."""

    read: float
    decode: float
    both: float


def measure_cold(
    texts: Sequence[str], ours_by: tiktoken.Encoding, theirs_by: tiktoken.Encoding, rounds: int
) -> list[Round]:
    """Count all texts `rounds` times, each time with a new counter that knows none of them."""
    batches = list(batch(texts, BATCH_CHARS))
    results = []
    for number in range(rounds):
        count = make_counter(ours_by)
        ours = theirs = 0.0
        for place, part in enumerate(batches):
            if (place + number) % 2:
                ours += _time(count, part)
                theirs += _time(theirs_by.encode_ordinary, part)
            else:
                theirs += _time(theirs_by.encode_ordinary, part)
                ours += _time(count, part)
        results.append(Round(ours, theirs))
    return results


def _time(work: Callable[[str], object], texts: Sequence[str]) -> float:
    started = time.process_time()
    for text in texts:
        work(text)
    return time.process_time() - started


def describe_cold(name: str, texts: Sequence[str], rounds: Sequence[Round]) -> list[str]:
    """A row: size, MB/s of both, the ratio of their times and its range."""
    size_mb = count_bytes(texts) / 1e6
    ratios = sorted(item.ours / item.tiktoken for item in rounds)
    return [
        name,
        f"{len(texts)}",
        f"{size_mb:.1f}",
        f"{size_mb / median(item.ours for item in rounds):.1f}",
        f"{size_mb / median(item.tiktoken for item in rounds):.1f}",
        f"{median(ratios):.2f}",
        f"{ratios[0]:.2f} to {ratios[-1]:.2f}",
    ]


def describe_hard(name: str) -> list[str]:
    """A hard text's row, from its own process: MB/s and seconds of both, their counts, and the ratio of their times."""
    command = [sys.executable, "-m", "bench.tokens.hard_texts", name]
    # Standard error would get the backtrace of a panic.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        output, _ = process.communicate(timeout=HARD_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
    size_mb, ours, theirs = _read_hard(output)
    return [
        name,
        f"{size_mb:.1f}",
        *_describe(size_mb, ours),
        *_describe(size_mb, theirs),
        f"{ours[0] / theirs[0]:.2f}" if ours and theirs and ours[0] and theirs[0] else "-",
    ]


Hard = tuple[float | None, int | str]
"""Seconds and tokens, or None and the reason."""


def _read_hard(output: bytes) -> tuple[float, Hard | None, Hard | None]:
    """The lines of the child: size, ours, theirs, and ours again; None for lines that it did not reach."""
    lines = [orjson.loads(line) for line in output.splitlines()]
    size, ours, theirs, again = [*lines, None, None, None, None][:4]
    return (size or 0) / 1e6, again or ours, theirs


def _describe(size_mb: float, result: Hard | None) -> Iterator[str]:
    if result is None:
        yield from (f"> {HARD_SECONDS:g} s", "-")
    elif result[0] is None:
        yield from (str(result[1]), "-")
    else:
        yield from (f"{result[0]:.3f} s, {size_mb / max(result[0], 1e-9):.1f} MB/s", f"{result[1]:,}")


def measure_warm(requests: int) -> tuple[dict[str, Warm], float]:
    """Measure a transcript of 400 kB: if it is known, if two messages are new, and if all is new.

    Also returns the milliseconds that orjson takes to decode the body, as a yardstick for the machine.
    """
    encoding = load_encoding()
    body = build_body(TRANSCRIPT_BYTES, model=MODEL)
    codec = Codec(make_counter(encoding), MODEL)
    codec.decode(read_body(body))
    grown = [_add_messages(body, number) for number in range(requests)]
    taken: dict[str, list[tuple[float, float]]] = {"all known": [], "all but the last two": [], "none known": []}
    yardstick = []
    for number in range(requests):
        # By turns, so that a busy moment of the machine affects all.
        taken["all known"].append(_measure(codec, _copy(body)))
        taken["all but the last two"].append(_measure(codec, grown[number]))
        started = time.process_time()
        orjson.loads(_copy(body))
        yardstick.append(time.process_time() - started)
        if number < COLD_REQUESTS:
            taken["none known"].append(_measure(Codec(make_counter(encoding), MODEL), _copy(body)))
    return {name: _summarise(seconds) for name, seconds in taken.items()}, median(yardstick) * 1000


def _measure(codec: Codec, body: bytes) -> tuple[float, float]:
    """Seconds of splitting a body whose hashes are unknown, and of decoding it."""
    started = time.process_time()
    request = read_body(body)
    split = time.process_time()
    codec.decode(request)
    return split - started, time.process_time() - split


def _summarise(taken: Sequence[tuple[float, float]]) -> Warm:
    read, decode = (median(values) * 1000 for values in zip(*taken, strict=True))
    return Warm(read, decode, median(left + right for left, right in taken) * 1000)


def _copy(body: bytes) -> bytes:
    """The same bytes in a new object: an object keeps its hash, and every request has new objects."""
    return bytes(bytearray(body))


def _add_messages(body: bytes, number: int) -> bytes:
    """The body with one more call and its result: some 2 kB that no other body has."""
    members = orjson.loads(body)
    call, result = members["messages"][-2:]
    new = [{**old, "content": f"{number} {old['content'][:1600]} {number}"} for old in (call, result)]
    return orjson.dumps({**members, "messages": [*members["messages"], *new]})
