"""Every fuzz target by name, and its first inputs.

Law: a target accepts any bytes. It raises AssertionError if a law is broken; any other exception is a crash of the
tested code. The same bytes have the same result in every process.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fuzzing.config_targets import fuzz_config
from fuzzing.dialect_targets import fuzz_chat, fuzz_messages, fuzz_responses

SEED_SIZES = (0, 8, 40, 120, 300, 700, 1200)
SEEDS_EACH = 12


@dataclass(frozen=True, slots=True)
class Target:
    """A function to fuzz. share: its part of all inputs, compared with that of others."""

    run: Callable[[bytes], None]
    share: int


TARGETS = {
    "chat": Target(fuzz_chat, 100),
    "responses": Target(fuzz_responses, 60),
    "messages": Target(fuzz_messages, 60),
    "config": Target(fuzz_config, 30),
}


def write_seeds() -> Iterator[bytes]:
    """First inputs: random bytes of several sizes, which make sessions."""
    generator = random.Random(1)  # noqa: S311 - the same at every run
    for size in SEED_SIZES:
        for _ in range(SEEDS_EACH):
            yield generator.randbytes(size)
