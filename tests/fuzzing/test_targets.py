"""A short run of every fuzz target. `bench.fuzz.run` runs the same targets for longer."""

from pathlib import Path

import pytest
from fuzzing.targets import TARGETS, write_seeds
from hypothesis import given, settings
from hypothesis import strategies as st

INPUTS = st.binary(max_size=60) | st.binary(min_size=200, max_size=1200) | st.binary(min_size=200, max_size=1200)
"""Most inputs are long: a session of many steps takes several hundred bytes."""


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=120)
@given(data=INPUTS)
def test_no_input_breaks_a_law(name: str, data: bytes) -> None:
    TARGETS[name].run(data)


@pytest.mark.parametrize("name", TARGETS)
def test_no_seed_breaks_a_law(name: str, tmp_path: Path) -> None:
    """The first inputs of the long run break no law either."""
    for seed in write_seeds(TARGETS[name], tmp_path / "no data"):
        TARGETS[name].run(seed)
