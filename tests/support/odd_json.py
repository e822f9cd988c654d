"""Arbitrary JSON that no real client sends."""

from typing import Any

import orjson
from hypothesis import strategies as st

ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
"""Any JSON value, with integers of any size."""


def odd_objects(*keys: str, **more: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects with any value under some of the keys, also nested; or any other JSON value."""
    inner = ODD | st.fixed_dictionaries({}, optional=dict.fromkeys(keys, ODD))
    return st.fixed_dictionaries({}, optional={**dict.fromkeys(keys, inner), **more}) | ODD


def dump(value: Any) -> bytes:
    """Write JSON with integers of any size, which orjson refuses."""
    if isinstance(value, dict):
        return b"{" + b",".join(orjson.dumps(key) + b":" + dump(item) for key, item in value.items()) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(dump, value)) + b"]"
    return str(value).encode() if type(value) is int else orjson.dumps(value)
