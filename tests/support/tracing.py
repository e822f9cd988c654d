"""Coverage measures only the first examples of each property test. All examples run, and all are checked.

A traced example takes two to four times as long as an untraced one. Nearly all that the examples of a test reach is
reached by the first ones. What generates the arguments is not traced.
"""

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

TRACED_EXAMPLES = 8
"""Chosen: a quarter of the examples of the profile `trimtab`."""


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Trace only the first examples, if the test is a property test and coverage traces."""
    tracer = sys.gettrace()
    if not getattr(pyfuncitem.obj, "is_hypothesis_test", False) or not is_of_coverage(tracer):
        return (yield)
    handle = pyfuncitem.obj.hypothesis
    whole = handle.inner_test
    handle.inner_test = trace_first_calls(whole, tracer)
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(tracer)
        handle.inner_test = whole


def is_of_coverage(tracer: object) -> bool:
    """Whether coverage traces."""
    return type(tracer).__module__.startswith("coverage")


def trace_first_calls(function: Callable[..., Any], tracer: Any) -> Callable[..., Any]:
    """Return the same function, but the first calls are traced and later ones are not. Call it untraced.

    Hypothesis derives the examples from the function's source and signature; both stay the same.
    """
    calls = 0

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > TRACED_EXAMPLES:
            return function(*arguments, **named)
        sys.settrace(tracer)
        try:
            return function(*arguments, **named)
        finally:
            sys.settrace(None)

    return call
