"""Every fuzz target by name, and its first inputs.

Law: a target accepts any bytes. It raises AssertionError if a law is broken; any other exception is a crash of the
tested code. The same bytes have the same result in every process.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from fuzzing.answer_targets import fuzz_messages_stream, fuzz_models, fuzz_responses_stream, fuzz_stream
from fuzzing.chat import fuzz_chat
from fuzzing.config_targets import fuzz_config
from fuzzing.dialect_targets import fuzz_messages, fuzz_responses
from fuzzing.json_targets import fuzz_spans, fuzz_surrogates
from fuzzing.lesson_targets import fuzz_lessons, fuzz_quotes
from fuzzing.odds_targets import fuzz_addresses, fuzz_stored
from fuzzing.overflow_targets import fuzz_overflow

SEED_SIZES = (0, 8, 40, 120, 300, 700, 1200)
SEEDS_EACH = 12


@dataclass(frozen=True, slots=True)
class Target:
    """A function to fuzz.

    share: its part of all inputs, in thousandths.
    recorded: the file with recorded data for it.
    """

    run: Callable[[bytes], None]
    share: int
    recorded: str | None = None


TARGETS = {
    "chat": Target(fuzz_chat, 100),
    "responses": Target(fuzz_responses, 60),
    "messages": Target(fuzz_messages, 60),
    "stream": Target(fuzz_stream, 100),
    "responses-stream": Target(fuzz_responses_stream, 80),
    "messages-stream": Target(fuzz_messages_stream, 80),
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
"""For the target `surrogates`: the rest is the text. An unterminated string once took time quadratic in its length."""
_RAW = b"\x00\x01"
"""For the target `overflow`: status 400, and the rest is the body. Other targets also reach useful cases with it."""


def write_seeds(target: Target, data: Path) -> Iterator[bytes]:
    """First inputs: random bytes of several sizes, which make sessions, and recorded bodies if `data` has them."""
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
