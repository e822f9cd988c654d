"""Every fuzz target by its name, and what each is fed first.

Law: a target takes any bytes, and raises only AssertionError, and that where a law is broken; whatever else comes out
is a crash of the code under it. The same bytes do the same, in any process.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from fuzzing.answer_targets import fuzz_models, fuzz_stream
from fuzzing.chat import fuzz_chat
from fuzzing.config_targets import fuzz_config
from fuzzing.json_targets import fuzz_spans, fuzz_surrogates
from fuzzing.lesson_targets import fuzz_lessons, fuzz_quotes
from fuzzing.odds_targets import fuzz_addresses, fuzz_stored
from fuzzing.overflow_targets import fuzz_overflow

SEED_SIZES = (0, 8, 40, 120, 300, 700, 1200)
SEEDS_EACH = 12


@dataclass(frozen=True, slots=True)
class Target:
    """What is fuzzed; `share` of all inputs are its own, in thousandths; `recorded` the data that it may be fed."""

    run: Callable[[bytes], None]
    share: int
    recorded: str | None = None


TARGETS = {
    "chat": Target(fuzz_chat, 100),
    "stream": Target(fuzz_stream, 200),
    "config": Target(fuzz_config, 30),
    "lessons": Target(fuzz_lessons, 50),
    "quotes": Target(fuzz_quotes, 50),
    "overflow": Target(fuzz_overflow, 120, "overflow_errors.jsonl"),
    "models": Target(fuzz_models, 130, "models_endpoints.jsonl"),
    "spans": Target(fuzz_spans, 70),
    "surrogates": Target(fuzz_surrogates, 100),
    "addresses": Target(fuzz_addresses, 75),
    "stored": Target(fuzz_stored, 75),
}
_ENDLESS = b'\x01{"messages":NaN,"x":"' + b'\\",' * 20_000
"""Of the surrogates target: the rest is the text. A string that nothing ends once took its length squared."""
_RAW = b"\x00\x01"
"""Of the overflow target: status 400, and the rest is the body. Of the others: near enough."""


def write_seeds(target: Target, data: Path) -> Iterator[bytes]:
    """Inputs to begin with: any bytes of several sizes, which make sessions; recorded bodies where `data` has any."""
    generator = random.Random(1)  # noqa: S311 - the same at every run
    for size in SEED_SIZES:
        for _ in range(SEEDS_EACH):
            yield generator.randbytes(size)
    yield _ENDLESS
    recorded = data / (target.recorded or "")
    if not target.recorded or not recorded.is_file():
        return
    for line in recorded.read_bytes().splitlines():
        row = msgspec.json.decode(line)
        body = row.get("body", row) if isinstance(row, dict) else row
        yield _RAW + (body.encode() if isinstance(body, str) else msgspec.json.encode(body))
