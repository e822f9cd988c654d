"""Ids that look random, and are the same whenever a test runs: `conftest` seeds the generator by the test's name."""

import random
from uuid import UUID


def make_uuid() -> UUID:
    """An id that no other call in this test returns."""
    return UUID(int=random.getrandbits(128), version=4)
