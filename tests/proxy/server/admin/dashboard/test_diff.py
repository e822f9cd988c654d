"""The lines of a text before and after."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.server.admin.dashboard.diff import diff_lines

TEXTS = st.lists(st.sampled_from(["a", "b", "c", "", "x y"]), max_size=12).map("\n".join)


@given(before=TEXTS, after=TEXTS)
def test_both_texts_can_be_read_from_the_lines(before, after):
    lines = diff_lines(before, after)
    assert [line["text"] for line in lines if line["kind"] != "added"] == before.splitlines()
    assert [line["text"] for line in lines if line["kind"] != "removed"] == after.splitlines()


def test_what_stays_is_the_same():
    lines = diff_lines("one\ntwo\nthree", "one\n2\nthree")
    assert [(line["kind"], line["text"]) for line in lines] == [
        ("same", "one"), ("removed", "two"), ("added", "2"), ("same", "three"),
    ]  # fmt: skip


@pytest.mark.measured
def test_a_hostile_pair_takes_no_long():
    """Thousands of equal lines would take minutes."""
    started = time.process_time()
    lines = diff_lines("x\ny\n" * 8000, "y\nx\n" * 8000)
    assert time.process_time() - started < 5
    assert len(lines) == 32_000
