"""Reads the ids of tool calls, which some servers write as numbers.

Law: ids are compared by value. So a number is the same id as its text: 1, 1.0 and "1" are equal.
"""

from typing import Any

import msgspec


def read_id(value: Any) -> str:
    """An id by its decoded value; empty if it is neither a text nor a number."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    return str(int(value)) if value % 1 == 0 else str(value)


def write_id(value: Any) -> bytes:
    """The JSON of an id that is a number; empty for any other."""
    return msgspec.json.encode(value) if isinstance(value, int | float) and read_id(value) else b""
