"""Digests of whole sessions, as they are: what is chosen, in which order, and how it is shortened."""

import pytest
from support.builders import count
from support.golden import check_golden
from support.told_sessions import told_sessions

from trimtab.rules.summary.digest import write_digest


@pytest.mark.parametrize("name", told_sessions())
def test_a_digest_is_as_it_was(name: str) -> None:
    """With little room and with more, and of the first half behind a model's summary."""
    messages = told_sessions()[name]
    half = messages[: len(messages) // 2]
    check_golden(
        f"digests/{name}",
        {
            "200 tokens": write_digest(messages, max_tokens=200, count=count),
            "1000 tokens": write_digest(messages, max_tokens=1000, count=count),
            "half, 500 tokens": write_digest(half, max_tokens=500, count=count, note="A model's summary."),
        },
    )
