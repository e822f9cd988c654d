"""Only the first examples of a property test are traced, and the examples are the same as without."""

import sys
from collections.abc import Iterator

import pytest
from hypothesis.internal.reflection import function_digest
from support.tracing import TRACED_EXAMPLES, trace_first_calls


@pytest.fixture
def untraced() -> Iterator[None]:
    """No tracer, not even coverage's."""
    before = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(before)


def _double(number: int) -> int:
    return 2 * number


def test_only_the_first_calls_are_traced(untraced: None) -> None:
    """All calls return the function's value. Behind each call nothing is traced."""
    traced: list[int] = []

    def tracer(frame, event, argument):
        if frame.f_code is _double.__code__ and event == "call":
            traced.append(frame.f_locals["number"])

    call = trace_first_calls(_double, tracer)
    for number in range(2 * TRACED_EXAMPLES):
        assert call(number) == 2 * number
        assert sys.gettrace() is None
    assert traced == list(range(TRACED_EXAMPLES))


def test_a_failure_ends_the_tracing(untraced: None) -> None:
    """The tracer does not stay behind an exception."""
    with pytest.raises(TypeError):
        trace_first_calls(_double, lambda *_: None)(None)
    assert sys.gettrace() is None


def test_the_examples_are_the_same_as_without_a_tracer() -> None:
    """Hypothesis makes its seed from this digest."""
    assert function_digest(trace_first_calls(_double, None)) == function_digest(_double)
