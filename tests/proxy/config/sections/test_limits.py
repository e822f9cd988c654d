"""Limits: the part that each of several workers gets."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.config.sections.limits import MIN_MEMORY_BYTES, LimitsConfig


@given(
    workers=st.integers(1, 256),
    requests=st.integers(1, 10_000),
    memory_bytes=st.integers(MIN_MEMORY_BYTES, 2**40),
    held_bytes=st.none() | st.integers(1024, 2**40),
)
def test_workers_together_take_on_what_the_configuration_says(workers, requests, memory_bytes, held_bytes) -> None:
    """Numbers of requests are rounded up, and are never less than a process needs. A single process gets everything."""
    limits = LimitsConfig(
        max_concurrent_requests=requests, max_memory_bytes=memory_bytes, max_held_bytes=held_bytes
    ).divide(workers)
    assert requests <= workers * limits.max_concurrent_requests < requests + workers
    assert MIN_MEMORY_BYTES <= limits.max_memory_bytes <= max(memory_bytes / workers, MIN_MEMORY_BYTES)
    assert (limits.max_held_bytes is None) is (held_bytes is None)
    assert held_bytes is None or 1024 <= (limits.max_held_bytes or 0) <= max(held_bytes / workers, 1024)
    if workers == 1:
        assert limits == LimitsConfig(
            max_concurrent_requests=requests, max_memory_bytes=memory_bytes, max_held_bytes=held_bytes
        )
